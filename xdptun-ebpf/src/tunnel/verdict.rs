//! What a decision of the tunnel makes of the packet, and what the entry point does next.

use aya_ebpf::bindings::{TC_ACT_TRAP, TC_ACT_UNSPEC};
use aya_ebpf::programs::TcContext;
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::wire::Ip;

use crate::host::again;
use crate::host::capture::note_answer;
use crate::host::counters::count_packet;
use crate::host::interface::interface;
use crate::host::redirect::send_out;
use crate::host::verdict::end_at_tc;
use crate::packet::direction::Direction;
use crate::packet::error::PacketError;
use crate::tunnel::join;

/// What became of a packet that is ours.
#[derive(Clone, Copy)]
pub enum Verdict {
    /// The outcome decides.
    Ended(Outcome),
    /// The datagram was restored, and goes up by way of the joiner.
    Joining,
    /// The packet was turned into an answer, which leaves where it came in.
    Answered(Outcome),
    /// Nothing yet: its options must be stashed first.
    Stash,
    /// Nothing yet: it is a datagram that must be padded first.
    Pad,
    /// The datagram became a segment, whose payload must be covered.
    Cover,
    /// Nothing yet: it is a segment whose payload must be uncovered first.
    Uncover,
    /// The datagram was restored, and must be unpadded.
    Unpad,
    /// Nothing yet: it is a fragment that leaves, of an owned port or perhaps of one, or a datagram that
    /// leaves as two, or a segment that carries one.
    Fragment,
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

impl Verdict {
    /// What the log shows: the index of the outcome.
    #[inline(always)]
    pub fn index(self) -> u32 {
        match self {
            Self::Ended(outcome) | Self::Answered(outcome) => outcome.index(),
            Self::Joining => Outcome::RxRestored.index(),
            Self::Cover => Outcome::TxDisguised.index(),
            Self::Unpad => Outcome::RxRestored.index(),
            Self::Stash
            | Self::Pad
            | Self::Uncover
            | Self::Fragment
            | Self::Segment
            | Self::Message => u32::MAX,
        }
    }

    /// Counts it, and gives what the entry point does next with a packet of IP version `I`.
    #[inline(always)]
    pub fn carry_out<I: Ip>(self, ctx: &TcContext) -> Step {
        match self {
            Self::Stash => Step::Stash,
            Self::Pad => Step::Pad,
            Self::Cover => Step::Cover,
            Self::Uncover => Step::Uncover,
            Self::Unpad => Step::Unpad,
            Self::Fragment => Step::Fragment,
            Self::Segment => Step::Segment,
            Self::Message => Step::Message,
            Self::Answered(outcome) => {
                let at = interface(ctx);
                count_packet(at, outcome, ctx.len());
                note_answer(ctx, outcome);
                again::mark(ctx);
                Step::Done(send_out(at.index()))
            }
            Self::Ended(outcome) => Step::Done(end_at_tc(ctx, outcome, I::ETHER_TYPE)),
            Self::Joining => {
                end_at_tc(ctx, Outcome::RxRestored, I::ETHER_TYPE);
                Step::Done(join::send(ctx))
            }
        }
    }
}

/// What the entry point of a tc program does next. The programs of each IP version are
/// functions that return a number, so it travels as one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing was decided, nothing changed: process the packet in full.
    Miss,
    /// Return this verdict of tc.
    Done(i32),
    /// Stash the options, and process the packet again.
    Stash,
    /// Pad the datagram, and process the packet again.
    Pad,
    /// Cover the payload of the segment.
    Cover,
    /// Uncover the payload of the segment, and process the packet again.
    Uncover,
    /// Unpad the datagram that was restored.
    Unpad,
    /// Handle the fragment that leaves, or is in the segment that came.
    Fragment,
    /// Note the connection of the segment, and let it pass.
    Segment,
    /// Look into the ICMP message.
    Message,
}

/// The numbers of the steps that are no verdict.
const MISS: i32 = 0x7863;
const STASH: i32 = 0x7864;
const SEGMENT: i32 = 0x7865;
const MESSAGE: i32 = 0x7866;
const FRAGMENT: i32 = 0x7867;
const PAD: i32 = 0x7868;
const COVER: i32 = 0x7869;
const UNCOVER: i32 = 0x786a;
const UNPAD: i32 = 0x786b;

// No verdict of tc, the last of which is `TC_ACT_TRAP`, reads as another step.
const _: () = {
    let mut verdict = TC_ACT_UNSPEC;
    while verdict <= TC_ACT_TRAP {
        assert!(matches!(Step::from_raw(verdict), Step::Done(same) if same == verdict));
        verdict += 1;
    }
    assert!(matches!(Step::from_raw(Step::Miss.to_raw()), Step::Miss));
    assert!(matches!(Step::from_raw(Step::Stash.to_raw()), Step::Stash));
    assert!(matches!(Step::from_raw(Step::Pad.to_raw()), Step::Pad));
    assert!(matches!(Step::from_raw(Step::Cover.to_raw()), Step::Cover));
    assert!(matches!(
        Step::from_raw(Step::Uncover.to_raw()),
        Step::Uncover
    ));
    assert!(matches!(Step::from_raw(Step::Unpad.to_raw()), Step::Unpad));
    assert!(matches!(
        Step::from_raw(Step::Segment.to_raw()),
        Step::Segment
    ));
    assert!(matches!(
        Step::from_raw(Step::Message.to_raw()),
        Step::Message
    ));
    assert!(matches!(
        Step::from_raw(Step::Fragment.to_raw()),
        Step::Fragment
    ));
};

impl Step {
    /// Leave the packet to the filters after ours: `TC_ACT_UNSPEC` is `TCX_NEXT`.
    pub const PASS: Self = Self::Done(TC_ACT_UNSPEC);

    /// Its number.
    #[inline(always)]
    pub const fn to_raw(self) -> i32 {
        match self {
            Self::Done(verdict) => verdict,
            Self::Miss => MISS,
            Self::Stash => STASH,
            Self::Pad => PAD,
            Self::Cover => COVER,
            Self::Uncover => UNCOVER,
            Self::Unpad => UNPAD,
            Self::Segment => SEGMENT,
            Self::Message => MESSAGE,
            Self::Fragment => FRAGMENT,
        }
    }

    /// The step with this number.
    #[inline(always)]
    pub const fn from_raw(number: i32) -> Self {
        match number {
            MISS => Self::Miss,
            STASH => Self::Stash,
            PAD => Self::Pad,
            COVER => Self::Cover,
            UNCOVER => Self::Uncover,
            UNPAD => Self::Unpad,
            SEGMENT => Self::Segment,
            MESSAGE => Self::Message,
            FRAGMENT => Self::Fragment,
            verdict => Self::Done(verdict),
        }
    }
}

/// The outcome of a packet that could not be read or changed.
#[inline(always)]
pub const fn refused(error: PacketError, direction: Direction) -> Outcome {
    match (error, direction) {
        (PacketError::Resize | PacketError::NoScratch, Direction::Outbound) => {
            Outcome::TxDropResize
        }
        (PacketError::Resize | PacketError::NoScratch, Direction::Inbound) => Outcome::RxDropResize,
        (PacketError::Access, Direction::Outbound) => Outcome::TxDropAccess,
        (PacketError::Access, Direction::Inbound) => Outcome::RxDropAccess,
        (PacketError::OutOfBounds, Direction::Outbound) => Outcome::TxDropMalformed,
        (PacketError::TooLong, Direction::Outbound) => Outcome::TxDropTooLong,
        (PacketError::OutOfBounds | PacketError::TooLong, Direction::Inbound) => {
            Outcome::RxDropMalformed
        }
    }
}
