//! Where IPv6-only clients find IPv4 addresses.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The well-known prefix with an IPv4 address behind it (RFC 6052 section 2.1).
#[must_use]
pub fn behind_prefix(address: Ipv4Addr) -> Ipv6Addr {
    let [a, b, c, d] = address.octets().map(u16::from);
    Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a << 8 | b, c << 8 | d)
}
