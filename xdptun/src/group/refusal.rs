//! Answers to senders whose packets the programs refused: they would wait in vain.

use std::net::IpAddr;

use xdptun_common::address::{ip_addr, is_multicast_or_broadcast, is_unspecified};
use xdptun_common::bytes_of;
use xdptun_common::parse::{Bytes as _, Located, Shape, locate};
use xdptun_common::wire::{
    Flags, Icmp, IcmpHeader, Ip, IpVersion, Ipv4Header, Ipv6Header, Protocol, TcpFields, TcpHeader,
};

/// A packet of ours, and where it goes.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// The address.
    pub to: IpAddr,
    /// The packet, from its IP header.
    pub packet: Vec<u8>,
}

/// The bytes that an error quotes at most: all of it is 576 bytes long then (RFC 1812 section
/// 4.3.2.3), over IPv6 1280 (RFC 4443 section 2.4 (c)).
const fn quote<I: Ip>() -> usize {
    let longest = match I::VERSION {
        IpVersion::V4 => 576,
        IpVersion::V6 => 1280,
    };
    longest - I::LEN - IcmpHeader::LEN
}

/// The ICMP error that says that the IPv4 packet at `link_len` in a frame was not let through
/// (RFC 5508 REQ-8), from an address that the kernel chooses; `None` if none is sent about it (RFC
/// 1122 section 3.2.2).
pub fn prohibited(frame: &[u8], link_len: usize) -> Option<Answer> {
    // The kernel puts its own address in the place of zeros.
    prohibited_by::<Ipv4Header>(frame, link_len, |_| UNSPECIFIED)
}

/// The same about a packet of either version of IP, as from the end that it was sent to.
pub fn prohibited_there(frame: &[u8], link_len: usize) -> Option<Answer> {
    // Each takes packets of its version alone.
    prohibited_by::<Ipv4Header>(frame, link_len, Ip::destination)
        .or_else(|| prohibited_by::<Ipv6Header>(frame, link_len, Ip::destination))
}

fn prohibited_by<I: Icmp>(
    frame: &[u8],
    link_len: usize,
    source: impl FnOnce(&I) -> [u8; 16],
) -> Option<Answer> {
    let located = locate::<I>(frame, link_len)?;
    let ip = located.ip;
    if !may_be_answered(&located) || is_multicast_or_broadcast(ip.destination()) {
        return None;
    }
    if located.protocol == I::ICMP {
        let icmp: IcmpHeader = frame.read(located.offset)?;
        icmp.echo()?;
    }
    let quoted = frame.get(link_len..)?;
    let quoted = &quoted[..quoted.len().min(quote::<I>())];
    let len = (IcmpHeader::LEN + quoted.len()) as u16;
    let answer = I::bare(source(&ip), ip.source(), I::ICMP, len);
    let header = I::prohibited();
    let sum = answer.icmp_pseudo_header(len);
    let sum = sum.bytes(bytes_of(&header)).bytes(quoted);
    let header = header.with_checksum(sum.checksum());
    Some(Answer {
        to: ip_addr(ip.source()),
        packet: [bytes_of(&answer), bytes_of(&header), quoted].concat(),
    })
}

/// 0.0.0.0, v4-mapped.
const UNSPECIFIED: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0];

/// The RST that answers the TCP segment at `link_len` in a frame, as from the end that it was sent
/// to (RFC 9293 section 3.10.7.1); `None` if none is due.
pub fn reset(frame: &[u8], link_len: usize) -> Option<Answer> {
    let of = |segment: &TcpHeader, len| fields_of_reset(segment, len);
    reset_of::<Ipv4Header>(frame, link_len, Way::Back, of)
        .or_else(|| reset_of::<Ipv6Header>(frame, link_len, Way::Back, of))
}

/// The RST that the end gets that such a segment was sent to, as from its sender, in the place of
/// the segment: with its number, which that end expects if the segment is the next (RFC 5961
/// section 3.2; it asks the sender otherwise, and that has got a RST as well).
pub fn reset_ahead(frame: &[u8], link_len: usize) -> Option<Answer> {
    let of = |segment: &TcpHeader, _| fields_of_reset_ahead(segment);
    reset_of::<Ipv4Header>(frame, link_len, Way::On, of)
        .or_else(|| reset_of::<Ipv6Header>(frame, link_len, Way::On, of))
}

/// Where an answer goes.
#[derive(Clone, Copy)]
enum Way {
    /// To the sender.
    Back,
    /// To the receiver.
    On,
}

fn reset_of<I: Icmp>(
    frame: &[u8],
    link_len: usize,
    way: Way,
    fields: impl FnOnce(&TcpHeader, usize) -> Option<TcpFields>,
) -> Option<Answer> {
    let located = locate::<I>(frame, link_len)?;
    if !may_be_answered(&located)
        || is_multicast_or_broadcast(located.ip.destination())
        || located.protocol != Protocol::TCP
    {
        return None;
    }
    let segment: TcpHeader = frame.read(located.offset)?;
    let header = TcpHeader::new(fields(&segment, located.len)?);
    let ends = [located.ip.source(), located.ip.destination()];
    let [from, to] = match way {
        Way::Back => [ends[1], ends[0]],
        Way::On => ends,
    };
    let len = TcpHeader::LEN as u16;
    let answer = I::bare(from, to, Protocol::TCP, len);
    let sum = answer.pseudo_header(Protocol::TCP, len);
    let header = header.with_checksum(sum.bytes(bytes_of(&header)).checksum());
    Some(Answer {
        to: ip_addr(to),
        packet: [bytes_of(&answer), bytes_of(&header)].concat(),
    })
}

/// The RST for the receiver of a segment.
fn fields_of_reset_ahead(segment: &TcpHeader) -> Option<TcpFields> {
    let flags = segment.flags();
    if flags.contains(Flags::RST) {
        return None;
    }
    let (acknowledgment, flags) = match flags.contains(Flags::ACK) {
        true => (segment.acknowledgment(), Flags::RST.with(Flags::ACK)),
        false => (0, Flags::RST),
    };
    Some(TcpFields {
        source: segment.source(),
        destination: segment.destination(),
        sequence: segment.sequence(),
        acknowledgment,
        flags,
        window: 0,
        options_len: 0,
    })
}

/// The RST for a segment of `len` bytes, header included.
fn fields_of_reset(segment: &TcpHeader, len: usize) -> Option<TcpFields> {
    let flags = segment.flags();
    if flags.contains(Flags::RST) {
        return None;
    }
    let counts = [Flags::SYN, Flags::FIN].map(|flag| u32::from(flags.contains(flag)));
    let data = len.checked_sub(segment.header_len())? as u32;
    let after = segment
        .sequence()
        .wrapping_add(data + counts[0] + counts[1]);
    let (sequence, acknowledgment, flags) = match flags.contains(Flags::ACK) {
        true => (segment.acknowledgment(), 0, Flags::RST),
        false => (0, after, Flags::RST.with(Flags::ACK)),
    };
    Some(TcpFields {
        source: segment.destination(),
        destination: segment.source(),
        sequence,
        acknowledgment,
        flags,
        window: 0,
        options_len: 0,
    })
}

/// Whether the sender of a packet may be told something: it is one host, and the packet is not in
/// the middle of a datagram.
fn may_be_answered<I: Ip>(located: &Located<I>) -> bool {
    let source = located.ip.source();
    located.shape != Shape::LaterFragment
        && !is_multicast_or_broadcast(source)
        && !is_unspecified(source)
}

#[cfg(test)]
mod tests {
    use etherparse::{
        Icmpv4Type, Icmpv6Type, NetSlice, PacketBuilder, SlicedPacket, TransportSlice,
        icmpv4::DestUnreachableHeader, icmpv6,
    };

    use xdptun_common::checksum::Sum;

    use super::*;

    const INSIDE: [u8; 4] = [192, 168, 7, 11];
    const REMOTE: [u8; 4] = [198, 51, 100, 1];

    fn frame(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut frame = Vec::new();
        write(&mut frame);
        frame
    }

    fn datagram(from: [u8; 4], to: [u8; 4], payload: &[u8]) -> Vec<u8> {
        let packet = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4(from, to, 63);
        frame(|frame| packet.udp(5000, 53).write(frame, payload).unwrap())
    }

    fn segment(flags: Flags, payload: &[u8]) -> Vec<u8> {
        let packet = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4(INSIDE, REMOTE, 63);
        let mut tcp = packet.tcp(5000, 80, 1000, 4096);
        if flags.contains(Flags::SYN) {
            tcp = tcp.syn();
        }
        if flags.contains(Flags::FIN) {
            tcp = tcp.fin();
        }
        if flags.contains(Flags::RST) {
            tcp = tcp.rst();
        }
        if flags.contains(Flags::ACK) {
            tcp = tcp.ack(7777);
        }
        frame(|frame| tcp.write(frame, payload).unwrap())
    }

    #[test]
    fn an_error_quotes_the_packet() {
        let refused = datagram(INSIDE, REMOTE, &[9; 600]);
        let answer = prohibited(&refused, 14).unwrap();
        assert_eq!(answer.to, IpAddr::from(INSIDE));
        assert_eq!(answer.packet.len(), 576);
        let sliced = SlicedPacket::from_ip(&answer.packet).unwrap();
        let Some(TransportSlice::Icmpv4(icmp)) = sliced.transport else {
            panic!("{sliced:?}");
        };
        let expected = Icmpv4Type::DestinationUnreachable(DestUnreachableHeader::FilterProhibited);
        assert_eq!(icmp.icmp_type(), expected);
        assert_eq!(icmp.payload(), &refused[14..14 + quote::<Ipv4Header>()]);
        let sum = Sum::new().bytes(icmp.slice());
        assert_eq!(sum.checksum(), [0; 2]);
    }

    #[test]
    fn nobody_is_told_of_what_many_get_or_of_errors() {
        for (from, to) in [
            (INSIDE, [224, 0, 0, 251]),
            (INSIDE, [255; 4]),
            ([0; 4], REMOTE),
            ([255; 4], REMOTE),
        ] {
            let refused = datagram(from, to, b"hello");
            assert_eq!(prohibited(&refused, 14), None, "{from:?} {to:?}");
        }
        let packet = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4(INSIDE, REMOTE, 63);
        let unreachable = Icmpv4Type::DestinationUnreachable(DestUnreachableHeader::Port);
        let error = frame(|frame| packet.icmpv4(unreachable).write(frame, &[0; 28]).unwrap());
        assert_eq!(prohibited(&error, 14), None);
        let packet = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4(INSIDE, REMOTE, 63);
        let echo = packet.icmpv4_echo_request(1, 1);
        let echo = frame(|frame| echo.write(frame, b"ping").unwrap());
        assert!(prohibited(&echo, 14).is_some());
        assert_eq!(prohibited(&echo[..30], 14), None, "cut short");
    }

    #[test]
    fn a_reset_has_the_number_that_the_segment_asks_for() {
        for (flags, payload, expected) in [
            (Flags::ACK, &b""[..], (7777, 0, false)),
            (Flags::ACK.with(Flags::FIN), b"data", (7777, 0, false)),
            (Flags::SYN, b"", (0, 1001, true)),
            (Flags(0), b"data", (0, 1004, true)),
            (Flags::FIN, b"data", (0, 1005, true)),
        ] {
            let answer = reset(&segment(flags, payload), 14).unwrap();
            let sliced = SlicedPacket::from_ip(&answer.packet).unwrap();
            let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Tcp(tcp))) =
                (sliced.net, sliced.transport)
            else {
                panic!("{answer:?}");
            };
            let ends = (ip.header().source(), ip.header().destination());
            assert_eq!(ends, (REMOTE, INSIDE));
            assert_eq!((tcp.source_port(), tcp.destination_port()), (80, 5000));
            let numbers = (
                tcp.sequence_number(),
                tcp.acknowledgment_number(),
                tcp.ack(),
            );
            assert!(tcp.rst());
            assert_eq!(numbers, expected, "{flags:?}");
            let sum = tcp.calc_checksum_ipv4(REMOTE, INSIDE).unwrap();
            assert_eq!(tcp.checksum(), sum);
        }
        assert_eq!(reset(&segment(Flags::RST, b""), 14), None);
        assert_eq!(reset(&datagram(INSIDE, REMOTE, b"hello"), 14), None);
        for many in [[224, 0, 0, 1], [255; 4]] {
            let mut to_many = segment(Flags::ACK, b"data");
            to_many[30..34].copy_from_slice(&many);
            assert_eq!(reset(&to_many, 14), None);
            assert_eq!(reset_ahead(&to_many, 14), None);
        }
    }

    /// The receiver takes the RST in the place of the segment, so with its number.
    #[test]
    fn the_receiver_gets_a_reset_with_the_number_of_the_segment() {
        for (flags, expected) in [
            (Flags::ACK, (1000, 7777, true)),
            (Flags::SYN, (1000, 0, false)),
        ] {
            let answer = reset_ahead(&segment(flags, b"data"), 14).unwrap();
            assert_eq!(answer.to, IpAddr::from(REMOTE));
            let sliced = SlicedPacket::from_ip(&answer.packet).unwrap();
            let Some(TransportSlice::Tcp(tcp)) = sliced.transport else {
                panic!("{answer:?}");
            };
            let ports = (tcp.source_port(), tcp.destination_port());
            let numbers = (
                tcp.sequence_number(),
                tcp.acknowledgment_number(),
                tcp.ack(),
            );
            assert_eq!((ports, tcp.rst()), ((5000, 80), true));
            assert_eq!(numbers, expected, "{flags:?}");
            let sum = tcp.calc_checksum_ipv4(INSIDE, REMOTE).unwrap();
            assert_eq!(tcp.checksum(), sum);
        }
        assert_eq!(reset_ahead(&segment(Flags::RST, b""), 14), None);
    }

    #[test]
    fn an_error_over_ipv6_comes_from_where_the_packet_went() {
        let [from, to] = [[0xfd; 16], [0xfc; 16]];
        let packet = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv6(from, to, 63);
        let refused = frame(|frame| packet.udp(5000, 53).write(frame, &[9; 1300]).unwrap());
        let answer = prohibited_there(&refused, 14).unwrap();
        assert_eq!(answer.packet.len(), 1280);
        let sliced = SlicedPacket::from_ip(&answer.packet).unwrap();
        let (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(icmp))) =
            (sliced.net, sliced.transport)
        else {
            panic!("{answer:?}");
        };
        let ends = (ip.header().source(), ip.header().destination());
        assert_eq!(ends, (to, from));
        let expected = Icmpv6Type::DestinationUnreachable(icmpv6::DestUnreachableCode::Prohibited);
        assert_eq!(icmp.icmp_type(), expected);
        assert!(icmp.is_checksum_valid(to, from));
        let answer = prohibited_there(&datagram(INSIDE, REMOTE, b"hello"), 14).unwrap();
        let sliced = SlicedPacket::from_ip(&answer.packet).unwrap();
        let Some(NetSlice::Ipv4(ip)) = sliced.net else {
            panic!("{answer:?}");
        };
        assert_eq!(ip.header().source(), REMOTE);
    }
}
