//! Events for the daemon.

use aya_ebpf::macros::map;
use aya_ebpf::maps::RingBuf;
use aya_ebpf::programs::TcContext;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::event::{Event, Kind, RING_BYTES, SMALL_FRAME};

use crate::host::clock::now;
use crate::host::frame::hand_over_whole;
use crate::host::interface::interface;

/// Events for the daemon (`xdptun_common::tunnel::event`).
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(RING_BYTES, 0);

/// Tells the daemon what happened to a flow. Lost if the ring is full: the
/// daemon also looks at the table by itself.
#[inline(always)]
pub fn report(kind: Kind, flow: &FlowKey) {
    if let Some(mut entry) = EVENTS.reserve::<Event>(0) {
        entry.write(head(kind, flow, 0, 0));
        entry.submit(0);
    }
}

/// Copies the packet to the daemon, to be sent again when the handshake is
/// done. `false` if the daemon does not keep up.
#[inline(always)]
pub fn queue_frame(ctx: &TcContext, flow: &FlowKey) -> bool {
    let event = |len| head(Kind::Queued, flow, len, interface(ctx).index());
    hand_over_whole::<_, SMALL_FRAME>(&EVENTS, ctx, event)
}

#[inline(always)]
fn head(kind: Kind, flow: &FlowKey, len: u32, interface: u32) -> Event {
    Event {
        kind: kind as u32,
        len,
        at: now(),
        flow: *flow,
        interface,
    }
}
