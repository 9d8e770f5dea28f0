//! Leases: which client has which address of the pool, and for how long.

use super::translator::Translator;
use crate::address::address_words;
use crate::flow::tick::Tick;

/// The lease of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct Lease {
    /// The client's IPv6 address.
    pub client: [u8; 16],
    /// When the client sent its last packet, in ticks ([`Tick`]), within [`SEEN_EVERY`].
    pub seen: u32,
    /// A [`Standing`].
    pub standing: u32,
}

crate::plain!(Lease: 24);

/// How often it is noted that a client sends, in ticks: the entry is shared by all CPUs.
pub const SEEN_EVERY: u32 = 1 << 10;

/// What is known of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Standing {
    /// It has sent, and nothing was sent to it.
    Unanswered = 0,
    /// Something was sent to it.
    Answered = 1,
    /// Its address is configured.
    Static = 2,
}

crate::from_raw! {
    /// What is stored as `value`.
    pub Standing: u32 { Unanswered, Answered, Static }
}

impl Lease {
    /// That of a client that sends its first packet.
    #[inline(always)]
    #[must_use]
    pub const fn new(client: [u8; 16], now: Tick) -> Self {
        Self {
            client,
            seen: now.0,
            standing: Standing::Unanswered as u32,
        }
    }

    /// One that is configured.
    #[must_use]
    pub const fn fixed(client: [u8; 16]) -> Self {
        Self {
            client,
            seen: 0,
            standing: Standing::Static as u32,
        }
    }

    /// What is known of the client.
    #[must_use]
    pub const fn standing(&self) -> Option<Standing> {
        Standing::from_raw(self.standing)
    }

    /// Whether it is over. Until another client gets the address, a packet of its client renews it.
    #[inline(always)]
    #[must_use]
    pub const fn is_over(&self, translator: &Translator, now: Tick) -> bool {
        now.since(self.seen)
            > match Standing::from_raw(self.standing) {
                Some(Standing::Static) => return false,
                Some(Standing::Answered) => translator.answered,
                Some(Standing::Unanswered) | None => translator.unanswered,
            }
    }
}

/// How many leases a network of 64 bits has had: those that began, counted by the programs, or
/// those that are gone, counted by the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct NetworkKey {
    network: [u32; 2],
    is_gone: u32,
}

crate::plain!(NetworkKey: 12);

impl NetworkKey {
    /// Leases that began in the network of an address.
    #[inline(always)]
    #[must_use]
    pub const fn began(address: [u8; 16]) -> Self {
        let [a, b, ..] = address_words(address);
        Self {
            network: [a, b],
            is_gone: 0,
        }
    }

    /// Of these, the ones that are gone.
    #[inline(always)]
    #[must_use]
    pub const fn gone(self) -> Self {
        Self { is_gone: 1, ..self }
    }

    /// Whether it is the number of leases that began.
    #[must_use]
    pub const fn is_began(&self) -> bool {
        self.is_gone == 0
    }
}

/// Places of the numbers of all leases, static ones excepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Number {
    /// Leases that began. The programs count.
    Began = 0,
    /// Of these, the ones that were answered. The programs count.
    Answered = 1,
    /// Leases that ended without an answer. The daemon counts.
    Unanswered = 2,
}

impl Number {
    /// How many numbers there are.
    pub const ALL: u32 = 3;
}
