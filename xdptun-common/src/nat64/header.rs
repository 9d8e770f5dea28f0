//! IP headers (RFC 7915 sections 4.1 and 5.1).

use crate::wire::{FragmentHeader, Ip, IpFields, Ipv4Header, Ipv6Header, Part, Protocol};

/// The largest IPv4 packet that may be fragmented on its way: behind a path that takes no larger
/// one, an IPv6 host sends the smallest that IPv6 has, 1280 bytes, and expects them to pass.
const MAY_BE_FRAGMENTED: u16 = 1260;

/// The IPv4 header of a packet of IPv6 with this header, from and to `addresses`, whose transport
/// `protocol` and `payload_len` bytes stand behind all extension headers. A fragment is the part
/// that its fragment header says. Others get this `identification` if they may be fragmented. `None` if the
/// packet is longer than IPv4 has numbers for.
#[inline(always)]
#[must_use]
pub fn to_v4(
    header: &Ipv6Header,
    addresses: [[u8; 16]; 2],
    protocol: Protocol,
    payload_len: u16,
    part: Option<Part>,
    identification: u16,
) -> Option<Ipv4Header> {
    let [source, destination] = addresses;
    let protocol = match protocol {
        Protocol::ICMPV6 => Protocol::ICMP,
        other => other,
    };
    let len = payload_len.checked_add(Ipv4Header::LEN as u16)?;
    let bare = Ipv4Header::bare(source, destination, protocol, payload_len);
    let fields = IpFields {
        // Zero is right where fragmentation is forbidden (RFC 6864 section 4.1).
        identification: 0,
        ..header.fields()
    };
    let whole = bare.with_fields(fields);
    Some(match part {
        Some(part) => whole.with_part(protocol, part, payload_len),
        None if len <= MAY_BE_FRAGMENTED => fragmentable(whole, identification),
        None => whole.with_df(true),
    })
}

/// The header of a super-packet whose segments are packets of `len` bytes each: what their header
/// would be, they get from it.
#[inline(always)]
#[must_use]
pub fn of_segments(whole: Ipv4Header, len: u32, identification: u16) -> Ipv4Header {
    match len <= MAY_BE_FRAGMENTED.into() {
        true => fragmentable(whole, identification),
        false => whole,
    }
}

/// The header of a packet that may be fragmented on its way.
#[inline(always)]
#[must_use]
pub fn fragmentable(whole: Ipv4Header, identification: u16) -> Ipv4Header {
    let fields = IpFields {
        identification,
        ..whole.fields()
    };
    whole.with_fields(fields).with_df(false)
}

/// The IPv6 header of a packet of IPv4 with this header, from and to `addresses`, and the fragment
/// header behind it if the packet is a fragment. `None` if the length contradicts itself. Options
/// are left out; the flow label is zero.
#[inline(always)]
#[must_use]
pub fn to_v6(
    header: &Ipv4Header,
    addresses: [[u8; 16]; 2],
) -> Option<(Ipv6Header, Option<FragmentHeader>)> {
    let [source, destination] = addresses;
    let protocol = match header.protocol() {
        Protocol::ICMP => Protocol::ICMPV6,
        other => other,
    };
    let fragment = header
        .part()
        .map(|part| FragmentHeader::new(protocol, part));
    let (next, extra) = match fragment {
        Some(_) => (Protocol::IPV6_FRAGMENT, FragmentHeader::LEN),
        None => (protocol, 0),
    };
    let payload_len = u16::try_from(header.payload_len()? + extra).ok()?;
    let bare = Ipv6Header::bare(source, destination, next, payload_len);
    Some((bare.with_fields(header.fields()), fragment))
}
