//! What is forwarded, and to where.

use crate::address::{address_words, is_mapped, mapped};
use crate::gateway::tuple::{End, Tuple};
use crate::wire::Protocol;

/// The number of a set of rules. Interfaces with equal rules share a set.
pub type Set = u8;

/// An address and port at which packets are forwarded, by the rules of a set. 0.0.0.0 and `::`
/// stand for all of this host's own addresses of their family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C, align(4))]
pub struct ListenKey {
    address: [u8; 16],
    port: [u8; 2],
    protocol: u8,
    set: Set,
}

crate::plain!(ListenKey: 20);

impl ListenKey {
    /// A 16-byte address, IPv4 as v4-mapped, and a native port.
    #[inline(always)]
    #[must_use]
    pub const fn new(set: Set, address: [u8; 16], port: u16, protocol: Protocol) -> Self {
        Self {
            address,
            port: port.to_be_bytes(),
            protocol: protocol.0,
            set,
        }
    }

    /// The set of rules that it belongs to.
    #[must_use]
    pub const fn set(&self) -> Set {
        self.set
    }

    /// The same of another set.
    #[must_use]
    pub const fn of_set(self, set: Set) -> Self {
        Self { set, ..self }
    }

    /// The address, 16 bytes.
    #[must_use]
    pub const fn address(&self) -> [u8; 16] {
        self.address
    }

    /// The port, as a native number.
    #[must_use]
    pub const fn port(&self) -> u16 {
        u16::from_be_bytes(self.port)
    }

    /// The protocol.
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        Protocol(self.protocol)
    }

    /// The same port of all of this host's addresses of the family.
    #[inline(always)]
    #[must_use]
    pub const fn of_any(self) -> Self {
        let address = match is_mapped(self.address) {
            true => mapped([0; 4]),
            false => [0; 16],
        };
        Self { address, ..self }
    }
}

/// What becomes of packets to a listen address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Listen {
    /// The first of its places in the `BACK_ENDS` map, which the ports of a rule share.
    pub first: u32,
    /// How many places it has there: each back end as many as its weight.
    pub places: u32,
    /// What is added to the port of the back end: the port's place in its range.
    pub offset: u32,
}

crate::plain!(Listen: 12);

impl Listen {
    /// The place of the back end that packets of this client go to: the same for each of its
    /// address and port, as long as the back ends stay.
    #[inline(always)]
    #[must_use]
    pub const fn place(&self, call: &Tuple) -> u32 {
        let hash = mix(call) as u32 as u64;
        // The upper half of the product is below `places`, without a division.
        self.first + ((hash * self.places as u64) >> 32) as u32
    }
}

/// A hash of a packet's source, spread over all bits (the finalizer of SplitMix64).
#[inline(always)]
const fn mix(call: &Tuple) -> u64 {
    let [a, b, _, _, ports] = call.words();
    // Of the ports the first two bytes are the source's.
    let mut hash = a ^ b.rotate_left(32) ^ (ports & u64::from_ne_bytes(SOURCE_PORT));
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The bytes of the last word of a tuple that hold the source port.
const SOURCE_PORT: [u8; 8] = [0xff, 0xff, 0, 0, 0, 0, 0, 0];

/// Where packets are forwarded to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct BackEnd {
    /// The back end, with the first port of its range.
    pub to: End,
    /// The first and the last port that the source may get, if it is translated.
    pub ports: [u16; 2],
    /// The address that the source gets, 16 bytes; zeros if it stays.
    pub source: [u8; 16],
    /// Whether the source is to be translated, and has no address now: no route leads to the
    /// back end.
    pub unreachable: u16,
}

crate::plain!(BackEnd: 40);

impl BackEnd {
    /// Where packets of a port go that lies `offset` behind the first.
    #[inline(always)]
    #[must_use]
    pub const fn end(&self, offset: u32) -> End {
        let port = self.to.port().wrapping_add(offset as u16);
        End::new(self.to.address(), port)
    }

    /// Whether the back end sees another source than the client.
    #[inline(always)]
    #[must_use]
    pub const fn masquerades(&self) -> bool {
        !matches!(address_words(self.source), [0, 0, 0, 0])
    }
}

/// Capacity of the `LISTEN` map: every port of TCP and of UDP, over IPv4 and IPv6.
pub const MAX_LISTEN: u32 = 262_144;

/// Capacity of the `BACK_ENDS` map, in weights.
pub const MAX_BACK_ENDS: u32 = 65_536;

/// Capacity of the `CUT` map, in packets: two for each session that is cut, four if its source was
/// translated.
pub const MAX_CUT: u32 = 131_072;

/// Capacity of the `NAMED` map, in addresses.
pub const MAX_NAMED: u32 = 131_072;

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr, SocketAddr};

    use super::*;
    use crate::gateway::tuple::Side;

    fn call(client: u32) -> Tuple {
        let address = Ipv4Addr::from(0x0a00_0000 + client / 7);
        let client = SocketAddr::new(IpAddr::V4(address), 30_000 + client as u16 % 7);
        let listen = "203.0.113.7:7000".parse().unwrap();
        Tuple::new(client, listen, Protocol::TCP, Side::In)
    }

    /// Each weight gets its share of clients, give or take a twentieth.
    #[test]
    fn clients_are_spread_over_all_places() {
        let listen = Listen {
            first: 10,
            places: 5,
            ..Listen::default()
        };
        let mut counts = [0_u32; 5];
        for client in 0..50_000 {
            counts[(listen.place(&call(client)) - 10) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| count.abs_diff(10_000) < 500),
            "{counts:?}"
        );
    }

    #[test]
    fn any_address_is_one_of_a_family() {
        let any = |address: &str| {
            let address: IpAddr = address.parse().unwrap();
            let address = crate::address::address_bytes(address);
            ListenKey::new(0, address, 80, Protocol::TCP).of_any()
        };
        assert_eq!(any("192.0.2.1"), any("0.0.0.0"));
        assert_eq!(any("2001:db8::1"), any("::"));
        assert_ne!(any("192.0.2.1"), any("2001:db8::1"));
    }

    #[test]
    fn a_client_stays_with_its_back_end_whatever_it_calls() {
        let listen = Listen {
            places: 64,
            ..Listen::default()
        };
        let other = call(4711).with_translated(End::new([9; 16], 8000));
        assert_eq!(listen.place(&call(4711)), listen.place(&other));
    }
}
