//! Segments that no stack would send.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use etherparse::{IpHeaders, IpNumber, Ipv4Header, PacketBuilder, TcpHeader};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use xdptun_lab::Netns;

/// `IPPROTO_RAW`: the packet brings its own IP header, raw(7).
const WITH_HEADER: i32 = 255;

/// Sends a segment with these header fields, and good checksums, from any
/// address.
pub fn send_segment(
    netns: &Netns,
    from: SocketAddr,
    to: SocketAddr,
    fill: impl FnOnce(&mut TcpHeader),
    payload: &[u8],
) -> Result<()> {
    send_packet(netns, to.ip(), &segment(from, to, fill, payload)?)
}

/// The IP packet of such a segment.
pub fn segment(
    from: SocketAddr,
    to: SocketAddr,
    fill: impl FnOnce(&mut TcpHeader),
    payload: &[u8],
) -> Result<Vec<u8>> {
    let mut header = TcpHeader::new(from.port(), to.port(), 0, 0xf000);
    fill(&mut header);
    let mut packet = Vec::new();
    match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            PacketBuilder::ipv4(source.octets(), destination.octets(), 64)
                .tcp_header(header)
                .write(&mut packet, payload)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            PacketBuilder::ipv6(source.octets(), destination.octets(), 64)
                .tcp_header(header)
                .write(&mut packet, payload)
        }
        _ => anyhow::bail!("{from} and {to} are of two families"),
    }?;
    Ok(packet)
}

/// The IP packet of a datagram; of IPv4 with a number by which its fragments are known.
pub fn datagram(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Result<Vec<u8>> {
    let mut packet = Vec::new();
    match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let length = u16::try_from(8 + payload.len())?;
            let (source, destination) = (source.octets(), destination.octets());
            let mut header = Ipv4Header::new(length, 64, IpNumber::UDP, source, destination)?;
            header.identification = 0x1234;
            PacketBuilder::ip(IpHeaders::Ipv4(header, Default::default()))
                .udp(from.port(), to.port())
                .write(&mut packet, payload)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            PacketBuilder::ipv6(source.octets(), destination.octets(), 64)
                .udp(from.port(), to.port())
                .write(&mut packet, payload)
        }
        _ => anyhow::bail!("{from} and {to} are of two families"),
    }?;
    Ok(packet)
}

/// An Ethernet frame with an IP packet; the addresses are those of receiver and
/// sender.
pub fn frame(addresses: [[u8; 6]; 2], packet: &[u8]) -> Vec<u8> {
    let ether_type: &[u8] = match packet[0] >> 4 {
        4 => &[0x08, 0x00],
        _ => &[0x86, 0xdd],
    };
    [addresses.as_flattened(), ether_type, packet].concat()
}

/// Sends a whole IP packet as it is.
pub fn send_packet(netns: &Netns, to: IpAddr, packet: &[u8]) -> Result<()> {
    let domain = match to {
        IpAddr::V4(_) => Domain::IPV4,
        IpAddr::V6(_) => Domain::IPV6,
    };
    let protocol = Protocol::from(WITH_HEADER);
    let socket = netns
        .enter(|| Socket::new(domain, Type::RAW, Some(protocol)))?
        .context("no raw socket")?;
    let to = SockAddr::from(SocketAddr::new(to, 0));
    let sent = socket
        .send_to(packet, &to)
        .context("cannot send a packet")?;
    anyhow::ensure!(sent == packet.len(), "only {sent} bytes were sent");
    Ok(())
}
