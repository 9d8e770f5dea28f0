//! Datagrams that go up by way of GRO ([`xdptun_common::tunnel::join`]).
//!
//! The joiner is the near end of the splitter pair, with its GRO on: what is sent out of the far end
//! passes it. The mark of a packet says on the way that it was restored, and where it belongs.

use aya_ebpf::Global;
use aya_ebpf::bindings::{TC_ACT_SHOT, TC_ACT_UNSPEC};
use aya_ebpf::helpers::bpf_get_smp_processor_id;
use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use aya_ebpf::programs::TcContext;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::join::{JoinMark, LANES as COUNT, Lane, SAMPLE, is_in_use, period};
use xdptun_common::tunnel::outcome::GroStep;

use crate::flow::word::{Variable, Word};
use crate::host::again;
use crate::host::clock::now;
use crate::host::counters::{count, count_all};
use crate::host::interface::{device, interface};
use crate::host::redirect::{send_out, send_up};
use crate::packet::skb::Skb as _;

/// The lanes, by the first byte of [`FlowKey::hash`].
#[map]
pub static LANES: Array<Lane> = Array::with_max_entries(COUNT, 0);

/// The seeds of [`FlowKey::hash`], so that no peer can choose flows that want the lane of another's.
#[unsafe(no_mangle)]
static SEEDS: Global<[u64; 6]> = Global::new([0; 6]);

/// The period in which a datagram was last sent to the joiner.
static SENT_IN: Variable = Variable::zero();

/// Chooses the way of the datagram of a flow that comes at `now`, after `before` others, and marks the
/// packet if it goes to the joiner. Returns whether it does.
#[inline(always)]
pub fn choose(ctx: &TcContext, key: &FlowKey, before: u64, now: u64) -> bool {
    let period = period(now);
    let sent_in = SENT_IN.word();
    let count = match is_in_use(period, sent_in.load() as u32) {
        true => 1,
        false if before.is_multiple_of(u64::from(SAMPLE)) => SAMPLE,
        false => return false,
    };
    if interface(ctx).far_end().is_none() {
        return false;
    }
    let hash = hash(key);
    let at = hash >> 24;
    let Some(place) = LANES.get_ptr_mut(at) else {
        return false;
    };
    // SAFETY: a map value. CPUs that race on it lose counts, and no more.
    let lane = unsafe { &mut *place };
    // 0 marks a lane without owner.
    let owner = hash | 1;
    // SAFETY: no pointers are involved.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    if !lane.choose(owner, period, count, cpu) {
        return false;
    }
    // The detour would overwrite the mark of a user or another program.
    if ctx.mark() != 0 {
        lane.rest(period);
        return false;
    }
    sent_in.refresh(period.into());
    // SAFETY: as above.
    let sent = unsafe { Word::new(&raw mut (*place).sent) };
    let mark = JoinMark {
        lane: at,
        number: sent.fetch_add(1).wrapping_add(1),
    };
    ctx.set_mark(mark.to_raw());
    ctx.set_queue_mapping(lane.queue + 1);
    true
}

/// A subprogram, so that its callers need no stack for the seeds.
#[inline(never)]
fn hash(key: &FlowKey) -> u32 {
    key.hash(&SEEDS.load())
}

/// The verdict that sends a restored datagram to the joiner, which was chosen to go there.
#[inline(always)]
pub fn send(ctx: &TcContext) -> i32 {
    // User space may have taken it away since.
    let Some(far_end) = interface(ctx).far_end() else {
        ctx.set_mark(0);
        ctx.set_queue_mapping(0);
        return TC_ACT_UNSPEC;
    };
    count(interface(ctx), GroStep::RxGroSent);
    again::mark(ctx);
    send_out(far_end)
}

/// What becomes of a packet behind the joiner: if it is on its way, it comes in by the interface
/// again.
#[inline(always)]
pub fn come_back(ctx: &TcContext) -> i32 {
    let home = interface(ctx).index();
    let Some(mark) = under_way(ctx) else {
        return TC_ACT_SHOT;
    };
    // An unknown device counts as its own interface: it would send to itself without end.
    if home == device(ctx) {
        return TC_ACT_SHOT;
    }
    if let Some(lane) = LANES.get_ptr_mut(mark.lane) {
        // SAFETY: as in `choose`.
        unsafe { (*lane).joined(ctx.pieces(), period(now())) }
    }
    // It would seem to be a queue of the interface.
    ctx.set_queue_mapping(0);
    send_up(home)
}

/// The verdict on a packet that came in once more: it goes up.
#[inline(always)]
pub fn land(ctx: &TcContext) -> Option<i32> {
    let mark = under_way(ctx)?;
    let (at, pieces) = (interface(ctx), ctx.pieces());
    count_all(at, GroStep::RxGroReturned, pieces);
    if pieces > 1 {
        count_all(at, GroStep::RxGroMerged, pieces);
    }
    if let Some(lane) = LANES.get_ptr_mut(mark.lane) {
        // SAFETY: as in `choose`.
        unsafe { (*lane).land(mark.number, pieces, period(now())) }
    }
    // The kernel compares the frame's address with the interface's anew, and a bond or a bridge
    // takes those of its ports as well. It took this one before.
    if ctx.is_for_another_host() {
        ctx.take_for_this_host();
    }
    ctx.set_mark(0);
    again::unmark(ctx);
    Some(TC_ACT_UNSPEC)
}

/// Whether a packet is on its way to the joiner or back.
#[inline(always)]
pub fn is_under_way(ctx: &TcContext) -> bool {
    under_way(ctx).is_some()
}

/// The mark of a packet that was sent to the joiner.
#[inline(always)]
fn under_way(ctx: &TcContext) -> Option<JoinMark> {
    // A mark alone may be a user's.
    match again::was_redirected(ctx) {
        true => JoinMark::from_raw(ctx.mark()),
        false => None,
    }
}
