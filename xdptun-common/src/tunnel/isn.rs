//! Initial sequence numbers that are also SYN cookies.
//!
//! The ISN of a flow is a keyed hash of its addresses and of the second in which it
//! opens, for active and for passive opens alike (RFC 6528 asks for a hash of the
//! addresses and a clock; RFC 4987 section 3.6 calls the passive use a SYN cookie). So a
//! SYN makes no flow: the ACK of the handshake carries the number back, and a sender
//! that can name it has received our SYN-ACK. Both peers opening at once, or one opening
//! while the other's ACK is under way, agree on the same number without state, if it is
//! in the same epoch.
//!
//! A SYN that is repeated must get the number that it got before: the firewalls on the way
//! follow the SYN-ACK that they saw last, and the peer takes the one that arrives first. So the
//! number that a SYN got is kept for a while, in one of [`SYNS`] words. If another SYN has taken
//! the word, the number is that of the present.
//!
//! ```text
//!  31     28 27     24 23                       0
//! +---------+---------+--------------------------+
//! | free    | epoch   | hash                     |
//! +---------+---------+--------------------------+
//! ```
//!
//! Bits 24-27 hold the epoch modulo 16, masked by the hash, so one hash checks a number.
//! Bits 28-31 keep it far from the previous flow's numbers ([`far_from`]). A guess is right
//! once in 2^24 times.

use crate::flow::key::FlowKey;
use crate::siphash::siphash24;
use crate::wire::IpFields;

/// How long one epoch lasts, in nanoseconds: 1.07 s. Two opens of the same addresses and
/// ports have other numbers if they are further apart, and not of the same SYN.
pub const EPOCH_NS: u64 = 1 << 30;

/// For how many epochs after its own a cookie is good: 12.9 s, longer than a SYN-ACK is
/// under way, too short to collect cookies.
pub const LIFETIME: u64 = 12;

/// For how many epochs a repeated SYN gets the same number: 6.4 s at least. The first three SYNs of
/// a peer that doubles its patience from 1 s on (RFC 6298 section 5.7) take 3 s. The ACK then has as
/// long.
pub const REPEATS: u64 = LIFETIME / 2;

/// The key of the hash, 128 random bits drawn at each attach, and a hash of it that hides the
/// epochs. An observer of many numbers can work out that word, and learns nothing of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Secret(pub [u64; 3]);

crate::plain!(Secret: 24);

impl Secret {
    /// That of a key.
    #[must_use]
    pub fn new(key: [u64; 2]) -> Self {
        let [a, b] = key;
        Self([a, b, siphash24(key, HIDING)])
    }

    /// The key.
    #[inline(always)]
    #[must_use]
    pub const fn key(&self) -> [u64; 2] {
        let Self([a, b, _]) = *self;
        [a, b]
    }

    /// The initial sequence number of `flow` at `now_ns` (any monotonic clock).
    #[inline(always)]
    #[must_use]
    pub fn isn(&self, flow: &FlowKey, now_ns: u64) -> u32 {
        self.isn_of_epoch(flow, epoch(now_ns))
    }

    /// Whether `isn` is one that we gave to `flow` not more than [`LIFETIME`] epochs
    /// ago, perhaps [far from](far_from) a predecessor.
    #[inline(always)]
    #[must_use]
    pub fn gave(&self, isn: u32, flow: &FlowKey, now_ns: u64) -> bool {
        self.epoch_of(isn, now_ns)
            .is_some_and(|epoch| same_cookie(isn, self.isn_of_epoch(flow, epoch)))
    }

    /// The initial sequence number of `flow` in one epoch.
    #[inline(always)]
    #[must_use]
    pub fn isn_of_epoch(&self, flow: &FlowKey, epoch: u64) -> u32 {
        self.isn_of_words(hashed_words(flow, epoch))
    }

    /// The same of [what is hashed](hashed_words).
    #[inline(always)]
    #[must_use]
    pub fn isn_of_words(&self, words: [u64; 5]) -> u32 {
        let hash = siphash24(self.key(), words) as u32;
        let [.., ports_and_epoch] = words;
        let stamp = ((ports_and_epoch >> 32) as u32 & 0xf) << EPOCH_SHIFT;
        hash & !EPOCH ^ stamp ^ self.scrambler(hash)
    }

    /// What stands for the epoch in the hash that labels a flow ([`label_of`]): no host
    /// runs that long.
    pub const LABEL_EPOCH: u64 = u32::MAX as u64;

    /// The epoch in which `isn` was made, if it is a cookie and not too old.
    #[inline(always)]
    #[must_use]
    pub const fn epoch_of(&self, isn: u32, now_ns: u64) -> Option<u64> {
        let now = epoch(now_ns);
        let stamp = (isn ^ self.scrambler(isn)) >> EPOCH_SHIFT;
        let age = now.wrapping_sub(stamp as u64) & 0xf;
        if age > LIFETIME {
            return None;
        }
        Some(now.wrapping_sub(age))
    }

    /// The epoch of the number that a SYN was answered with, if `kept` is its [word](answered) and
    /// it is to get that number again: `syn` tells the SYN.
    #[inline(always)]
    #[must_use]
    pub const fn answered_in(&self, kept: u64, syn: u32, now_ns: u64) -> Option<u64> {
        let number = kept as u32;
        match self.epoch_of(number, now_ns) {
            Some(made_in)
                if kept == answered(syn, number)
                    && epoch(now_ns).wrapping_sub(made_in) <= REPEATS =>
            {
                Some(made_in)
            }
            _ => None,
        }
    }

    /// What the epoch's bits are scrambled with: the hash beside them decides, so that an
    /// observer of many numbers sees no clock.
    #[inline(always)]
    const fn scrambler(&self, isn: u32) -> u32 {
        let Self([.., hiding]) = self;
        let mixed = ((isn & HASH) ^ *hiding as u32).wrapping_mul(0x9e37_79b1);
        mixed >> 28 << EPOCH_SHIFT
    }
}

/// What is hashed for the word that hides epochs: two words, and nothing else hashes two with
/// this key.
const HIDING: [u64; 2] = [0; 2];

/// What is hashed of a flow and an epoch: the epoch shares a word with the ports. Bits above the 32
/// that an epoch has make an address that the host has not.
#[inline(always)]
#[must_use]
pub fn hashed_words(flow: &FlowKey, epoch: u64) -> [u64; 5] {
    let [a, b, c, d] = flow.address_words();
    let above = epoch >> 32 << 32;
    [
        a ^ above,
        b,
        c,
        d,
        u64::from(flow.port_word()) | epoch << 32,
    ]
}

/// The IPv6 flow label made of [`Secret::isn_of_epoch`] of [`Secret::LABEL_EPOCH`]; never
/// 0, which says that there is none.
#[inline(always)]
#[must_use]
pub const fn label_of(hash: u32) -> u32 {
    match hash & IpFields::LABEL {
        0 => 1,
        label => label,
    }
}

/// The bits of a number that keep it from its predecessor's.
const DISTANCE: u32 = 0xf000_0000;
/// Those that say in which epoch it was made, and where they are.
const EPOCH: u32 = 0x0f00_0000;
/// See [`EPOCH`].
const EPOCH_SHIFT: u32 = 24;
/// The hash.
const HASH: u32 = 0x00ff_ffff;

/// The initial number `isn`, moved to six or seven sixteenths of the way round from `snd_nxt`: what is
/// still under way of a flow that got that far cannot be taken for the next one's.
///
/// Not to half of the way: after two resets in one epoch the third flow would have the numbers of the
/// first, and so its keystream. Sixteen flows of less than 256 MiB have different ones now.
#[inline(always)]
#[must_use]
pub const fn far_from(snd_nxt: u32, isn: u32) -> u32 {
    let hash = isn & !DISTANCE;
    hash | snd_nxt.wrapping_sub(hash).wrapping_add(7 << 28) & DISTANCE
}

/// Whether two initial numbers differ in no more than [`far_from`] makes differ.
#[inline(always)]
#[must_use]
pub const fn same_cookie(a: u32, b: u32) -> bool {
    (a ^ b) & !DISTANCE == 0
}

/// The epoch of a time in nanoseconds.
#[inline(always)]
#[must_use]
pub const fn epoch(now_ns: u64) -> u64 {
    now_ns / EPOCH_NS
}

/// How many SYNs are known again when they are repeated.
pub const SYNS: u32 = 1 << 16;

/// What stands for the epoch in the hash that tells a SYN from others: its sequence number, and
/// bits above it that no epoch has. So whose words a SYN overwrites tells nothing about cookies,
/// nor about the number of another SYN.
#[inline(always)]
#[must_use]
pub const fn epoch_of_syn(sequence: u32) -> u64 {
    // "xdpt"
    0x7864_7074 << 32 | sequence as u64
}

/// The word to keep of a SYN that was answered with this number.
#[inline(always)]
#[must_use]
pub const fn answered(syn: u32, number: u32) -> u64 {
    (syn as u64) << 32 | number as u64
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use proptest::prelude::*;

    use super::*;

    fn flow() -> FlowKey {
        FlowKey::new(
            SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 8000)),
            SocketAddr::from((Ipv4Addr::new(10, 0, 0, 2), 40000)),
        )
    }

    proptest! {
        #[test]
        fn an_isn_is_good_for_its_lifetime(secret: [u64; 2], now in 32 * EPOCH_NS..u64::MAX / 2, before: u32) {
            let secret = Secret::new(secret);
            for isn in [secret.isn(&flow(), now), far_from(before, secret.isn(&flow(), now))] {
                for later in 0..=LIFETIME {
                    prop_assert!(secret.gave(isn, &flow(), now + later * EPOCH_NS));
                }
                // Then its stamp says another epoch, whose hash is another but by chance.
                for later in LIFETIME + 1..16 {
                    prop_assert!(!secret.gave(isn, &flow(), now + later * EPOCH_NS));
                }
            }
        }

        #[test]
        fn opens_a_second_apart_have_other_numbers(secret: [u64; 2], now in 32 * EPOCH_NS..u64::MAX / 2) {
            let secret = Secret::new(secret);
            let isns = (0..16).map(|later| secret.isn(&flow(), now + later * EPOCH_NS) & !DISTANCE);
            let different: std::collections::HashSet<u32> = isns.collect();
            prop_assert!(different.len() >= 15, "{different:x?}");
        }
    }

    proptest! {
        #[test]
        fn sixteen_opens_at_once_have_other_numbers(isn: u32, sent in proptest::array::uniform16(0u32..1 << 28)) {
            let mut before = isn;
            let opens = sent.map(|sent| {
                let snd_nxt = before.wrapping_add(sent);
                before = far_from(snd_nxt, isn);
                let ahead = before.wrapping_sub(snd_nxt);
                assert!(ahead > 6 << 28 && ahead <= 7 << 28, "{ahead:#x}");
                before
            });
            let different: std::collections::HashSet<u32> = opens.into();
            prop_assert_eq!(different.len(), 16, "{:x?}", opens);
        }
    }

    #[test]
    fn a_repeated_syn_gets_its_number_again_while_an_ack_has_time_to_come() {
        const SYN: u32 = 7;
        let secret = Secret::new([1, 2]);
        let first = 100 * EPOCH_NS;
        let again = |kept, syn, epochs| secret.answered_in(kept, syn, first + epochs * EPOCH_NS);
        // Also if it was moved from that of a flow which is forgotten since.
        let number = far_from(0x5000_0000, secret.isn(&flow(), first));
        let kept = answered(SYN, number);
        for epochs in 0..=REPEATS {
            assert_eq!(again(kept, SYN, epochs), Some(100));
        }
        for epochs in REPEATS + 1..16 {
            assert_eq!(again(kept, SYN, epochs), None);
        }
        assert_eq!(again(kept, SYN + 1, 1), None);
    }

    #[test]
    fn what_tells_a_syn_tells_nothing_else() {
        let secret = Secret::new([1, 2]);
        let syn = |flow: &FlowKey, sequence| secret.isn_of_epoch(flow, epoch_of_syn(sequence));
        let [one, other] = [flow(), flow().reversed()];
        let mut differences = std::collections::HashSet::new();
        for sequence in 0..1000_u32 {
            // Not even if the sequence number is that of an epoch.
            assert_ne!(
                syn(&one, sequence),
                secret.isn_of_epoch(&one, sequence.into())
            );
            differences.insert(syn(&one, sequence) ^ syn(&other, sequence));
        }
        assert!(differences.len() > 990, "two flows differ in the same bits");
    }

    #[test]
    fn another_flow_or_another_secret_has_another_isn() {
        let secret = Secret::new([1, 2]);
        let isn = secret.isn(&flow(), 0);
        assert!(!secret.gave(isn, &flow().reversed(), 0));
        assert!(!Secret::new([1, 3]).gave(isn, &flow(), 0));
    }
}
