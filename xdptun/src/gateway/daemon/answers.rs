//! Messages to senders whose packets the programs refused: they would wait in vain.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol as SocketProtocol, Socket, Type};
use xdptun_common::address::{ip_addr, is_multicast_or_broadcast, is_unspecified};
use xdptun_common::bytes_of;
use xdptun_common::checksum::Sum;
use xdptun_common::parse::{Bytes as _, Located, Shape, locate};
use xdptun_common::wire::{
    Flags, Icmp, IcmpHeader, Ip, Ipv4Header, Ipv6Header, Protocol, TcpFields, TcpHeader,
};

/// A packet of ours, and where it goes.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    to: IpAddr,
    packet: Vec<u8>,
}

/// Sockets that send whole packets. The kernel routes them, and netfilter sees them.
pub struct Answers {
    v4: Socket,
    v6: Option<Socket>,
}

impl Answers {
    /// Opens the sockets. A host may have no IPv6.
    ///
    /// # Errors
    ///
    /// If the kernel refuses (CAP_NET_RAW).
    pub fn new() -> io::Result<Self> {
        // They never receive. The protocol says that packets have their IP header (raw(7), ipv6(7)).
        let raw = Some(SocketProtocol::from(libc::IPPROTO_RAW));
        // The process must not wait: answers to inside addresses that nobody has fill the buffer of
        // the socket as long as the kernel looks for their neighbours.
        let open = |domain| Socket::new(domain, Type::RAW.nonblocking(), raw);
        Ok(Self {
            v4: open(Domain::IPV4)?,
            v6: open(Domain::IPV6).ok(),
        })
    }

    /// Sends an answer.
    ///
    /// # Errors
    ///
    /// If the kernel does not take it: no route leads to the sender, or too many answers wait.
    pub fn send(&self, answer: &Answer) -> io::Result<()> {
        let socket = match (answer.to, &self.v6) {
            (IpAddr::V4(_), _) => &self.v4,
            (IpAddr::V6(_), Some(socket)) => socket,
            (IpAddr::V6(_), None) => return Ok(()),
        };
        let to = SocketAddr::new(answer.to, 0);
        socket.send_to(&answer.packet, &to.into()).map(|_| ())
    }
}

/// The bytes that an error quotes at most: all of it is 576 bytes long then (RFC 1812 section
/// 4.3.2.3).
const QUOTE: usize = 576 - Ipv4Header::LEN - IcmpHeader::LEN;

/// The ICMP error that says that the packet at `link_len` in a frame was not let through
/// (RFC 5508 REQ-8); `None` if none is sent about it (RFC 1122 section 3.2.2).
pub fn prohibited(frame: &[u8], link_len: usize) -> Option<Answer> {
    let located = locate::<Ipv4Header>(frame, link_len)?;
    let ip = located.ip;
    if !may_be_answered(&located) || is_multicast_or_broadcast(ip.destination()) {
        return None;
    }
    if located.protocol == Protocol::ICMP {
        let icmp: IcmpHeader = frame.read(located.offset)?;
        icmp.echo()?;
    }
    let quoted = frame.get(link_len..)?;
    let quoted = &quoted[..quoted.len().min(QUOTE)];
    let header = Ipv4Header::prohibited();
    let sum = Sum::new().bytes(bytes_of(&header)).bytes(quoted);
    let header = header.with_checksum(sum.checksum());
    let len = (IcmpHeader::LEN + quoted.len()) as u16;
    // The kernel puts its own address in the place of zeros.
    let answer = Ipv4Header::bare(UNSPECIFIED, ip.source(), Protocol::ICMP, len);
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
    // Each takes packets of its version alone.
    reset_of::<Ipv4Header>(frame, link_len).or_else(|| reset_of::<Ipv6Header>(frame, link_len))
}

fn reset_of<I: Icmp>(frame: &[u8], link_len: usize) -> Option<Answer> {
    let located = locate::<I>(frame, link_len)?;
    if !may_be_answered(&located) || located.protocol != Protocol::TCP {
        return None;
    }
    let segment: TcpHeader = frame.read(located.offset)?;
    let header = TcpHeader::new(fields_of_reset(&segment, located.len)?);
    let ip = located.ip;
    let len = TcpHeader::LEN as u16;
    let answer = I::bare(ip.destination(), ip.source(), Protocol::TCP, len);
    let sum = answer.pseudo_header(Protocol::TCP, len);
    let header = header.with_checksum(sum.bytes(bytes_of(&header)).checksum());
    Some(Answer {
        to: ip_addr(ip.source()),
        packet: [bytes_of(&answer), bytes_of(&header)].concat(),
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
        Icmpv4Type, NetSlice, PacketBuilder, SlicedPacket, TransportSlice,
        icmpv4::DestUnreachableHeader,
    };

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
        assert_eq!(icmp.payload(), &refused[14..14 + QUOTE]);
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
    }
}
