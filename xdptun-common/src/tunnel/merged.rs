//! The order of a flow's segments where GRO has merged some of them.
//!
//! Merged segments pass the splitter. A single one that comes right behind would overtake them, so it
//! takes the same way, as long as the flow has not received all that was sent there. The sequence numbers
//! tell: a segment that comes back lies before the end of what was sent there, so it is not sent again.

use crate::flow::key::FlowKey;
use crate::flow::seq::after;

/// How many lanes there are. Of the flows of a lane, the one whose segments were last sent to the
/// splitter keeps its order.
pub const LANES: u32 = 256;

/// What tells a flow from others, and from itself before it was opened anew. Our initial sequence number is
/// random, but the one that a phantun takes is always the same.
#[inline(always)]
#[must_use]
pub const fn identity(key: &FlowKey, iss: u32, opened_at: u64) -> u32 {
    let [a, b, c, d] = key.address_words();
    let words = a ^ b ^ c ^ d;
    (words ^ words >> 32) as u32 ^ key.port_word() ^ iss ^ opened_at as u32
}

/// The sequence number behind all that a flow has sent to the splitter, and the flow's [`identity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged(pub u64);

impl Merged {
    /// Of a flow with this [`identity`].
    #[inline(always)]
    #[must_use]
    pub const fn new(identity: u32, end: u32) -> Self {
        Self((identity as u64) << 32 | end as u64)
    }

    /// After more of the flow, which expects `rcv_nxt`, were sent, up to `end`. Late ones move it
    /// back only when all others have returned.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, identity: u32, rcv_nxt: u32, end: u32) -> Self {
        let before = self.0 as u32;
        let is_later = after(before, end) && after(before, rcv_nxt);
        match (self.0 >> 32) as u32 == identity && is_later {
            true => self,
            false => Self::new(identity, end),
        }
    }

    /// The lane of a flow. The low bits of its identity differ from flow to flow.
    #[inline(always)]
    #[must_use]
    pub const fn lane(identity: u32) -> u32 {
        identity % LANES
    }

    /// Whether a single segment with the sequence number `sequence`, of a flow that expects
    /// `rcv_nxt`, would overtake others.
    #[inline(always)]
    #[must_use]
    pub const fn are_before(self, identity: u32, rcv_nxt: u32, sequence: u32) -> bool {
        let end = self.0 as u32;
        (self.0 >> 32) as u32 == identity && after(end, rcv_nxt) && !after(end, sequence)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::{FlowKey, Merged, identity};

    const FLOW: u32 = 0x8000_0007;

    /// Our initial number of each flow that calls a phantun is 0.
    #[test]
    fn flows_with_the_same_initial_number_are_told_apart() {
        let to = |last, port| {
            FlowKey::new(
                SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 40000)),
                SocketAddr::from((Ipv4Addr::new(10, 0, 0, last), port)),
            )
        };
        let (opened_at, key) = (5_000_000_000, to(2, 4567));
        let identities = [
            identity(&key, 0, opened_at),
            identity(&key, 0, opened_at + 4_000_000),
            identity(&key, 1, opened_at),
            identity(&to(3, 4567), 0, opened_at),
            identity(&to(2, 4568), 0, opened_at),
        ];
        let different: std::collections::HashSet<u32> = identities.into();
        assert_eq!(different.len(), identities.len(), "{identities:x?}");
    }

    #[test]
    fn a_segment_waits_for_those_of_its_flow_that_were_sent_before_it() {
        // It also holds where the numbers begin again.
        for begin in [1000, u32::MAX - 3000] {
            let at = |number: u32| begin.wrapping_add(number);
            let merged = Merged::new(FLOW, at(5000));
            let are_before = |rcv_nxt, sequence| merged.are_before(FLOW, at(rcv_nxt), at(sequence));
            assert!(are_before(0, 5000) && are_before(4000, 5000) && are_before(4000, 6000));
            // One that comes back, and one that comes late.
            assert!(!are_before(0, 0) && !are_before(3000, 4000) && !are_before(4000, 1000));
            // All have come back, and more.
            assert!(!are_before(5000, 5000) && !are_before(6000, 6000));
            assert!(!merged.are_before(FLOW + 1, begin, at(5000)));
        }
    }

    #[test]
    fn late_ones_do_not_move_the_end_back_while_others_are_on_their_way() {
        let merged = Merged::new(FLOW, 5000);
        assert_eq!(merged.with(FLOW, 3000, 4000), merged);
        assert_eq!(merged.with(FLOW, 3000, 6000), Merged::new(FLOW, 6000));
        assert_eq!(merged.with(FLOW, 5000, 4000), Merged::new(FLOW, 4000));
        assert_eq!(
            merged.with(FLOW + 1, 3000, 4000),
            Merged::new(FLOW + 1, 4000)
        );
    }

    #[test]
    fn one_that_was_sent_there_is_not_sent_again() {
        let (rcv_nxt, sequence, len) = (1000, 5000, 1);
        assert!(Merged::new(FLOW, sequence).are_before(FLOW, rcv_nxt, sequence));
        assert!(!Merged::new(FLOW, sequence + len).are_before(FLOW, rcv_nxt, sequence));
    }
}
