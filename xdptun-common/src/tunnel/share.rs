//! The part of the flow table that waiting flows may use.
//!
//! A flow is *waiting* until this host sends a datagram on it (the peer opened it) or the
//! peer answers the SYN (this host opened it). Waiting flows are cheap to make: two segments
//! of a stranger, or one datagram of this host. So they get a share. Flows that were
//! answered are not limited, and nothing here ends them.
//!
//! The programs count flows that they make and that are answered ([`Tally`]). The daemon
//! reads the whole table at each sweep and notes how far those counts are off by then
//! ([`Settled`]). The next sweep corrects counts after a removed entry, a lost race or a
//! killed daemon. Without a daemon no entry is removed.

use crate::address::is_mapped;
use crate::tunnel::state::Opener;

/// A share is never smaller, however small the table: a few peers that come at once are
/// no flood.
const LEAST: u32 = 16;

/// How many flows of one opener may wait, of a table of `max_flows`: a quarter.
#[inline(always)]
#[must_use]
pub const fn share(max_flows: u32) -> u32 {
    at_least(max_flows / 4)
}

/// How many of them stay when a sweep clears the table: three quarters of the [`share`],
/// so that others find room.
#[must_use]
pub const fn cleared(max_flows: u32) -> u32 {
    share(max_flows) / 4 * 3
}

/// How many flows that one [`network`] opened may wait: an eighth of the [`share`].
#[inline(always)]
#[must_use]
pub const fn share_of_network(max_flows: u32) -> u32 {
    at_least(max_flows / 32)
}

/// How many entries only this host may make: a sixteenth.
#[inline(always)]
#[must_use]
pub const fn kept(max_flows: u32) -> u32 {
    max_flows / 16
}

#[inline(always)]
const fn at_least(share: u32) -> u32 {
    if share < LEAST { LEAST } else { share }
}

/// The network that an address counts for: an IPv4 address alone, of IPv6 the 64 bits that
/// one customer has at least.
#[inline(always)]
#[must_use]
pub const fn network(mut address: [u8; 16]) -> [u8; 16] {
    if is_mapped(address) {
        return address;
    }
    let mut byte = 8;
    while byte < 16 {
        address[byte] = 0;
        byte += 1;
    }
    address
}

/// In how many nanoseconds a network earns its whole share back: 8.6 s, about as long as a
/// flow lives that carries nothing.
const EARNED_IN: u64 = 1 << 33;

/// What one flow costs its network, in nanoseconds until it is earned back.
#[inline(always)]
#[must_use]
pub const fn cost(max_flows: u32) -> u64 {
    EARNED_IN / share_of_network(max_flows) as u64
}

/// When a network will have earned its share back, if it opens one more flow of this
/// `cost` now; `None` if it has none left. `earned_at` is that time before.
#[inline(always)]
#[must_use]
pub const fn charge(earned_at: u64, now: u64, cost: u64) -> Option<u64> {
    let owed = earned_at.saturating_sub(now) + cost;
    if owed > EARNED_IN {
        return None;
    }
    Some(now + owed)
}

/// What the programs counted, by [`Opener`]. These numbers only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Tally {
    /// Entries made.
    pub opened: [u64; 2],
    /// Flows that stopped to wait, as they were answered.
    pub answered: [u64; 2],
}

crate::plain!(Tally: 32);

/// What the daemon found at a sweep: how many of those that the programs counted are no
/// more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Settled {
    /// Flows that do not wait any more though they were never answered, by [`Opener`].
    pub waiting: [u64; 2],
    /// Entries that are not in the table any more.
    pub entries: u64,
}

crate::plain!(Settled: 24);

impl Tally {
    /// How many flows of an opener wait: rather too many than too few. CPUs that race may
    /// make it a few too low, also below zero, until the next sweep.
    #[inline(always)]
    #[must_use]
    pub const fn waiting(&self, settled: &Settled, opener: Opener) -> i64 {
        let opener = opener as usize;
        self.opened[opener]
            .wrapping_sub(self.answered[opener])
            .wrapping_sub(settled.waiting[opener])
            .cast_signed()
    }

    /// How many entries the table has; too many rather than too few.
    #[inline(always)]
    #[must_use]
    pub const fn entries(&self, settled: &Settled) -> i64 {
        self.opened[0]
            .wrapping_add(self.opened[1])
            .wrapping_sub(settled.entries)
            .cast_signed()
    }

    /// What to note so that [`Tally::waiting`] and [`Tally::entries`] are these.
    #[must_use]
    pub const fn settle(&self, waiting: [u64; 2], entries: u64) -> Settled {
        let [peer, host] = self.opened;
        Settled {
            waiting: [
                peer.wrapping_sub(self.answered[0]).wrapping_sub(waiting[0]),
                host.wrapping_sub(self.answered[1]).wrapping_sub(waiting[1]),
            ],
            entries: peer.wrapping_add(host).wrapping_sub(entries),
        }
    }
}
