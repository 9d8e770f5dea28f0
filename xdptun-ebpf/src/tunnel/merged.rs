//! Merged segments, and single ones behind them ([`xdptun_common::tunnel::merged`]).

use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use aya_ebpf::programs::TcContext;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::flow::seq::near;
use xdptun_common::parse::{Bytes as _, Located};
use xdptun_common::tunnel::handshake::Segment;
use xdptun_common::tunnel::join::{is_in_use, period};
use xdptun_common::tunnel::merged::{LANES, Merged, identity};
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::state::MAX_STEP;
use xdptun_common::wire::{Ip, TcpHeader};

use crate::flow::word::{Variable, Word};
use crate::host::clock::now;
use crate::host::interface::interface;
use crate::packet::access::View;
use crate::packet::skb::Skb as _;
use crate::tunnel::ingress::segment;
use crate::tunnel::table::Entry;

/// What flows have sent to the splitter ([`Merged`]), by [`Merged::lane`].
#[map]
pub static MERGED: Array<u64> = Array::with_max_entries(LANES, 0);

/// The period in which a segment was last sent there.
static SENT_IN: Variable = Variable::zero();

/// Whether merged segments of this flow are on their way through the splitter, and a single one would
/// overtake them.
#[inline(always)]
pub fn are_before(key: &FlowKey, flow: Entry, segment: &Segment, now: u64) -> bool {
    if segment.len == 0 || !is_in_use(period(now), SENT_IN.word().load() as u32) {
        return false;
    }
    let identity = identity(key, flow.iss(), flow.opened_at());
    lane(identity).is_some_and(|lane| {
        Merged(lane.load()).are_before(identity, flow.rcv_nxt(), segment.sequence)
    })
}

/// The outcome of merged segments, and of a single one that would overtake some; the lane of the flow
/// then keeps where they end. `None` for every other segment.
#[inline(always)]
pub fn split<I: Ip>(
    ctx: &TcContext,
    located: &Located<I>,
    key: &FlowKey,
    flow: Option<Entry>,
) -> Option<Outcome> {
    let is_merged = ctx.is_super_packet();
    if interface(ctx).near_end().is_none() {
        return is_merged.then_some(Outcome::RxDropMerged);
    }
    let of_merged = is_merged.then_some(Outcome::RxSplit);
    let Some(flow) = flow else {
        return of_merged;
    };
    let tcp = View(ctx).read::<TcpHeader>(located.offset);
    let Some(segment) = tcp.and_then(|tcp| segment(&tcp, located.len)) else {
        return of_merged;
    };
    let now = now();
    if !is_merged && !are_before(key, flow, &segment, now) {
        return None;
    }
    let rcv_nxt = flow.rcv_nxt();
    let identity = identity(key, flow.iss(), flow.opened_at());
    // A forged one would make others overtake.
    if near(segment.sequence, rcv_nxt, MAX_STEP)
        && let Some(lane) = lane(identity)
    {
        SENT_IN.word().refresh(period(now).into());
        lane.store(Merged(lane.load()).with(identity, rcv_nxt, segment.end()).0);
    }
    of_merged.or(Some(Outcome::RxBehindMerged))
}

/// The word of the lane of a flow.
#[inline(always)]
fn lane(identity: u32) -> Option<Word<u64>> {
    let place = MERGED.get_ptr_mut(Merged::lane(identity))?;
    // SAFETY: a map value.
    Some(unsafe { Word::new(place) })
}
