//! Fragments of a datagram. Only the first has ports: the others become what it became, and those
//! that come before it wait with the daemon.

use crate::again::OF_GATEWAY;
use crate::gateway::outcome::Outcome;
use crate::gateway::tuple::End;
use crate::parse::FragmentKey;

/// What became of the first fragment of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct First {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    at: u64,
    /// What the end became that the hook translates.
    to: End,
    /// The index of its outcome, or [`AS_IT_WAS`].
    outcome: u8,
    reserved: [u8; 5],
}

crate::plain!(First: 32);

/// See [`First::outcome`]: it was not translated.
const AS_IT_WAS: u8 = u8::MAX;

impl First {
    /// One that was translated.
    #[inline(always)]
    #[must_use]
    pub const fn translated(at: u64, to: End, outcome: Outcome) -> Self {
        Self {
            at,
            to,
            outcome: outcome.index() as u8,
            reserved: [0; 5],
        }
    }

    /// One that was not.
    #[inline(always)]
    #[must_use]
    pub const fn as_it_was(at: u64) -> Self {
        Self {
            at,
            to: End::new([0; 16], 0),
            outcome: AS_IT_WAS,
            reserved: [0; 5],
        }
    }

    /// Whether it is still of the datagram whose fragments come now.
    #[inline(always)]
    #[must_use]
    pub const fn lasts(&self, now: u64) -> bool {
        FragmentKey::lasts(self.at, now)
    }

    /// What the end became, and the index of the fragment's [`Outcome`]; `None` if it was not
    /// translated.
    #[inline(always)]
    #[must_use]
    pub const fn translation(&self) -> Option<(End, u8)> {
        match self.outcome {
            AS_IT_WAS => None,
            outcome => Some((self.to, outcome)),
        }
    }
}

/// `skb->mark` of a fragment that the daemon has held and puts on an interface, one of xdptun's
/// own ([`is_own`](crate::again::is_own)). `SO_MARK` needs CAP_NET_ADMIN, or CAP_NET_RAW since Linux
/// 5.17 (commit 079925cce1d0), with which a process may also write frames past every hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Held {
    /// It had come in: the egress program sends it to ingress.
    In = OF_GATEWAY,
    /// It was leaving.
    Out = OF_GATEWAY + 1,
}

crate::from_raw! {
    /// What a mark says.
    pub Held: u32 { In, Out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_a_first_fragment_is_told_for_its_lifetime() {
        let to = End::new([7; 16], 8000);
        let first = First::translated(5, to, Outcome::OutTranslated);
        assert_eq!(
            first.translation(),
            Some((to, Outcome::OutTranslated.index() as u8))
        );
        assert!(first.lasts(4) && first.lasts(5) && first.lasts(4 + FragmentKey::LIFETIME_NS));
        assert!(!first.lasts(5 + FragmentKey::LIFETIME_NS));
        assert_eq!(First::as_it_was(5).translation(), None);
    }
}
