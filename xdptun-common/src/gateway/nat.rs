//! What `nat` translates: NAPT44, whose terms are those of RFC 4787.
//!
//! An *inside* host sends from an address that counts only behind this host. Each of its ends, an
//! address and a port, is *bound* to an *outside* end, an address of this host and one of the
//! ports that it lends: the same for all that the inside end sends to (endpoint-independent
//! mapping, RFC 4787 REQ-1).

use core::net::Ipv4Addr;

use crate::address::{address_words, is_mapped};
use crate::flow::tick::Tick;
use crate::gateway::tuple::End;
use crate::wire::Protocol;

/// Which packets from outside reach an inside end that is bound (RFC 4787 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Filtering {
    /// Those of everybody.
    #[default]
    EndpointIndependent = 0,
    /// Those of addresses and ports that the inside end has sent to.
    AddressAndPortDependent = 1,
}

crate::from_raw! {
    Filtering: u32 {
        EndpointIndependent, AddressAndPortDependent
    } else AddressAndPortDependent
}

impl Filtering {
    /// Its name, in the words of RFC 4787.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EndpointIndependent => "endpoint-independent",
            Self::AddressAndPortDependent => "address-and-port-dependent",
        }
    }
}

/// How many inside networks an interface may have.
pub const MAX_INSIDE: usize = 16;

/// What an interface translates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Nat {
    /// The address that inside hosts get outside, 16 bytes; zeros if there is none now.
    pub outside: [u8; 16],
    /// The first and the last port that it lends.
    pub ports: [u16; 2],
    /// A [`Filtering`].
    pub filtering: u32,
    /// How many ends of one inside host may be bound at once.
    pub max_per_host: u32,
    /// Ranges of ports that it does not lend although they are among [`Nat::ports`], as the tunnel
    /// has them: the first and the last of each.
    pub reserved: [[u16; 2]; MAX_RESERVED],
    /// The inside networks.
    pub inside: [Network; MAX_INSIDE],
    /// The pool of NAT64, if it is among them: nobody outside has a way to its addresses.
    pub pool: Network,
}

crate::plain!(Nat: 228);

/// How many ranges of ports may be reserved.
pub const MAX_RESERVED: usize = 16;

/// No range of ports.
pub const NO_RANGES: [[u16; 2]; MAX_RESERVED] = [[1, 0]; MAX_RESERVED];

impl Nat {
    /// Whether an address is one of an inside host. The outside address is none, even if it lies in
    /// an inside network: it is this host's.
    #[inline(always)]
    #[must_use]
    pub fn is_inside(&self, address: [u8; 16]) -> bool {
        let [.., last] = address_words(address);
        is_mapped(address)
            && address != self.outside
            && self.inside.iter().any(|network| network.contains(last))
    }

    /// Whether an address is one of the pool.
    #[inline(always)]
    #[must_use]
    pub fn is_of_pool(&self, address: [u8; 16]) -> bool {
        let [.., last] = address_words(address);
        is_mapped(address) && self.pool.contains(last)
    }

    /// Whether it lends a port.
    #[inline(always)]
    #[must_use]
    pub fn lends(&self, port: u16) -> bool {
        let has = |[first, last]: [u16; 2]| first <= port && port <= last;
        has(self.ports) && !self.reserved.iter().any(|range| has(*range))
    }

    /// Whether there is an outside address now.
    #[inline(always)]
    #[must_use]
    pub const fn has_outside(&self) -> bool {
        !matches!(address_words(self.outside), [0, 0, 0, 0])
    }

    /// Which packets from outside reach an inside end that is bound.
    #[inline(always)]
    #[must_use]
    pub const fn filtering(&self) -> Filtering {
        Filtering::from_raw(self.filtering)
    }
}

/// An IPv4 network; both words in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Network {
    address: u32,
    mask: u32,
}

crate::plain!(Network: 8);

impl Network {
    /// One that has no address.
    pub const NONE: Self = Self {
        address: 1,
        mask: 0,
    };

    /// The network of an address, with a prefix of so many bits, 32 at most.
    #[must_use]
    pub const fn new(address: Ipv4Addr, prefix: u8) -> Self {
        let mask = match prefix {
            0 => 0,
            prefix => (u32::MAX << (32 - prefix)).to_be(),
        };
        Self {
            address: u32::from_ne_bytes(address.octets()) & mask,
            mask,
        }
    }

    /// The network as an address and a prefix; none if it has no address.
    #[must_use]
    pub fn parts(&self) -> Option<(Ipv4Addr, u8)> {
        let prefix = u32::from_be(self.mask).leading_ones() as u8;
        (*self != Self::NONE).then_some((Ipv4Addr::from(self.address.to_ne_bytes()), prefix))
    }

    #[inline(always)]
    const fn contains(&self, address: u32) -> bool {
        address & self.mask == self.address
    }
}

/// An outside end, the key of the binding that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C, align(4))]
pub struct OutsideKey {
    end: End,
    protocol: u8,
    reserved: u8,
}

crate::plain!(OutsideKey: 20);

impl OutsideKey {
    /// The outside end for packets of a protocol; its port is the identifier of ICMP queries.
    #[inline(always)]
    #[must_use]
    pub const fn new(end: End, protocol: Protocol) -> Self {
        Self {
            end,
            protocol: protocol.0,
            reserved: 0,
        }
    }

    /// The outside end.
    #[inline(always)]
    #[must_use]
    pub const fn end(&self) -> End {
        self.end
    }

    /// Its protocol.
    #[inline(always)]
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        Protocol(self.protocol)
    }
}

/// An inside end, by which its outside port is found. It has one for each outside address, so
/// that none is kept that this host has no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C, align(4))]
pub struct InsideKey {
    inside: End,
    outside: [u8; 16],
    protocol: u8,
    reserved: u8,
}

crate::plain!(InsideKey: 36);

impl InsideKey {
    /// An inside end, bound to a port of an outside address.
    #[inline(always)]
    #[must_use]
    pub const fn new(inside: End, outside: [u8; 16], protocol: Protocol) -> Self {
        Self {
            inside,
            outside,
            protocol: protocol.0,
            reserved: 0,
        }
    }
}

/// The binding of an inside end to an outside one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct Binding {
    /// The inside end.
    pub inside: End,
    /// Zeros.
    pub reserved: [u8; 2],
    /// Until when it lasts, in ticks ([`Tick`]).
    pub until: u32,
    /// Index of the interface that translates.
    pub interface: u32,
    /// How many of its sessions both ends have used, and have not ended as far as it was told.
    pub proven: u32,
}

crate::plain!(Binding: 32);

/// How much longer a binding lasts than the last of its sessions, in ticks: packets of a session
/// tell it only every so often.
pub const BINDING_REST: u32 = 1 << 14;

impl Binding {
    /// A binding that lasts until then.
    #[inline(always)]
    #[must_use]
    pub const fn new(inside: End, interface: u32, until: u32) -> Self {
        Self {
            inside,
            reserved: [0; 2],
            until,
            interface,
            proven: 0,
        }
    }

    /// Whether it lasts still.
    #[inline(always)]
    #[must_use]
    pub const fn lasts(&self, now: Tick) -> bool {
        is_later(self.until, now.0)
    }
}

/// Whether a time in ticks is later than another.
#[inline(always)]
#[must_use]
pub const fn is_later(tick: u32, than: u32) -> bool {
    tick.wrapping_sub(than).cast_signed() > 0
}

/// Whether a packet that is seen now has to tell the binding that its session lives, if the last
/// one was seen then.
#[inline(always)]
#[must_use]
pub const fn is_to_tell(seen: u32, now: Tick) -> bool {
    (seen ^ now.0) >= BINDING_REST
}

/// A number of bindings of an inside host, the key of the map `HOSTS`. Both numbers only grow, and
/// are 0 if they are absent: by their difference so many of its ends are bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct HostKey {
    /// The IPv4 address, in network byte order.
    address: u32,
    number: u32,
}

crate::plain!(HostKey: 8);

impl HostKey {
    /// How many bindings the programs have made for the host with a 16-byte IPv4 address.
    #[inline(always)]
    #[must_use]
    pub const fn made(address: [u8; 16]) -> Self {
        let [.., address] = address_words(address);
        Self { address, number: 0 }
    }

    /// How many of these the daemon has removed.
    #[inline(always)]
    #[must_use]
    pub const fn gone(self) -> Self {
        Self { number: 1, ..self }
    }

    /// Whether it is the number of those made.
    #[must_use]
    pub const fn is_made(self) -> bool {
        self.number == 0
    }
}

/// How many inside hosts are limited each: half the capacity of the `HOSTS` map.
pub const MAX_HOSTS: u32 = 65_536;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::address::address_bytes;

    fn nat(networks: &[(&str, u8)]) -> Nat {
        let mut inside = [Network::NONE; MAX_INSIDE];
        for (place, (address, prefix)) in inside.iter_mut().zip(networks) {
            *place = Network::new(address.parse().unwrap(), *prefix);
        }
        Nat {
            outside: [0; 16],
            ports: [1024, 2047],
            filtering: 0,
            max_per_host: 1,
            reserved: NO_RANGES,
            inside,
            pool: Network::NONE,
        }
    }

    #[test]
    fn what_is_of_the_pool() {
        let of = |address: &str| address_bytes(address.parse().unwrap());
        let mut nat = nat(&[("100.64.0.0", 16)]);
        assert!(!nat.is_of_pool(of("100.64.0.9")));
        nat.pool = Network::new("100.64.0.0".parse().unwrap(), 16);
        assert!(nat.is_of_pool(of("100.64.0.9")));
        assert!(!nat.is_of_pool(of("100.65.0.9")));
        assert!(!nat.is_of_pool(of("2001:db8::6440:9")));
    }

    #[test]
    fn what_is_inside() {
        let nat = nat(&[("192.168.7.0", 24), ("10.0.0.1", 32), ("172.16.0.0", 12)]);
        for (address, expected) in [
            ("192.168.7.0", true),
            ("192.168.7.255", true),
            ("192.168.6.255", false),
            ("10.0.0.1", true),
            ("10.0.0.2", false),
            ("172.31.255.255", true),
            ("172.32.0.0", false),
            ("0.0.0.0", false),
            ("::", false),
            ("::1", false),
            ("fd00::c0a8:701", false),
        ] {
            let bytes = address_bytes(address.parse::<IpAddr>().unwrap());
            assert_eq!(nat.is_inside(bytes), expected, "{address}");
        }
        let mut own = nat;
        own.outside = address_bytes([192, 168, 7, 9].into());
        assert!(!own.is_inside(own.outside));
        assert_eq!(
            [1023, 1024, 2047, 2048].map(|port| nat.lends(port)),
            [false, true, true, false]
        );
        let mut tunnelled = nat;
        tunnelled.reserved[15] = [1500, 1501];
        assert_eq!(
            [1499, 1500, 1501, 1502].map(|port| tunnelled.lends(port)),
            [true, false, false, true]
        );
    }

    #[test]
    fn a_network_is_told_by_its_parts() {
        for (address, prefix) in [("10.0.0.0", 8), ("192.168.7.5", 32), ("0.0.0.0", 0)] {
            let address: Ipv4Addr = address.parse().unwrap();
            let parts = Network::new(address, prefix).parts();
            assert_eq!(parts, Some((address, prefix)));
        }
        assert_eq!(Network::NONE.parts(), None);
    }

    #[test]
    fn ticks_wrap() {
        let binding = |until| Binding::new(End::default(), 1, until);
        assert!(binding(5).lasts(Tick(u32::MAX)));
        assert!(binding(u32::MAX).lasts(Tick(u32::MAX - 1)));
        assert!(!binding(u32::MAX).lasts(Tick(u32::MAX)));
        assert!(!binding(u32::MAX).lasts(Tick(3)));
    }

    /// A session whose packets come however far apart tells its binding often enough.
    #[test]
    fn a_binding_outlasts_its_sessions() {
        const LIFE: u32 = 10 * BINDING_REST;
        for step in [1, 77, BINDING_REST - 1, BINDING_REST, LIFE] {
            let (mut seen, mut until) = (0, LIFE + BINDING_REST);
            for now in (step..20 * LIFE).step_by(step as usize) {
                assert!(is_later(until, now), "{step}: {now}");
                if is_to_tell(seen, Tick(now)) {
                    until = now + LIFE + BINDING_REST;
                }
                seen = now;
                assert!(is_later(until, seen + LIFE - 1), "{step}: {now}");
            }
        }
    }
}
