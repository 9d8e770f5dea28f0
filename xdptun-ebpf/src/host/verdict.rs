//! Maps the fate of a packet to verdicts of tc and XDP.

use aya_ebpf::bindings::{TC_ACT_SHOT, TC_ACT_UNSPEC, xdp_action};
use aya_ebpf::programs::TcContext;
use xdptun_common::report::outcome::{Ending, Fate};
use xdptun_common::wire::EtherType;

use crate::host::again;
use crate::host::capture::note;
use crate::host::counters::count_packet;
use crate::host::interface::{Interface, interface};
use crate::host::redirect::{send_up, swallow};
use crate::host::split::hand_over;

/// What a hook does with a packet.
enum Action {
    Pass,
    Split,
    ComeIn,
    Return,
    Swallow,
    Drop,
}

/// What a hook does with a packet of this fate.
#[inline(always)]
const fn action(fate: Fate) -> Action {
    match fate {
        Fate::Pass | Fate::PassEmpty => Action::Pass,
        Fate::Split => Action::Split,
        Fate::ComeIn => Action::ComeIn,
        Fate::Return => Action::Return,
        Fate::Hold => Action::Swallow,
        Fate::Consume | Fate::Lose => Action::Drop,
    }
}

/// Counts how a packet ended at tc, and gives the verdict.
#[inline(always)]
pub fn end_at_tc<E: Ending>(ctx: &TcContext, ending: E, ether_type: EtherType) -> i32 {
    let at = interface(ctx);
    count_packet(at, ending, ctx.len());
    note(ctx, ending);
    match action(ending.fate()) {
        Action::Pass => TC_ACT_UNSPEC,
        Action::Split => hand_over(ctx, ether_type),
        Action::ComeIn => send_up(at.index()),
        Action::Return => {
            // An answer to a piece of a super-packet has its mark.
            again::unmark(ctx);
            send_up(at.index())
        }
        Action::Swallow => swallow(),
        Action::Drop => TC_ACT_SHOT,
    }
}

/// Counts how a packet of `len` bytes ended at XDP, and gives the verdict. XDP can send nothing to the
/// splitter or back, and has no sender to please.
#[inline(always)]
pub fn end_at_xdp<E: Ending>(at: Interface, ending: E, len: usize) -> u32 {
    count_packet(at, ending, len as u32);
    match action(ending.fate()) {
        Action::Pass => xdp_action::XDP_PASS,
        Action::Split | Action::ComeIn | Action::Return | Action::Swallow | Action::Drop => {
            xdp_action::XDP_DROP
        }
    }
}

/// Counts and drops.
#[inline(always)]
pub fn drop<E: Ending>(ctx: &TcContext, ending: E) -> i32 {
    count_packet(interface(ctx), ending, ctx.len());
    note(ctx, ending);
    TC_ACT_SHOT
}
