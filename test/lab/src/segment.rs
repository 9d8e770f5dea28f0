//! Reading a captured frame and judging its checksums.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use etherparse::{NetSlice, SlicedPacket, TcpSlice, TransportSlice, UdpSlice};

use crate::capture::Frame;
use crate::checksum;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// The content of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content<'a> {
    /// A TCP segment or UDP datagram.
    Transport(Packet<'a>),
    /// A piece of a fragmented IP packet, with its protocol number.
    Fragment(u8),
    /// Anything else: ARP, ICMP, neighbour discovery, ...
    Other,
}

/// A TCP segment or UDP datagram with its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Address and port of the sender.
    pub source: SocketAddr,
    /// Address and port of the receiver.
    pub destination: SocketAddr,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// TOS or traffic class octet.
    pub tos: u8,
    /// Whether it is IPv4 without DF, so that routers may fragment it.
    pub without_df: bool,
    /// Length of the whole IP packet in bytes, without link padding.
    pub ip_length: usize,
    /// The protocol's own fields.
    pub header: Header<'a>,
    /// The payload of the segment or datagram.
    pub payload: &'a [u8],
    /// Verdict on the IPv4 header checksum; IPv6 has none and is always good.
    pub ip_checksum: Checksum,
    /// Verdict on the TCP or UDP checksum.
    pub checksum: Checksum,
}

/// Fields of the transport header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Header<'a> {
    /// UDP has nothing beyond ports and length.
    Udp,
    /// TCP.
    Tcp(Tcp<'a>),
}

/// Fields of a TCP header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tcp<'a> {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack_number: u32,
    /// Window as on the wire, not scaled.
    pub window: u16,
    /// Urgent pointer; anything but zero without URG is damage.
    pub urgent: u16,
    /// SYN flag.
    pub syn: bool,
    /// ACK flag.
    pub ack: bool,
    /// PSH flag.
    pub psh: bool,
    /// FIN flag.
    pub fin: bool,
    /// RST flag.
    pub rst: bool,
    /// The option bytes.
    pub options: &'a [u8],
}

/// Verdict on one checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// It matches the bytes.
    Good,
    /// It does not.
    Bad,
    /// UDP over IPv4 with a zero checksum: the sender made none.
    Absent,
    /// The stack still relies on an offload to write it: no verdict.
    NotReady,
}

impl Packet<'_> {
    /// Whether either end uses `port`.
    pub fn has_port(&self, port: u16) -> bool {
        self.source.port() == port || self.destination.port() == port
    }

    /// Whether any checksum is wrong.
    pub fn is_bad(&self) -> bool {
        self.checksum == Checksum::Bad || self.ip_checksum == Checksum::Bad
    }

    /// The TCP fields, `None` for UDP.
    pub fn tcp(&self) -> Option<&Tcp<'_>> {
        match &self.header {
            Header::Tcp(tcp) => Some(tcp),
            Header::Udp => None,
        }
    }
}

/// Reads a frame.
///
/// An error means that a header does not fit the frame or contradicts itself.
pub fn parse(frame: &Frame) -> Result<Content<'_>> {
    let sliced = if frame.bare {
        SlicedPacket::from_ip(&frame.bytes).context("malformed packet")?
    } else {
        SlicedPacket::from_ethernet(&frame.bytes).context("malformed frame")?
    };
    let Some(network) = sliced.net.as_ref().and_then(Network::of) else {
        return Ok(Content::Other);
    };
    if network.fragment {
        return Ok(Content::Fragment(network.protocol));
    }
    Ok(match sliced.transport {
        Some(TransportSlice::Tcp(tcp)) => network.segment(frame, &tcp),
        Some(TransportSlice::Udp(udp)) => network.datagram(frame, &udp),
        _ => Content::Other,
    })
}

/// The parts of an IP header that do not depend on its version.
struct Network {
    source: IpAddr,
    destination: IpAddr,
    ttl: u8,
    tos: u8,
    without_df: bool,
    length: usize,
    checksum: Checksum,
    fragment: bool,
    protocol: u8,
}

impl Network {
    /// `None` for ARP.
    fn of(slice: &NetSlice<'_>) -> Option<Self> {
        match slice {
            NetSlice::Ipv4(ip) => {
                let header = ip.header();
                Some(Self {
                    source: header.source_addr().into(),
                    destination: header.destination_addr().into(),
                    ttl: header.ttl(),
                    tos: header.dcp().value() << 2 | header.ecn().value(),
                    without_df: !header.dont_fragment(),
                    length: usize::from(header.total_len()),
                    checksum: verdict(checksum::sum(header.slice())),
                    fragment: ip.is_payload_fragmented(),
                    protocol: ip.payload_ip_number().0,
                })
            }
            NetSlice::Ipv6(ip) => {
                let header = ip.header();
                Some(Self {
                    source: header.source_addr().into(),
                    destination: header.destination_addr().into(),
                    ttl: header.hop_limit(),
                    tos: header.traffic_class(),
                    without_df: false,
                    length: header.slice().len() + usize::from(header.payload_length()),
                    checksum: Checksum::Good,
                    fragment: ip.is_payload_fragmented(),
                    protocol: ip.payload().ip_number.0,
                })
            }
            NetSlice::Arp(_) => None,
        }
    }

    fn segment<'a>(&self, frame: &Frame, tcp: &TcpSlice<'a>) -> Content<'a> {
        // etherparse ties the options to the slice it hands out by value,
        // so they are taken from the header bytes, which outlive it.
        let options = &tcp.header_slice()[20..];
        let header = Header::Tcp(Tcp {
            seq: tcp.sequence_number(),
            ack_number: tcp.acknowledgment_number(),
            window: tcp.window_size(),
            urgent: tcp.urgent_pointer(),
            syn: tcp.syn(),
            ack: tcp.ack(),
            psh: tcp.psh(),
            fin: tcp.fin(),
            rst: tcp.rst(),
            options,
        });
        let ports = (tcp.source_port(), tcp.destination_port());
        let checksum = self.judge(frame, TCP, tcp.slice());
        self.packet(ports, header, tcp.payload(), checksum)
    }

    fn datagram<'a>(&self, frame: &Frame, udp: &UdpSlice<'a>) -> Content<'a> {
        let checksum = if udp.checksum() == 0 {
            // RFC 8200 section 8.1: zero is not allowed over IPv6.
            match self.source {
                IpAddr::V4(_) => Checksum::Absent,
                IpAddr::V6(_) => Checksum::Bad,
            }
        } else {
            self.judge(frame, UDP, udp.slice())
        };
        let ports = (udp.source_port(), udp.destination_port());
        self.packet(ports, Header::Udp, udp.payload(), checksum)
    }

    fn judge(&self, frame: &Frame, protocol: u8, segment: &[u8]) -> Checksum {
        if !frame.checksum_ready {
            return Checksum::NotReady;
        }
        verdict(checksum::transport_sum(
            self.source,
            self.destination,
            protocol,
            segment,
        ))
    }

    fn packet<'a>(
        &self,
        (source_port, destination_port): (u16, u16),
        header: Header<'a>,
        payload: &'a [u8],
        checksum: Checksum,
    ) -> Content<'a> {
        Content::Transport(Packet {
            source: SocketAddr::new(self.source, source_port),
            destination: SocketAddr::new(self.destination, destination_port),
            ttl: self.ttl,
            tos: self.tos,
            without_df: self.without_df,
            ip_length: self.length,
            header,
            payload,
            ip_checksum: self.checksum,
            checksum,
        })
    }
}

fn verdict(sum: u16) -> Checksum {
    if sum == 0xffff {
        Checksum::Good
    } else {
        Checksum::Bad
    }
}

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {} ", self.source, self.destination)?;
        match &self.header {
            Header::Udp => write!(f, "UDP")?,
            Header::Tcp(tcp) => {
                let flags = [
                    (tcp.syn, 'S'),
                    (tcp.fin, 'F'),
                    (tcp.rst, 'R'),
                    (tcp.psh, 'P'),
                    (tcp.ack, '.'),
                ];
                let set: String = flags.iter().filter(|(on, _)| *on).map(|(_, c)| c).collect();
                write!(f, "TCP [{set}] seq {} ack {}", tcp.seq, tcp.ack_number)?;
            }
        }
        write!(
            f,
            " length {} (ip checksum {:?}, checksum {:?})",
            self.payload.len(),
            self.ip_checksum,
            self.checksum
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    const PAYLOAD: &[u8] = b"odd bytes";

    fn frame(bytes: Vec<u8>) -> Frame {
        Frame {
            bytes,
            checksum_ready: true,
            ..Frame::default()
        }
    }

    fn tcp_v4() -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(8000, 51820, 7, 1000)
            .psh()
            .ack(9);
        let mut bytes = Vec::new();
        builder.write(&mut bytes, PAYLOAD).unwrap();
        bytes
    }

    fn udp_v6() -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv6([1; 16], [2; 16], 64)
            .udp(8000, 51820);
        let mut bytes = Vec::new();
        builder.write(&mut bytes, PAYLOAD).unwrap();
        bytes
    }

    fn transport(frame: &Frame) -> Packet<'_> {
        match parse(frame).unwrap() {
            Content::Transport(packet) => packet,
            other => panic!("not a transport packet: {other:?}"),
        }
    }

    #[test]
    fn agrees_with_the_sums_of_etherparse() {
        for bytes in [tcp_v4(), udp_v6()] {
            let frame = frame(bytes);
            let packet = transport(&frame);
            assert_eq!(packet.checksum, Checksum::Good, "{packet}");
            assert_eq!(packet.ip_checksum, Checksum::Good, "{packet}");
            assert_eq!(packet.payload, PAYLOAD);
            assert!(packet.has_port(8000) && packet.has_port(51820));
        }
    }

    #[test]
    fn any_changed_byte_of_the_segment_is_bad() {
        let good = tcp_v4();
        for index in 34..good.len() {
            // A different data offset is another structure, not another sum.
            if index == 34 + 12 {
                continue;
            }
            let mut bytes = good.clone();
            bytes[index] ^= 0x10;
            let frame = frame(bytes);
            assert_eq!(transport(&frame).checksum, Checksum::Bad, "byte {index}");
        }
    }

    #[test]
    fn link_padding_is_not_part_of_the_segment() {
        let mut bytes = tcp_v4();
        bytes.extend([0xaa; 5]);
        let frame = frame(bytes);
        let packet = transport(&frame);
        assert_eq!(packet.payload, PAYLOAD);
        assert_eq!(packet.checksum, Checksum::Good);
    }

    #[test]
    fn an_unfinished_checksum_gets_no_verdict() {
        let mut frame = frame(tcp_v4());
        frame.checksum_ready = false;
        frame.bytes[50] ^= 0xff;
        assert_eq!(transport(&frame).checksum, Checksum::NotReady);
    }

    #[test]
    fn a_zero_udp_checksum_is_legal_over_ipv4_only() {
        let mut v6 = udp_v6();
        v6[14 + 40 + 6..14 + 40 + 8].fill(0);
        assert_eq!(transport(&frame(v6)).checksum, Checksum::Bad);

        let mut v4 = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .udp(1, 2)
            .write(&mut v4, PAYLOAD)
            .unwrap();
        v4[14 + 20 + 6..14 + 20 + 8].fill(0);
        assert_eq!(transport(&frame(v4)).checksum, Checksum::Absent);
    }

    #[test]
    fn a_fragment_is_told_apart() {
        let mut bytes = tcp_v4();
        bytes[20] |= 0x20;
        assert_eq!(parse(&frame(bytes)).unwrap(), Content::Fragment(TCP));
    }

    #[test]
    fn a_truncated_frame_is_malformed() {
        let mut bytes = tcp_v4();
        bytes.truncate(40);
        parse(&frame(bytes)).unwrap_err();
    }
}
