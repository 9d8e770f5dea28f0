//! Rules: which packets are searched, for what, and what becomes of those that match.

use super::table::Table;
use crate::address::address_words;
use crate::again::OF_POLICY;
use crate::wire::Protocol;

/// How many rules the interfaces of a group have together; interfaces with equal rules share them.
pub const MAX_RULES: usize = 32;

/// How many rules there is room for: those of a reload lie beside those that they replace.
pub const PLACES: usize = 2 * MAX_RULES;

/// The longest name of a rule in bytes.
pub const NAME: usize = 32;

/// An offset behind any payload.
pub const NO_END: u32 = u32::MAX;

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Direction {
    /// It comes in.
    In = 0,
    /// It leaves.
    Out = 1,
}

crate::from_raw! {
    /// The direction stored as `value`.
    pub Direction: u8 { In, Out } else In
}

/// What becomes of a packet that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Action {
    /// It is counted, and goes on to the next rule.
    Count = 0,
    /// It is counted and logged, and goes on to the next rule.
    Log = 1,
    /// It is dropped.
    Drop = 2,
    /// It is dropped, and its ends are told.
    Reset = 3,
}

crate::from_raw! {
    /// The action stored as `value`.
    pub Action: u8 { Count, Log, Drop, Reset } else Count
}

impl Action {
    /// Whether a packet that matches ends here.
    #[inline(always)]
    #[must_use]
    pub const fn ends(self) -> bool {
        matches!(self, Self::Drop | Self::Reset)
    }
}

/// A network of addresses of 16 bytes, IPv4 as v4-mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct Network {
    /// Its first address.
    pub address: [u8; 16],
    /// The bits of an address that count.
    pub mask: [u8; 16],
}

crate::plain!(Network: 32);

impl Network {
    /// The network of all addresses, of both versions of IP.
    pub const ALL: Self = Self {
        address: [0; 16],
        mask: [0; 16],
    };

    /// Whether an address is in it.
    #[inline(always)]
    #[must_use]
    pub const fn contains(&self, address: [u8; 16]) -> bool {
        let [a, b, c, d] = address_words(address);
        let [e, f, g, h] = address_words(self.mask);
        let [i, j, k, l] = address_words(self.address);
        a & e == i && b & f == j && c & g == k && d & h == l
    }
}

/// A rule as the programs read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct Rule {
    /// Where packets come from.
    pub from: Network,
    /// Where they go to.
    pub to: Network,
    /// Its name, padded with zeros.
    pub name: [u8; NAME],
    /// The first byte of the payload that a match may have.
    pub first: u32,
    /// The byte of the payload before which a match ends; [`NO_END`] if that does not matter.
    pub end: u32,
    /// A port that one of the ends has, native; 0 stands for any.
    pub port: u16,
    /// The transport protocol; 0 stands for TCP and UDP.
    pub protocol: u8,
    /// A [`Direction`].
    pub direction: u8,
    /// An [`Action`].
    pub action: u8,
    /// 1 if a packet passes that it would drop.
    pub dry_run: u8,
    /// Zeros.
    pub reserved: [u8; 2],
    /// The patterns.
    pub table: Table,
}

crate::plain!(Rule: 29384);

/// What a rule asks of a packet before its payload is searched.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Its source, 16 bytes.
    pub source: [u8; 16],
    /// Its destination.
    pub destination: [u8; 16],
    /// Its ports; `None` of a later fragment, which has none.
    pub ports: Option<(u16, u16)>,
    /// Its transport protocol; `None` if it does not tell.
    pub protocol: Option<Protocol>,
    /// Whether so many headers stand before its payload that it is not found.
    pub is_hidden: bool,
}

impl Rule {
    /// Whether the payload of a packet of its direction is to be searched. A later fragment is
    /// searched by rules that name neither port nor offset: it does not tell what it is a part of.
    /// What hides its payload concerns all of them.
    #[inline(always)]
    #[must_use]
    pub const fn concerns(&self, packet: &Packet) -> bool {
        if packet.is_hidden {
            return true;
        }
        let fits = match packet.ports {
            Some((source, destination)) => {
                self.port == 0 || self.port == source || self.port == destination
            }
            None => self.port == 0 && self.first == 0 && self.end == NO_END,
        };
        let is_of_protocol = match packet.protocol {
            Some(protocol) => self.protocol == 0 || self.protocol == protocol.0,
            None => true,
        };
        fits && is_of_protocol
            && self.from.contains(packet.source)
            && self.to.contains(packet.destination)
    }

    /// The part of a payload of `len` bytes in which a match lies: its first byte, and its length.
    #[inline(always)]
    #[must_use]
    pub const fn part(&self, len: u32) -> (u32, u32) {
        let end = if len < self.end { len } else { self.end };
        (self.first, end.saturating_sub(self.first))
    }

    /// What becomes of packets that match.
    #[inline(always)]
    #[must_use]
    pub const fn action(&self) -> Action {
        Action::from_raw(self.action)
    }
}

/// The key of the rules that an interface has for packets of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct SetKey {
    /// Index of the interface.
    pub interface: u32,
    /// A [`Direction`].
    pub direction: u32,
}

crate::plain!(SetKey: 8);

/// The rules that an interface has for packets of a direction, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Set {
    /// How many there are.
    pub count: u32,
    /// Their places in the map of rules.
    pub places: [u8; MAX_RULES],
}

crate::plain!(Set: 36);

/// Frames of the daemon of this function, by their mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Told {
    /// It leaves by the interface that it is put on.
    Out = OF_POLICY,
    /// It is to come in by the interface that it is put on.
    In = OF_POLICY + 1,
}
