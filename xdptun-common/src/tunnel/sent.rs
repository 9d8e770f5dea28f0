//! What segments left lately: the proof that the sender of an ICMP error saw one.
//!
//! RFC 5927 lets an error count only if it quotes a sequence number that is in flight. On
//! a fast flow that is every number, so an error has to quote a segment that was really
//! sent: where it began, how long it was, and, where the quote reaches that far, its
//! checksum. A table of fixed size remembers the segments of all flows for two seconds at
//! most; the next segment of a slot overwrites it earlier.

use crate::flow::tick::Tick;
use crate::tunnel::isn::Secret;
use crate::wire::Ip;

/// A segment that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SentSegment {
    /// Its sequence number.
    pub sequence: u32,
    /// Its flow, see [`tag`].
    pub tag: u32,
    /// The [`Tick`] at which it left.
    pub at: u32,
    /// Length of TCP header and payload in bytes.
    pub len: u16,
    /// Its checksum as it lies in memory.
    pub checksum: [u8; 2],
}

crate::plain!(SentSegment: 16);

/// How many slots there are, in 2 MiB of kernel memory. A slot is a kilobyte of sequence
/// numbers, so one flow overwrites its own segments after 128 MiB: 1.07 s at 1 Gbit/s.
pub const SLOTS: u32 = 1 << 17;

/// For how long an error about a segment counts, in ticks.
pub const LIFETIME: u32 = 1907;

/// How long after an error that proved nothing the short quotes of a flow do not count, in
/// ticks: a sender that guesses has one guess a second.
pub const DISTRUST: u32 = 954;

/// The slot of a segment. Segments of a kilobyte and more lie in slots of their own;
/// smaller ones overwrite each other, and errors about these are rarely of use.
#[inline(always)]
#[must_use]
pub const fn slot(sequence: u32) -> u32 {
    (sequence >> 10) & (SLOTS - 1)
}

/// A number for the flow from `ip`'s source to its destination: else a stranger could
/// quote what was sent to another. Not a good hash, but a keyed one that never leaves
/// the host, and cheap.
#[inline(always)]
#[must_use]
pub fn tag<I: Ip>(secret: Secret, ip: &I, ports: (u16, u16)) -> u32 {
    let [a, b] = secret.key();
    let multipliers = [
        a | 1,
        b | 1,
        a.rotate_left(23) ^ b | 1,
        b.rotate_left(41) ^ a | 1,
    ];
    let [s0, s1] = long_words(ip.source());
    let [d0, d1] = long_words(ip.destination());
    let ports = u64::from(ports.0) << 16 | u64::from(ports.1);
    let mut sum = ports.wrapping_mul(a.rotate_left(11).wrapping_add(b) | 1);
    for (word, multiplier) in [s0, s1, d0, d1].into_iter().zip(multipliers) {
        sum = sum.wrapping_add(word.wrapping_mul(multiplier));
    }
    // What differs in the low half alone must count as well.
    ((sum ^ sum >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// An address as two words.
#[inline(always)]
const fn long_words(address: [u8; 16]) -> [u64; 2] {
    // SAFETY: both are sixteen bytes without invalid values.
    unsafe { core::mem::transmute(address) }
}

impl SentSegment {
    /// Whether an error that came `now` is about this segment: it quotes `sequence`, a
    /// length and, if it reaches that far, a checksum.
    #[inline(always)]
    #[must_use]
    pub fn is_quoted(
        &self,
        sequence: u32,
        tag: u32,
        len: usize,
        checksum: Option<[u8; 2]>,
        now: Tick,
    ) -> bool {
        self.sequence == sequence
            && self.tag == tag
            && usize::from(self.len) == len
            && now.since(self.at) <= LIFETIME
            && checksum.is_none_or(|checksum| same_sum(checksum, self.checksum))
    }
}

/// Whether two checksums are the same. Zero has two representations, and a NAT that
/// changed the checksum on the way out and back may have swapped them.
#[inline(always)]
fn same_sum(a: [u8; 2], b: [u8; 2]) -> bool {
    let plain = |sum: [u8; 2]| {
        if sum == [0xff; 2] { [0; 2] } else { sum }
    };
    plain(a) == plain(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Ipv4Header, Ipv6Header, Protocol};

    fn v4(source: [u8; 4], destination: [u8; 4]) -> Ipv4Header {
        let mapped = |[a, b, c, d]: [u8; 4]| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d];
        Ipv4Header::bare(mapped(source), mapped(destination), Protocol::TCP, 20)
    }

    const KEY: Secret = Secret([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210, 0]);

    #[test]
    fn each_flow_has_a_tag_of_its_own() {
        let near = v4([10, 0, 0, 1], [10, 0, 0, 2]);
        let mut tags = std::collections::HashSet::new();
        for port in 0..=u16::MAX {
            tags.insert(tag(KEY, &near, (8000, port)));
        }
        let far = v4([10, 0, 0, 2], [10, 0, 0, 1]);
        tags.insert(tag(KEY, &far, (8000, 8000)));
        tags.insert(tag(Secret([1, 2, 0]), &near, (8000, 8000)));
        let address = |last| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
        for last in 0..100 {
            let ip = Ipv6Header::bare(address(0xff), address(last), Protocol::TCP, 20);
            tags.insert(tag(KEY, &ip, (8000, 40000)));
        }
        // By chance one pair of two thousand million has the same.
        assert!(tags.len() > 65536 + 2 + 100 - 8, "{}", tags.len());
    }

    #[test]
    fn only_what_was_sent_lately_counts() {
        let sent = SentSegment {
            sequence: 1000,
            tag: 77,
            at: 5000,
            len: 1420,
            checksum: [0, 0],
        };
        let now = Tick(5000 + LIFETIME);
        let is_quoted =
            |sequence, tag, len, checksum, now| sent.is_quoted(sequence, tag, len, checksum, now);
        assert!(is_quoted(1000, 77, 1420, None, now));
        assert!(is_quoted(1000, 77, 1420, Some([0, 0]), now));
        assert!(is_quoted(1000, 77, 1420, Some([0xff, 0xff]), now));
        assert!(!is_quoted(1000, 77, 1420, Some([0, 1]), now));
        assert!(!is_quoted(1001, 77, 1420, None, now));
        assert!(!is_quoted(1000, 78, 1420, None, now));
        assert!(!is_quoted(1000, 77, 1419, None, now));
        assert!(!is_quoted(1000, 77, 1420, None, Tick(now.0 + 1)));
    }

    #[test]
    fn full_sized_segments_do_not_meet() {
        let first = u32::MAX - 5000;
        let slots: std::collections::HashSet<u32> = (0..60_000)
            .map(|number| slot(first.wrapping_add(number * 1400)))
            .collect();
        assert_eq!(slots.len(), 60_000);
    }
}
