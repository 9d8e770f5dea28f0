//! Events for the daemon.

use aya_ebpf::helpers::generated::bpf_skb_load_bytes;
use aya_ebpf::macros::map;
use aya_ebpf::maps::RingBuf;
use aya_ebpf::maps::ring_buf::RingBufEntry;
use aya_ebpf::programs::TcContext;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::event::{
    Event, Kind, LARGE_FRAME, QueuedFrame, RING_BYTES, SMALL_FRAME,
};

use crate::host::clock::now;
use crate::host::interface::interface;
use crate::packet::skb::Skb as _;
use crate::packet::verifier::bounded;

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
    if ctx.len() as usize <= SMALL_FRAME {
        match EVENTS.reserve::<QueuedFrame<SMALL_FRAME>>(0) {
            Some(entry) => fill(ctx, flow, entry),
            None => false,
        }
    } else {
        match EVENTS.reserve::<QueuedFrame<LARGE_FRAME>>(0) {
            Some(entry) => fill(ctx, flow, entry),
            None => false,
        }
    }
}

#[inline(always)]
fn fill<const N: usize>(
    ctx: &TcContext,
    flow: &FlowKey,
    mut entry: RingBufEntry<QueuedFrame<N>>,
) -> bool {
    let Some(len) = bounded::<N>(ctx.len()) else {
        entry.discard(0);
        return false;
    };
    let queued = entry.as_mut_ptr();
    // SAFETY: the reserved event has room for the head and `N` bytes, and the
    // helper writes `len` <= `N` of them.
    let copied = unsafe {
        (&raw mut (*queued).event).write(head(Kind::Queued, flow, len, interface(ctx).index()));
        bpf_skb_load_bytes(ctx.raw().cast(), 0, (&raw mut (*queued).frame).cast(), len)
    };
    if copied != 0 {
        entry.discard(0);
        return false;
    }
    entry.submit(0);
    true
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
