//! TCP packets taken apart, altered and put together again, as devices on the
//! way do.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use etherparse::{IpHeaders, IpNumber, Ipv6RawExtHeader, TcpHeader};
use xdptun_lab::checksum::transport_sum;
use xdptun_lab::vnet::{Gso, Vnet};
use xdptun_lab::{Carried, Kind, Side};

use crate::PORT;

/// Where the checksum is in a TCP header.
const CHECKSUM: u16 = 16;

/// A TCP packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpPacket {
    /// The link header, as it was.
    pub link: Vec<u8>,
    /// The IP header with its options.
    pub ip: IpHeaders,
    /// The TCP header with its options.
    pub tcp: TcpHeader,
    /// The payload.
    pub payload: Vec<u8>,
}

/// A segment of [`PORT`] that carries data; `None` for all else.
pub fn data(kind: Kind, frame: &Carried) -> Option<TcpPacket> {
    let packet = TcpPacket::read(kind, &frame.bytes).ok()?;
    let ours = [packet.tcp.source_port, packet.tcp.destination_port].contains(&PORT);
    // A datagram may be empty; under a veil, long ones have no PSH.
    let carries = packet.tcp.psh || !packet.payload.is_empty();
    (ours && packet.tcp.ack && carries).then_some(packet)
}

impl TcpPacket {
    /// Takes a frame apart.
    pub fn read(kind: Kind, frame: &[u8]) -> Result<Self> {
        let (link, packet) = frame
            .split_at_checked(kind.header_len())
            .context("no link header")?;
        let (ip, rest) = IpHeaders::from_slice(packet)?;
        ensure!(
            rest.ip_number == IpNumber::TCP && !rest.fragmented,
            "no TCP"
        );
        let (tcp, payload) = TcpHeader::from_slice(rest.payload)?;
        Ok(Self {
            link: link.to_vec(),
            ip,
            tcp,
            payload: payload.to_vec(),
        })
    }

    /// Gives it these TCP options, in whole words.
    ///
    /// # Panics
    ///
    /// If there are too many.
    pub fn set_tcp_options(&mut self, options: &[u8]) {
        self.tcp.set_options_raw(options).expect("ten words");
    }

    /// Gives it these IPv4 options, in whole words; an IPv6 packet stays.
    ///
    /// # Panics
    ///
    /// If there are too many.
    pub fn set_v4_options(&mut self, options: &[u8]) {
        if let IpHeaders::Ipv4(ip, _) = &mut self.ip {
            ip.options = options.try_into().expect("ten words");
        }
    }

    /// Gives it these IPv6 extension headers, each in units of eight bytes less
    /// the two that name type and length; an IPv4 packet stays.
    ///
    /// # Panics
    ///
    /// If one has another length.
    pub fn set_v6_options(&mut self, hop_by_hop: Option<&[u8]>, destination: Option<&[u8]>) {
        if let IpHeaders::Ipv6(_, extensions) = &mut self.ip {
            let header = |options| {
                Ipv6RawExtHeader::new_raw(IpNumber::TCP, options).expect("units of eight bytes")
            };
            extensions.hop_by_hop_options = hop_by_hop.map(header);
            extensions.destination_options = destination.map(header);
        }
    }

    /// Puts it together, lengths, protocol numbers and checksums included.
    ///
    /// # Panics
    ///
    /// If it is larger than an IP packet can be.
    pub fn write(&self) -> Vec<u8> {
        let mut tcp = self.tcp.clone();
        tcp.checksum = match &self.ip {
            IpHeaders::Ipv4(ip, _) => tcp.calc_checksum_ipv4(ip, &self.payload),
            IpHeaders::Ipv6(ip, _) => tcp.calc_checksum_ipv6(ip, &self.payload),
        }
        .expect("the payload fits a packet");
        // As if it were UDP, for which zero says "none" (RFC 768).
        if tcp.checksum == 0xffff {
            tcp.checksum = 0;
        }
        self.assemble(&tcp)
    }

    /// The same for a checksum that is left to the taker: the field holds the
    /// sum of the pseudo-header alone.
    fn write_pending(&self) -> Vec<u8> {
        let (source, destination): (IpAddr, IpAddr) = match &self.ip {
            IpHeaders::Ipv4(ip, _) => (ip.source.into(), ip.destination.into()),
            IpHeaders::Ipv6(ip, _) => (ip.source.into(), ip.destination.into()),
        };
        let nothing = vec![0; self.tcp.header_len() + self.payload.len()];
        let mut tcp = self.tcp.clone();
        tcp.checksum = transport_sum(source, destination, IpNumber::TCP.0, &nothing);
        self.assemble(&tcp)
    }

    fn assemble(&self, tcp: &TcpHeader) -> Vec<u8> {
        let mut ip = self.ip.clone();
        ip.set_payload_len(tcp.header_len() + self.payload.len())
            .expect("an IP packet");
        ip.set_next_headers(IpNumber::TCP);
        let mut bytes = self.link.clone();
        ip.write(&mut bytes).expect("memory takes all");
        tcp.write(&mut bytes).expect("memory takes all");
        bytes.extend(&self.payload);
        bytes
    }
}

/// The checksum of merged segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sum {
    /// It is left to the taker, as GRO in the kernel leaves it.
    Pending,
    /// It is written, as a device that merges may do.
    Right,
}

/// Merges contiguous segments of one flow into one, as GRO and LRO do.
///
/// # Panics
///
/// If there is none, or they do not fit one packet.
pub fn merge(segments: &[TcpPacket], to: Side, sum: Sum) -> Carried {
    let mut whole = segments[0].clone();
    let size = word(whole.payload.len());
    for next in &segments[1..] {
        whole.payload.extend(&next.payload);
    }
    let before_tcp = word(whole.link.len() + whole.ip.header_len());
    let kind = match whole.ip {
        IpHeaders::Ipv4(..) => Gso::TcpV4,
        IpHeaders::Ipv6(..) => Gso::TcpV6,
    };
    let headers = before_tcp + whole.tcp.header_len_u16();
    let vnet = Vnet::default().with_pieces(kind, headers, size);
    let (vnet, bytes) = match sum {
        Sum::Right => (vnet, whole.write()),
        Sum::Pending => (
            vnet.with_pending_checksum(before_tcp, CHECKSUM),
            whole.write_pending(),
        ),
    };
    Carried { to, vnet, bytes }
}

fn word(length: usize) -> u16 {
    u16::try_from(length).expect("lengths in a packet have 16 bits")
}
