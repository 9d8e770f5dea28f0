//! UDP header to TCP header and back, without looking at the payload.
//!
//! Both checksums cover the same payload at an even offset, so one follows from
//! the other by the difference of headers and pseudo-headers: O(1).

use crate::checksum::Sum;
use crate::tunnel::window::{is_without_df, with_df};
use crate::wire::{Flags, Ip, IpVersion, Protocol, TcpFields, TcpHeader, UdpHeader};

/// How much longer a TCP header is than a UDP header: the cost of the disguise, in bytes.
pub const GROWTH: usize = TcpHeader::LEN - UdpHeader::LEN;

/// The fields of a segment that a datagram does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgment: u32,
    /// Window field; [`disguise`] sets the bit that tells of DF.
    pub window: u16,
}

/// What is known of the payload.
#[derive(Clone, Copy, Debug)]
pub enum PayloadSum {
    /// The UDP checksum is complete, and so speaks for the payload.
    InUdpChecksum,
    /// The payload was added up.
    Known(Sum),
}

/// The IP and TCP headers that replace those of a datagram. `ip` and `udp` must
/// be those of the datagram, `udp.length()` its true length.
///
/// The segment has DF, as those of TCP with path MTU discovery (RFC 1191); its window says
/// whether the datagram had. Its PSH keeps it apart: a receiver's GRO begins no merged segment with
/// one that has PSH, and ends one with it (`tcp_gro_receive`). A merged segment would be several
/// datagrams in one. A [veil](super::veil::pushes) takes PSH off most long ones.
#[inline(always)]
#[must_use]
pub fn disguise<I: Ip>(
    ip: I,
    udp: UdpHeader,
    payload: PayloadSum,
    numbers: Numbers,
) -> (I, TcpHeader) {
    let tcp_len = udp.length().wrapping_add(GROWTH as u16);
    let header = TcpHeader::new(TcpFields {
        source: udp.source(),
        destination: udp.destination(),
        sequence: numbers.sequence,
        acknowledgment: numbers.acknowledgment,
        flags: Flags::PSH.with(Flags::ACK),
        window: with_df(numbers.window, ip.has_df()),
        options_len: 0,
    });
    let sum = match payload {
        PayloadSum::Known(sum) => header
            .sum()
            .combine(sum)
            .combine(ip.pseudo_header(Protocol::TCP, tcp_len)),
        PayloadSum::InUdpChecksum => {
            // Addresses and ports are in both sums. What UDP adds and TCP does
            // not: its protocol number, and its length twice (pseudo-header
            // and header).
            let datagram = Sum::of_checksum(udp.checksum())
                .without_number(u16::from(Protocol::UDP.0))
                .without_number(udp.length())
                .without_number(udp.length())
                .without_number(udp.source())
                .without_number(udp.destination());
            datagram
                .combine(header.sum())
                .number(u16::from(Protocol::TCP.0))
                .number(tcp_len)
        }
    };
    (
        ip.with_payload(Protocol::TCP, tcp_len).with_df(true),
        header.with_checksum(sum.checksum()),
    )
}

/// The IP and UDP headers that replace those of a segment. `len` is the length
/// of the TCP header, options and payload in bytes; `options` is the sum of the
/// options. `None` if the data offset is impossible.
///
/// The checksum of the datagram is right exactly if that of the segment was, so
/// damage on the way is found by the UDP stack. A datagram that was sent
/// without a checksum arrives with one.
#[inline(always)]
#[must_use]
pub fn restore<I: Ip>(ip: I, tcp: TcpHeader, len: usize, options: Sum) -> Option<(I, UdpHeader)> {
    let header_len = tcp.header_len();
    if header_len < TcpHeader::LEN || header_len > len {
        return None;
    }
    let tcp_len = len as u16;
    let udp_len = (len - header_len + UdpHeader::LEN) as u16;
    let header = UdpHeader::new(tcp.source(), tcp.destination(), udp_len, [0; 2]);
    // The payload is what the checksum covers beyond header and options.
    let payload = Sum::of_checksum(tcp.checksum())
        .without(tcp.with_checksum([0; 2]).sum())
        .without(options)
        .without_number(u16::from(Protocol::TCP.0))
        .without_number(tcp_len);
    let checksum = payload
        .number(tcp.source())
        .number(tcp.destination())
        .number(udp_len)
        .number(u16::from(Protocol::UDP.0))
        .number(udp_len)
        .udp_checksum();
    let ip = ip.with_payload(Protocol::UDP, udp_len);
    Some((
        if is_without_df(tcp.window()) {
            ip.with_df(false)
        } else {
            ip
        },
        header.with_checksum(checksum),
    ))
}

/// By how much less the IP header of a datagram adds up to than that of its segment, whose TCP
/// header and options are `by` bytes longer than a UDP header. That of IPv4 adds up to the same
/// whatever it says, as its checksum follows.
#[inline(always)]
pub const fn lost_by_ip<I: Ip>(by: u16) -> Sum {
    let (tcp, udp) = (Protocol::TCP.0, Protocol::UDP.0);
    match I::VERSION {
        IpVersion::V4 => Sum::new(),
        IpVersion::V6 => Sum::new().number(by).word([tcp, 0]).without_word([udp, 0]),
    }
}
