//! What becomes of a packet, and how the kernel is told.

use aya_ebpf::bindings::{TC_ACT_SHOT, TC_ACT_UNSPEC};
use aya_ebpf::programs::TcContext;
use xdptun_common::tunnel::outcome::{Fate, Outcome};
use xdptun_common::wire::Ip;

use crate::host::capture::{note, note_answer};
use crate::host::counters::count;
use crate::host::interface::ifindex;
use crate::host::redirect::{send_out, send_up, swallow};
use crate::host::split::hand_over;

/// What became of a packet that is ours.
#[derive(Clone, Copy)]
pub enum Verdict {
    /// The outcome decides.
    Ended(Outcome),
    /// The packet was turned into an answer, which leaves where it came in.
    Answered(Outcome),
    /// Nothing yet: its options must be set aside first.
    SetAside,
    /// Nothing: it is a segment that leaves from an owned port. Its connection is noted.
    Segment,
    /// Nothing yet: it is an ICMP message that leaves.
    Message,
}

impl From<Outcome> for Verdict {
    #[inline(always)]
    fn from(outcome: Outcome) -> Self {
        Self::Ended(outcome)
    }
}

/// Stands for [`Verdict::SetAside`]; no verdict of the kernel's.
pub const SET_ASIDE: i32 = 0x7864;
/// Stands for [`Verdict::Segment`].
pub const SEGMENT: i32 = 0x7865;
/// Stands for [`Verdict::Message`].
pub const MESSAGE: i32 = 0x7866;

impl Verdict {
    /// What the log shows: the index of the outcome.
    #[inline(always)]
    pub fn index(self) -> u32 {
        match self {
            Self::Ended(outcome) | Self::Answered(outcome) => outcome.index(),
            Self::SetAside | Self::Segment | Self::Message => u32::MAX,
        }
    }

    /// Counts it, and gives tc's verdict for a packet of IP version `I`, or
    /// what stands for the others. `TC_ACT_UNSPEC` is `TCX_NEXT`: filters after ours still
    /// see the packet.
    #[inline(always)]
    pub fn carry_out<I: Ip>(self, ctx: &TcContext) -> i32 {
        match self {
            Self::SetAside => SET_ASIDE,
            Self::Segment => SEGMENT,
            Self::Message => MESSAGE,
            Self::Answered(outcome) => {
                count(outcome);
                note_answer(ctx, outcome);
                send_out(ifindex())
            }
            Self::Ended(outcome) => {
                count(outcome);
                note(ctx, outcome);
                match outcome.fate() {
                    Fate::Pass => TC_ACT_UNSPEC,
                    Fate::Split => hand_over(ctx, I::ETHER_TYPE),
                    Fate::Return => send_up(ifindex()),
                    Fate::Take => swallow(),
                    Fate::Drop => TC_ACT_SHOT,
                }
            }
        }
    }
}

/// Counts and drops.
#[inline(always)]
pub fn drop(ctx: &TcContext, outcome: Outcome) -> i32 {
    count(outcome);
    note(ctx, outcome);
    TC_ACT_SHOT
}
