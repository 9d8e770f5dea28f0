//! One direction of a session.
//!
//! A session has an entry for each direction, whose key is the packet as its hook meets it. An
//! entry says what the packet becomes, and what has been seen of its direction. So a packet of
//! an open session costs one look-up, and the two ends write different cache lines.
//! [`Tuple::answer`](super::tuple::Tuple::answer) leads from either entry to the other.

use crate::flow::tick::Tick;
use crate::gateway::tuple::End;
use crate::wire::Flags;

/// What a hook does with the packets of one direction of a session, and what it has seen of
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct Entry {
    /// Packets of this direction.
    pub packets: u64,
    /// Bytes of their IP packets.
    pub bytes: u64,
    /// [`Marks`] of this direction.
    pub marks: u32,
    /// When the last packet of this direction was seen, in ticks.
    pub seen: u32,
    /// When the session began, in ticks.
    pub began: u32,
    /// The sequence number of the last SYN of this direction, in network byte order; of
    /// sessions that are not proven.
    pub number: [u8; 4],
    /// The last acknowledgement number of this direction, in network byte order: the number that
    /// its sender expects next.
    pub expected: [u8; 4],
    /// What the end that the hook translates becomes.
    pub to: End,
    reserved: [u8; 2],
}

crate::plain!(Entry: 56);

impl Entry {
    /// The entry for a packet that was seen just now.
    #[inline(always)]
    #[must_use]
    pub const fn new(to: End, marks: Marks, now: u32) -> Self {
        Self {
            packets: 0,
            bytes: 0,
            marks: marks.0,
            seen: now,
            began: now,
            number: [0; 4],
            expected: [0; 4],
            to,
            reserved: [0; 2],
        }
    }

    /// What has been seen of this direction.
    #[inline(always)]
    #[must_use]
    pub const fn marks(&self) -> Marks {
        Marks(self.marks)
    }

    /// What has been seen of the session, and the time of its last packet.
    #[must_use]
    pub const fn with(&self, opposite: Option<&Self>, now: Tick) -> (Marks, u32) {
        match opposite {
            None => (self.marks(), self.seen),
            Some(opposite) => {
                let marks = self.marks().with(opposite.marks());
                let is_later = now.since(opposite.seen) < now.since(self.seen);
                (marks, if is_later { opposite.seen } else { self.seen })
            }
        }
    }
}

/// Whether an acknowledgement number shows that its sender has seen the SYN of the other end:
/// that SYN, and at most as much data as fits a first window with it (RFC 6928, RFC 7413). One
/// of 262,144 guesses is right.
#[inline(always)]
#[must_use]
pub const fn acknowledges(acknowledgement: u32, syn: u32) -> bool {
    const DATA: u32 = 16_384;
    acknowledgement.wrapping_sub(syn).wrapping_sub(1) < DATA
}

/// The flags of a segment that a session believes: an end with this sequence number, when the
/// other end expects that one, may be forged. A reset counts only with the expected number
/// (RFC 5961 section 3.2), so that one of 2^32 guesses is right. A FIN may follow data that is
/// under way: one of 4,096.
#[inline(always)]
#[must_use]
pub const fn believed(flags: Flags, sequence: u32, expected: u32) -> Flags {
    const UNDER_WAY: u32 = 1 << 20;
    let ahead = sequence.wrapping_sub(expected);
    let mut believed = flags.0;
    if ahead != 0 {
        believed &= !Flags::RST.0;
    }
    if ahead >= UNDER_WAY {
        believed &= !Flags::FIN.0;
    }
    Flags(believed)
}

/// What has been seen of one direction of a session, or of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(pub u32);

impl Marks {
    /// The direction answers the one that began the session.
    const ANSWER: u32 = 1;
    /// The caller went on after an answer. With TCP it has acknowledged the number of the answer,
    /// so it has its address; with UDP that can be forged. Both entries are among those that
    /// last.
    const PROVEN: u32 = 1 << 1;
    /// The session translates the source of another session.
    const MASQUERADE: u32 = 1 << 2;
    /// The caller ended with FIN.
    const CALLER_FIN: u32 = 1 << 3;
    /// The called end did.
    const CALLED_FIN: u32 = 1 << 4;
    /// The end whose direction this is has sent RST, and nothing since.
    const RST: u32 = 1 << 5;
    /// A packet of this direction was seen.
    const USED: u32 = 1 << 6;
    /// A SYN of this direction was seen.
    const SYN: u32 = 1 << 7;
    /// The packets of this direction get another source when they leave, by another session.
    const LEAVES: u32 = 1 << 8;
    /// The session translates an inside end by its binding.
    const BOUND: u32 = 1 << 9;
    /// The binding was told that the session has ended.
    const TOLD: u32 = 1 << 10;

    /// Those of the direction that answers.
    #[inline(always)]
    #[must_use]
    pub const fn in_answer(self) -> Self {
        // What was noted for the caller is the called end's.
        let fin = if self.0 & Self::CALLER_FIN != 0 {
            Self::CALLED_FIN
        } else {
            0
        };
        Self(self.0 & !Self::CALLER_FIN | Self::ANSWER | fin)
    }

    /// Whether the direction answers the one that began the session.
    #[inline(always)]
    #[must_use]
    pub const fn is_answer(self) -> bool {
        self.0 & Self::ANSWER != 0
    }

    /// Those of a session that translates the source of another.
    #[inline(always)]
    #[must_use]
    pub const fn masquerading(self) -> Self {
        Self(self.0 | Self::MASQUERADE)
    }

    /// Whether the session translates the source of another.
    #[inline(always)]
    #[must_use]
    pub const fn is_masquerade(self) -> bool {
        self.0 & Self::MASQUERADE != 0
    }

    /// Those of a direction whose packets get another source when they leave.
    #[inline(always)]
    #[must_use]
    pub const fn leaving(self) -> Self {
        Self(self.0 | Self::LEAVES)
    }

    /// Whether the packets of this direction get another source when they leave.
    #[inline(always)]
    #[must_use]
    pub const fn is_leaving(self) -> bool {
        self.0 & Self::LEAVES != 0
    }

    /// Those of a session that translates an inside end by its binding.
    #[inline(always)]
    #[must_use]
    pub const fn bound(self) -> Self {
        Self(self.0 | Self::BOUND)
    }

    /// Whether the session translates an inside end by its binding.
    #[inline(always)]
    #[must_use]
    pub const fn is_bound(self) -> bool {
        self.0 & Self::BOUND != 0
    }

    /// Those of a session whose end its binding was told.
    #[inline(always)]
    #[must_use]
    pub const fn told(self) -> Self {
        Self(self.0 | Self::TOLD)
    }

    /// Whether the binding was told that the session has ended.
    #[inline(always)]
    #[must_use]
    pub const fn is_told(self) -> bool {
        self.0 & Self::TOLD != 0
    }

    /// Those of a session that both ends have used.
    #[inline(always)]
    #[must_use]
    pub const fn proven(self) -> Self {
        Self(self.0 | Self::PROVEN)
    }

    /// Whether both ends have used the session.
    #[inline(always)]
    #[must_use]
    pub const fn is_proven(self) -> bool {
        self.0 & Self::PROVEN != 0
    }

    /// Whether a packet of this direction was seen.
    #[inline(always)]
    #[must_use]
    pub const fn is_used(self) -> bool {
        self.0 & Self::USED != 0
    }

    /// Whether a SYN of this direction was seen.
    #[inline(always)]
    #[must_use]
    pub const fn has_syn(self) -> bool {
        self.0 & Self::SYN != 0
    }

    /// Those after a packet of this direction with these TCP flags, which are
    /// [`believed`]; none for other protocols.
    #[inline(always)]
    #[must_use]
    pub const fn after(self, flags: Flags) -> Self {
        let mut marks = self.0 | Self::USED;
        if flags.contains(Flags::SYN) {
            marks |= Self::SYN;
        }
        if flags.intersects(Flags::RST) {
            marks |= Self::RST;
        } else {
            // An end that has reset a connection sends no more of it: the reset was forged, or
            // about a connection before.
            marks &= !Self::RST;
        }
        if flags.intersects(Flags::FIN) {
            marks |= match self.is_answer() {
                true => Self::CALLED_FIN,
                false => Self::CALLER_FIN,
            };
        }
        Self(marks)
    }

    /// Those of a direction whose connection begins anew, and has to prove itself again.
    #[inline(always)]
    #[must_use]
    pub const fn reopened(self) -> Self {
        Self(self.0 & (Self::ANSWER | Self::MASQUERADE | Self::LEAVES | Self::BOUND))
    }

    /// Those of both directions together.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether a connection with these marks, of both directions together, has ended: by both
    /// ends, or by a reset of either.
    #[inline(always)]
    #[must_use]
    pub const fn has_ended(self) -> bool {
        const BOTH: u32 = Marks::CALLER_FIN | Marks::CALLED_FIN;
        self.0 & Self::RST != 0 || self.0 & BOTH == BOTH
    }

    /// Whether a FIN or RST was seen in a direction with these marks.
    #[inline(always)]
    #[must_use]
    pub const fn has_fin_or_rst(self) -> bool {
        self.0 & (Self::RST | Self::CALLER_FIN | Self::CALLED_FIN) != 0
    }

    /// Whether the session counts by the entry with these marks: each session once.
    #[inline(always)]
    #[must_use]
    pub const fn is_counted(self) -> bool {
        !self.is_answer() && !self.is_masquerade()
    }
}

/// What came of a packet for its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Noted {
    /// It goes on.
    GoesOn = 0,
    /// It is no answer of the session: the back end talks to the client beside it.
    NotOurs = 1,
    /// It moved to those that last.
    Proven = 2,
    /// It should last, and there is no room.
    Full = 3,
    /// A connection between the same ends begins anew.
    Reopened = 4,
}

crate::from_raw! {
    /// The one with this number; `GoesOn` if there is none.
    pub Noted: u32 { GoesOn, NotOurs, Proven, Full, Reopened } else GoesOn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_ends_by_two_fins_or_one_reset() {
        let call = Marks::default().proven();
        let answer = call.in_answer();
        let ended = |call: Marks, answer: Marks| call.with(answer).has_ended();
        let fin = Flags::FIN.with(Flags::ACK);
        assert!(!ended(call.after(fin), answer));
        assert!(!ended(call, answer.after(fin)));
        assert!(!ended(call.after(fin).after(fin), answer));
        assert!(ended(call.after(fin), answer.after(fin)));
        assert!(ended(call.after(Flags::RST), answer));
        assert!(ended(call, answer.after(Flags::RST)));
    }

    #[test]
    fn only_the_number_of_the_syn_is_acknowledged() {
        for (acknowledgement, syn, expected) in [
            (1, 0, true),
            (0, u32::MAX, true),
            (0, 0, false),
            (16_384, 0, true),
            (16_385, 0, false),
            (5000, 4000, true),
            (4000, 5000, false),
        ] {
            assert_eq!(acknowledges(acknowledgement, syn), expected);
        }
    }

    #[test]
    fn an_end_is_believed_by_its_number() {
        let (fin, rst) = (Flags::FIN.with(Flags::ACK), Flags::RST);
        for (ahead, believes) in [
            (0, [true, true]),
            (1, [true, false]),
            ((1 << 20) - 1, [true, false]),
            (1 << 20, [false, false]),
            (u32::MAX, [false, false]),
        ] {
            let sequence = 0xffff_fff0_u32.wrapping_add(ahead);
            let found = [(fin, Flags::FIN), (rst, Flags::RST)]
                .map(|(flags, end)| believed(flags, sequence, 0xffff_fff0).contains(end));
            assert_eq!(found, believes, "{ahead}");
        }
    }

    #[test]
    fn a_forged_reset_is_over_with_the_next_segment_of_its_end() {
        let call = Marks::default().proven().after(Flags::ACK);
        let reset = call.after(Flags::RST);
        assert!(reset.has_ended());
        assert_eq!(reset.after(Flags::ACK), call);
        // The other end knows nothing of it.
        let answer = call.in_answer().after(Flags::ACK);
        assert!(reset.with(answer).has_ended());
    }

    #[test]
    fn a_new_connection_of_the_same_ends_is_open() {
        let ended = Marks::default().proven().after(Flags::FIN);
        let ended = ended.with(ended.in_answer());
        assert!(ended.has_ended());
        let reopened = ended.reopened();
        assert!(!reopened.has_ended() && !reopened.is_proven());
    }
}
