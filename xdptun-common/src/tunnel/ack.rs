//! Acknowledgements: when this host sends one, when the peer's must have come, and how old it
//! may be.
//!
//! Every segment acknowledges all that has come, so two-way traffic needs no others. A pure ACK is
//! an answer to one datagram, the first that comes
//! * when [`ACK_BYTES`] have not been acknowledged, one part in 256 of the window: a router that
//!   follows windows drops none. [`EARLY_BYTES`] within [`EARLY_NS`] of the handshake, for such a
//!   router has seen no window but that of the SYN-ACK, at most 64 KiB, until it sees an ACK, and
//!   the first ones may be lost;
//! * or [`ACK_DELAY_NS`] after this host's last segment: less than the 500 ms that RFC 9293
//!   section 3.8.6.3 allows. It asks for an ACK of every second full-sized segment as well, which
//!   no router enforces.
//!
//! So a flow whose datagrams are less than [`ACK_DELAY_NS`] apart gets two ACKs a second, or one
//! for every [`ACK_BYTES`] if these come sooner, and one with longer pauses an ACK for each. The last datagrams before a pause may get none. The sender
//! knows from [`answered_at`] when that is so, and its daemon asks for an answer with a probe:
//! Linux's conntrack forgets a connection with unacknowledged data after 300 s of silence.

use crate::flow::tick::Tick;

/// How many unacknowledged bytes make a pure ACK due.
pub const ACK_BYTES: u32 = 256 * 1024;
/// The same while the connection is younger than [`EARLY_NS`].
pub const EARLY_BYTES: u32 = 32 * 1024;
/// How long after its handshake a connection is young, in nanoseconds.
pub const EARLY_NS: u64 = 500_000_000;
/// How long after its last segment a host acknowledges what comes, in nanoseconds.
pub const ACK_DELAY_NS: u64 = 480_000_000;

/// Whether a pure ACK is due for a datagram that has just come: `unacknowledged` bytes end with
/// it, and this host sent nothing for `quiet` nanoseconds. `age` tells how long ago the handshake
/// was, and is asked only if it matters. The bytes of a datagram that comes again are
/// acknowledged: zero or fewer.
#[inline(always)]
#[must_use]
pub fn is_due(unacknowledged: i32, quiet: u64, age: impl FnOnce() -> u64) -> bool {
    let Ok(bytes @ 1..) = u32::try_from(unacknowledged) else {
        return false;
    };
    quiet >= ACK_DELAY_NS || bytes >= ACK_BYTES || bytes >= EARLY_BYTES && age() < EARLY_NS
}

/// The time until which a peer whose path takes no time has answered a datagram that left at
/// `unanswered_at`, the first since the peer was heard of at `received_at`; in nanoseconds of one
/// clock. The peer answers the first datagram that leaves [`ACK_DELAY_NS`] after `received_at` or
/// later. If this is not that one, another follows within [`ACK_DELAY_NS`] of that time, or none
/// does that is answered soon.
#[must_use]
pub const fn answered_at(unanswered_at: u64, received_at: u64) -> u64 {
    let answers_from = received_at.saturating_add(ACK_DELAY_NS);
    let asked_at = if unanswered_at > answers_from {
        unanswered_at
    } else {
        answers_from
    };
    asked_at.saturating_add(ACK_DELAY_NS)
}

/// Earlier values of `snd_una`: how old an acknowledgement may be. One that is up to 0.54 s
/// late is always taken, one that is more than 1.07 s late never. On an idle flow only the
/// latest number is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct AckMarks {
    /// `snd_una` when the period before the present one began, and when the present
    /// one did.
    pub numbers: [u32; 2],
    /// The [`Tick`] at which the present period began.
    pub since: u32,
}

crate::plain!(AckMarks: 12);

impl AckMarks {
    /// The length of a period in ticks.
    pub const PERIOD: u32 = 512;

    /// Of a flow that begins with this number.
    #[inline(always)]
    #[must_use]
    pub const fn new(snd_una: u32, now: Tick) -> Self {
        Self {
            numbers: [snd_una; 2],
            since: now.0,
        }
    }

    /// The oldest acknowledgement number that is taken now.
    #[inline(always)]
    #[must_use]
    pub const fn oldest(&self, snd_una: u32, now: Tick) -> u32 {
        match now.since(self.since) / Self::PERIOD {
            0 => self.numbers[0],
            1 => self.numbers[1],
            _ => snd_una,
        }
    }

    /// The marks after `snd_una` has moved on from `before`; `None` if they stay.
    #[inline(always)]
    #[must_use]
    pub const fn moved(&self, before: u32, now: Tick) -> Option<Self> {
        match now.since(self.since) / Self::PERIOD {
            0 => None,
            1 => Some(Self {
                numbers: [self.numbers[1], before],
                since: now.0,
            }),
            _ => Some(Self::new(before, now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn an_acknowledgement_is_due_for_bytes_or_after_a_pause() {
        for (unacknowledged, quiet, age, due) in [
            (262_144, 0, 500 * MS, true),
            (262_143, 0, 500 * MS, false),
            (32_768, 0, 500 * MS - 1, true),
            (32_767, 0, 0, false),
            (1, 480 * MS, 500 * MS, true),
            (1, 480 * MS - 1, 0, false),
            (0, 1000 * MS, 0, false),
            (-1, 1000 * MS, 0, false),
            (i32::MIN, 1000 * MS, 0, false),
        ] {
            let is_due = is_due(unacknowledged, quiet, || age);
            let case = format!("{unacknowledged} bytes, quiet {quiet}, age {age} ns");
            assert_eq!(is_due, due, "{case}");
        }
    }

    /// A peer without a path in between: every datagram is answered by then, or would not be.
    #[test]
    fn a_datagram_is_answered_by_then() {
        for gap in [1, 7, 100, 479, 480, 1000] {
            let (mut answered, mut unanswered) = (0, None);
            for now in (gap..20_000).step_by(gap as usize) {
                let first = *unanswered.get_or_insert(now);
                let by = answered_at(first * MS, answered * MS);
                assert!(now * MS <= by, "every {gap} ms: not by {now} ms");
                if is_due(1, (now - answered) * MS, || now * MS) {
                    (answered, unanswered) = (now, None);
                }
            }
            assert!(answered >= 19_000, "every {gap} ms");
        }
    }
}
