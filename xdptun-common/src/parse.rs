//! Where the transport segment of a packet is, and what stands in its way.

use crate::flow::FlowKey;
use crate::wire::{Bytes, Fragment, Ip, Protocol};

/// How many IPv6 extension headers are followed. RFC 8200 names six, each of
/// which should occur once; a longer chain counts as a protocol of its own.
const MAX_EXTENSIONS: usize = 8;

/// A transport segment inside an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<I> {
    /// The fixed IP header.
    pub ip: I,
    /// The transport protocol, behind IPv6 extension headers if there are any.
    pub protocol: Protocol,
    /// Where the transport header starts, in bytes from the start of the packet.
    pub offset: usize,
    /// How long the transport header and its payload are by the IP header, in
    /// bytes. Padding of a short Ethernet frame is not in it.
    pub len: usize,
    /// What stands between the IP header and the transport header.
    pub shape: Shape,
}

/// Whether a packet is the plain case that the translation handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The transport header follows the fixed IP header.
    Plain,
    /// IPv4 options or IPv6 extension headers stand before it.
    Options,
    /// The first fragment of a datagram: ports, but not the whole payload.
    FirstFragment,
    /// A later fragment: no ports, so it cannot be told whose it is.
    LaterFragment,
}

/// Finds the transport segment of the IP packet at offset `l3`; `None` if there
/// is no valid IP header of version `I`.
#[inline(always)]
pub fn locate<I: Ip>(packet: &(impl Bytes + ?Sized), l3: usize) -> Option<Located<I>> {
    let ip: I = packet.read(l3)?;
    if !ip.is_valid() {
        return None;
    }
    let header_len = ip.header_len();
    let protocol = ip.protocol();
    let shape = match ip.fragment() {
        Some(Fragment::First) => Shape::FirstFragment,
        Some(Fragment::Later) => Shape::LaterFragment,
        None if header_len == I::LEN => Shape::Plain,
        None => Shape::Options,
    };
    let plain = Located {
        ip,
        protocol,
        offset: l3 + header_len,
        len: ip.payload_len()?,
        shape,
    };
    if matches!(I::VERSION, crate::wire::IpVersion::V6)
        && (protocol.is_ipv6_extension() || protocol == Protocol::IPV6_FRAGMENT)
    {
        return follow_extensions(packet, plain);
    }
    Some(plain)
}

/// Follows IPv6 extension headers from `located.offset` to the transport header.
#[inline(always)]
fn follow_extensions<I: Ip>(
    packet: &(impl Bytes + ?Sized),
    mut located: Located<I>,
) -> Option<Located<I>> {
    located.shape = Shape::Options;
    for _ in 0..MAX_EXTENSIONS {
        let [next, len, high, low]: [u8; 4] = packet.read(located.offset)?;
        let header_len = match located.protocol {
            Protocol::IPV6_FRAGMENT => {
                // RFC 8200 section 4.5: 13 bits of offset, two reserved, one "more".
                let field = u16::from_be_bytes([high, low]);
                if field & !0x7 != 0 {
                    located.shape = Shape::LaterFragment;
                } else if field & 1 != 0 {
                    located.shape = Shape::FirstFragment;
                }
                8
            }
            // The authentication header counts in words, less two (RFC 4302 section 2.2).
            Protocol(51) => (usize::from(len) + 2) * 4,
            // All others in units of eight bytes, less one.
            protocol if protocol.is_ipv6_extension() => (usize::from(len) + 1) * 8,
            _ => return Some(located),
        };
        located.protocol = Protocol(next);
        located.offset += header_len;
        located.len = located.len.checked_sub(header_len)?;
        if matches!(located.shape, Shape::LaterFragment) {
            return Some(located);
        }
    }
    Some(located)
}

impl<I: Ip> Located<I> {
    /// The ports, which UDP and TCP have at the same place: source, destination.
    #[inline(always)]
    pub fn ports(&self, packet: &(impl Bytes + ?Sized)) -> Option<(u16, u16)> {
        let [s0, s1, d0, d1] = packet.read::<u32>(self.offset)?.to_ne_bytes();
        Some((u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1])))
    }

    /// The flow of a packet that this host sends.
    #[inline(always)]
    #[must_use]
    pub fn outbound(&self, (source, destination): (u16, u16)) -> FlowKey {
        FlowKey::from_parts(self.ip.source(), source, self.ip.destination(), destination)
    }

    /// The flow of a packet that this host receives.
    #[inline(always)]
    #[must_use]
    pub fn inbound(&self, (source, destination): (u16, u16)) -> FlowKey {
        FlowKey::from_parts(self.ip.destination(), destination, self.ip.source(), source)
    }
}
