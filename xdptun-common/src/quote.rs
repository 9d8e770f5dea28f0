//! The packet that an ICMP error quotes.
//!
//! As lenient as the kernel, which looks at little more than addresses, protocol and ports
//! (`icmp_unreach`, `icmpv6_notify`): an error that the kernel would act on must not escape
//! because its quote is unusual.

use crate::parse::{Bytes, Chains, Shape, is_extension};
use crate::wire::{Ip, IpVersion, Protocol};

/// The start of a packet, as an error quotes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quote<I> {
    /// The fixed IP header.
    pub ip: I,
    /// The transport protocol; an IPv6 extension header if there are more of these than
    /// any host sends.
    pub protocol: Protocol,
    /// Where the transport header starts, in bytes from the start of the message's packet.
    pub offset: usize,
    /// How long the transport header and its payload were by the IP header, in bytes; 0
    /// if the header contradicts itself.
    pub len: usize,
    /// How long the IP packet was by its header, in bytes.
    pub ip_len: usize,
}

/// Reads the quote that starts at `at`; `None` if the kernel acts upon it in a
/// redirect at most.
#[inline(always)]
pub fn quoted<I: Ip>(packet: &(impl Chains + ?Sized), at: usize) -> Option<Quote<I>> {
    let ip: I = packet.read(at)?;
    let header_len = ip.header_len();
    if header_len < I::LEN || !ip.has_own_addresses() {
        return None;
    }
    let (protocol, payload_len) = (ip.protocol(), ip.payload_len().unwrap_or(0));
    let whole = Quote {
        ip,
        protocol,
        offset: at + header_len,
        len: payload_len,
        ip_len: header_len + payload_len,
    };
    if !matches!(I::VERSION, IpVersion::V6) || !is_extension(protocol) {
        return Some(whole);
    }
    let chain = packet.follow(whole.offset, protocol)?;
    // The kernel looks for the protocol behind the headers of a first fragment only.
    if matches!(chain.shape, Shape::LaterFragment) {
        return None;
    }
    Some(Quote {
        protocol: chain.protocol,
        offset: whole.offset + chain.len,
        len: payload_len.saturating_sub(chain.len),
        ..whole
    })
}

/// Where the packet starts that the IPv6 redirect at `at` quotes, in an option; the link address of
/// the target may stand before it (RFC 4861 section 4.5).
#[inline(always)]
pub fn redirected(packet: &(impl Bytes + ?Sized), at: usize) -> Option<usize> {
    /// Behind the header and two addresses.
    const OPTIONS: usize = 40;
    const REDIRECTED_HEADER: u8 = 4;
    let first = at + OPTIONS;
    let [kind, words]: [u8; 2] = packet.read(first)?;
    let option = match kind {
        REDIRECTED_HEADER => first,
        _ => first + usize::from(words) * 8,
    };
    let kind: u8 = packet.read(option)?;
    (kind == REDIRECTED_HEADER).then_some(option + 8)
}
