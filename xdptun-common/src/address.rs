//! Addresses of 16 bytes, IPv4 as v4-mapped (RFC 4291 section 2.5.5.2).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The third word of every v4-mapped address (RFC 4291 section 2.5.5.2).
const MAPPED: u32 = u32::from_ne_bytes([0, 0, 0xff, 0xff]);

/// The words of a 16-byte address as they lie in memory. Whole words, because
/// the compiler would keep sixteen single bytes apart, each in a stack slot.
#[inline(always)]
#[must_use]
pub const fn address_words(address: [u8; 16]) -> [u32; 4] {
    // SAFETY: both are sixteen bytes without invalid values.
    unsafe { core::mem::transmute(address) }
}

/// The 16 bytes of an IPv4 address.
#[inline(always)]
#[must_use]
pub const fn mapped(address: [u8; 4]) -> [u8; 16] {
    // SAFETY: as in `address_words`.
    unsafe { core::mem::transmute([0, 0, MAPPED, u32::from_ne_bytes(address)]) }
}

/// The IPv4 address in a v4-mapped one.
#[inline(always)]
#[must_use]
pub const fn unmapped(address: [u8; 16]) -> [u8; 4] {
    let [_, _, _, address] = address_words(address);
    address.to_ne_bytes()
}

/// Whether a 16-byte address is an IPv4 address.
#[inline(always)]
pub(crate) const fn is_mapped(address: [u8; 16]) -> bool {
    matches!(address_words(address), [0, 0, MAPPED, _])
}

/// Whether a 16-byte address names more than one host: no connection can be
/// held with it. (A subnet's own broadcast address cannot be told from here.)
#[inline(always)]
#[must_use]
pub const fn is_multicast_or_broadcast(address: [u8; 16]) -> bool {
    match address_words(address) {
        [0, 0, MAPPED, address] => {
            let address = u32::from_be(address);
            address >> 28 == 0xe || address == u32::MAX
        }
        [first, ..] => u32::from_be(first) >> 24 == 0xff,
    }
}

/// Whether a 16-byte address stands for none: 0.0.0.0/8, which is "this network" (RFC 1122
/// section 3.2.1.3), and `::`.
#[inline(always)]
#[must_use]
pub const fn is_unspecified(address: [u8; 16]) -> bool {
    match address_words(address) {
        [0, 0, MAPPED, address] => u32::from_be(address) >> 24 == 0,
        [0, 0, 0, 0] => true,
        _ => false,
    }
}

/// Whether a 16-byte address never leaves a host: 127.0.0.0/8 and `::1`.
#[inline(always)]
#[must_use]
pub const fn is_loopback(address: [u8; 16]) -> bool {
    match address_words(address) {
        [0, 0, MAPPED, address] => u32::from_be(address) >> 24 == 127,
        [0, 0, 0, last] => u32::from_be(last) == 1,
        _ => false,
    }
}

/// Whether a 16-byte address counts on one link only: `fe80::/10` (RFC 4291 section 2.5.6).
#[inline(always)]
#[must_use]
pub const fn is_link_local(address: [u8; 16]) -> bool {
    u32::from_be(address_words(address)[0]) >> 22 == 0xfe80 >> 6
}

/// An address for people: v4-mapped ones as IPv4.
#[must_use]
pub const fn ip_addr(address: [u8; 16]) -> IpAddr {
    match address {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => {
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        _ => IpAddr::V6(Ipv6Addr::from_octets(address)),
    }
}

/// The 16 bytes of an address, IPv4 as v4-mapped.
#[must_use]
pub const fn address_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => mapped(address.octets()),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Capacity of the `LOCAL` map, in networks.
pub const MAX_LOCAL: u32 = 65536;

/// What the kernel takes for this host itself: what the value of an address in a map stands
/// for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Local {
    /// Addresses that a connection can end at.
    Host = 1,
    /// Broadcast and anycast addresses, at which none can.
    Many = 2,
    /// What is this host's for packets that a rule chooses, as for TPROXY: connections can
    /// end there, and packets of others can come from there.
    ByRule = 3,
}

impl Local {
    /// Whether a connection can end at what a value of the map stands for.
    #[inline(always)]
    #[must_use]
    pub const fn is_end(value: u32) -> bool {
        value != Self::Many as u32
    }

    /// Whether no other host can have what a value of the map stands for.
    #[inline(always)]
    #[must_use]
    pub const fn is_own(value: u32) -> bool {
        value != Self::ByRule as u32
    }
}
