//! What inside hosts of `xdptun nat` send and get, and what is counted of it.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use anyhow::{Context, Result};
use etherparse::{IpNumber, Ipv4Slice, NetSlice, SlicedPacket};
use serde_json::Value;
use xdptun_lab::segment::{Checksum, Content, parse};
use xdptun_lab::{Attached, Frame, Host, Inside, checksum, udp, xdptun};

use crate::LIMIT;
use crate::status::{Counters, gateway};

/// Translates for the first two inside hosts, with these arguments as well.
#[must_use]
pub fn nat(net: &Inside, more: &[&str]) -> Attached {
    let arguments = [&["--inside", Inside::NETWORK], more].concat();
    Attached::nat(&net.gateway, Inside::WAN, &arguments).unwrap()
}

/// The counters of an interface of the gateway that are not zero.
#[must_use]
pub fn counters(net: &Inside, dev: &str) -> Counters {
    let gateway = gateway(&net.gateway, dev).unwrap();
    let counters = gateway["counters"].as_object().unwrap().iter();
    let counters = counters.map(|(name, value)| (name.clone(), value.as_u64().unwrap()));
    counters.filter(|(_, value)| *value > 0).collect()
}

/// A counter of the interface that leads outside.
#[must_use]
pub fn counter(net: &Inside, name: &str) -> u64 {
    let gateway = gateway(&net.gateway, Inside::WAN).unwrap();
    gateway["counters"][name].as_u64().unwrap()
}

/// The sessions of the gateway.
#[must_use]
pub fn sessions(net: &Inside) -> Vec<Value> {
    let text = xdptun::run_in(&net.gateway, &["sessions", "--json"]).unwrap();
    let printed: Value = serde_json::from_str(&text).unwrap();
    printed["sessions"].as_array().unwrap().clone()
}

/// How many inside ends are bound.
#[must_use]
pub fn bindings(net: &Inside) -> u64 {
    let gateway = gateway(&net.gateway, Inside::WAN).unwrap();
    gateway["bindings"].as_u64().unwrap()
}

/// A UDP socket of a host; port 0 takes a free one.
#[must_use]
pub fn socket(host: &Host, port: u16) -> UdpSocket {
    udp::bind(&host.netns, (host.v4, port)).unwrap()
}

/// Sends a datagram and receives it at the other end; from where it came.
pub fn pass(from: &UdpSocket, to: SocketAddr, at: &UdpSocket, byte: u8) -> Result<SocketAddr> {
    let sent = udp::pattern(1000, byte);
    from.send_to(&sent, to).context("cannot send")?;
    let (received, sender) = udp::receive(at, LIMIT)?;
    anyhow::ensure!(received == sent, "other bytes arrived from {sender}");
    Ok(sender)
}

/// The address of a socket.
#[must_use]
pub fn end(socket: &UdpSocket) -> SocketAddr {
    socket.local_addr().unwrap()
}

/// The outside end that a socket of an inside host has towards a socket of an outside one, which
/// answers there.
pub fn outside_end(inside: &UdpSocket, outside: &UdpSocket) -> SocketAddr {
    let seen = pass(inside, end(outside), outside, 1).unwrap();
    let answerer = pass(outside, seen, inside, 2).unwrap();
    assert_eq!(answerer, end(outside));
    seen
}

/// An IPv4 packet of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Packet {
    /// Whether the interface sent it.
    pub outgoing: bool,
    /// Its source address.
    pub source: Ipv4Addr,
    /// Its destination address.
    pub destination: Ipv4Addr,
    /// Its protocol number.
    pub protocol: u8,
}

/// All IPv4 packets of a capture.
///
/// # Panics
///
/// If a frame is malformed, or a checksum of IPv4, TCP, UDP or ICMP is wrong or absent.
#[must_use]
pub fn packets(frames: &[Frame]) -> Vec<Packet> {
    frames.iter().filter_map(packet).collect()
}

fn packet(frame: &Frame) -> Option<Packet> {
    if let Content::Transport(packet) = parse(frame).unwrap() {
        let checksums = [packet.ip_checksum, packet.checksum];
        assert_eq!(checksums, [Checksum::Good; 2], "{packet}");
    }
    let sliced = SlicedPacket::from_ethernet(&frame.bytes).unwrap();
    let Some(NetSlice::Ipv4(ip)) = sliced.net else {
        return None;
    };
    let (header, payload) = (ip.header(), ip.payload());
    assert_eq!(checksum::sum(header.slice()), 0xffff, "{header:?}");
    if payload.ip_number == IpNumber::ICMP && !payload.fragmented {
        assert_eq!(checksum::sum(payload.payload), 0xffff, "{payload:?}");
    }
    Some(Packet {
        outgoing: frame.outgoing,
        source: header.source_addr(),
        destination: header.destination_addr(),
        protocol: payload.ip_number.0,
    })
}

/// Requires that no address of an inside network is in a capture, neither in an IPv4 header nor in
/// one that an ICMP error quotes, and returns its packets.
///
/// # Panics
///
/// If there is one; as [`packets`].
pub fn without_inside(frames: &[Frame]) -> Vec<Packet> {
    for frame in frames {
        let sliced = SlicedPacket::from_ethernet(&frame.bytes).unwrap();
        let Some(NetSlice::Ipv4(ip)) = sliced.net else {
            continue;
        };
        let addresses = &ip.header().slice()[12..20];
        let quoted = quoted_addresses(&ip).unwrap_or_default();
        for pair in [addresses, quoted] {
            let shows = pair
                .chunks(4)
                .any(|address| address.starts_with(&[192, 168]));
            assert!(!shows, "{frame:?}");
        }
    }
    packets(frames)
}

/// Both addresses of the packet that an ICMP error quotes.
fn quoted_addresses<'a>(ip: &Ipv4Slice<'a>) -> Option<&'a [u8]> {
    let message = ip.payload().payload;
    // Destination unreachable, redirect, time exceeded, parameter problem.
    let is_error = matches!(message.first(), Some(3 | 5 | 11 | 12));
    let quotes = ip.payload().ip_number == IpNumber::ICMP && is_error;
    quotes.then(|| message.get(20..28)).flatten()
}
