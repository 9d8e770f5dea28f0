//! The order of a flow's segments where GRO has merged some of them.
//!
//! Merged segments pass the splitter. A single one that comes right behind would overtake them, so it
//! takes the same way, as long as the flow has not received all that was sent there. The sequence numbers
//! tell: a segment that comes back lies before the end of what was sent there, so it is not sent again.

use crate::flow::seq::after;

/// How many lanes there are. Of the flows of a lane, the one whose segments were last sent to the
/// splitter keeps its order.
pub const LANES: u32 = 256;

/// The sequence number behind all that a flow has sent to the splitter, and our initial one, which tells
/// the flow from others of its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged(pub u64);

impl Merged {
    /// Of a flow whose own initial sequence number is `iss`.
    #[inline(always)]
    #[must_use]
    pub const fn new(iss: u32, end: u32) -> Self {
        Self((iss as u64) << 32 | end as u64)
    }

    /// After more of the flow `iss`, which expects `rcv_nxt`, were sent, up to `end`. Late ones move it
    /// back only when all others have returned.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, iss: u32, rcv_nxt: u32, end: u32) -> Self {
        let before = self.0 as u32;
        let is_later = after(before, end) && after(before, rcv_nxt);
        match (self.0 >> 32) as u32 == iss && is_later {
            true => self,
            false => Self::new(iss, end),
        }
    }

    /// The lane of a flow. The low bits of the number are random.
    #[inline(always)]
    #[must_use]
    pub const fn lane(iss: u32) -> u32 {
        iss % LANES
    }

    /// Whether a single segment with the sequence number `sequence`, of the flow `iss` that expects
    /// `rcv_nxt`, would overtake others.
    #[inline(always)]
    #[must_use]
    pub const fn are_before(self, iss: u32, rcv_nxt: u32, sequence: u32) -> bool {
        let end = self.0 as u32;
        (self.0 >> 32) as u32 == iss && after(end, rcv_nxt) && !after(end, sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::Merged;

    const ISS: u32 = 0x8000_0007;

    #[test]
    fn a_segment_waits_for_those_of_its_flow_that_were_sent_before_it() {
        // It also holds where the numbers begin again.
        for begin in [1000, u32::MAX - 3000] {
            let at = |number: u32| begin.wrapping_add(number);
            let merged = Merged::new(ISS, at(5000));
            let are_before = |rcv_nxt, sequence| merged.are_before(ISS, at(rcv_nxt), at(sequence));
            assert!(are_before(0, 5000) && are_before(4000, 5000) && are_before(4000, 6000));
            // One that comes back, and one that comes late.
            assert!(!are_before(0, 0) && !are_before(3000, 4000) && !are_before(4000, 1000));
            // All have come back, and more.
            assert!(!are_before(5000, 5000) && !are_before(6000, 6000));
            assert!(!merged.are_before(ISS + 1, begin, at(5000)));
        }
    }

    #[test]
    fn late_ones_do_not_move_the_end_back_while_others_are_on_their_way() {
        let merged = Merged::new(ISS, 5000);
        assert_eq!(merged.with(ISS, 3000, 4000), merged);
        assert_eq!(merged.with(ISS, 3000, 6000), Merged::new(ISS, 6000));
        assert_eq!(merged.with(ISS, 5000, 4000), Merged::new(ISS, 4000));
        assert_eq!(merged.with(ISS + 1, 3000, 4000), Merged::new(ISS + 1, 4000));
    }

    #[test]
    fn one_that_was_sent_there_is_not_sent_again() {
        let (rcv_nxt, sequence, len) = (1000, 5000, 1);
        assert!(Merged::new(ISS, sequence).are_before(ISS, rcv_nxt, sequence));
        assert!(!Merged::new(ISS, sequence + len).are_before(ISS, rcv_nxt, sequence));
    }
}
