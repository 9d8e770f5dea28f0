//! Frames for the daemon.

use aya_ebpf::helpers::generated::bpf_skb_load_bytes;
use aya_ebpf::maps::RingBuf;
use aya_ebpf::programs::TcContext;
use xdptun_common::report::frame::{Framed, LARGE_FRAME};

use crate::packet::skb::Skb as _;
use crate::packet::verifier::bounded;

/// Copies a packet into a ring buffer, behind an event that gets its length: in `SMALL` bytes if it
/// fits there. `false` if the daemon does not keep up.
#[inline(always)]
pub fn hand_over_whole<E: Copy + 'static, const SMALL: usize>(
    ring: &RingBuf,
    ctx: &TcContext,
    event: impl FnOnce(u32) -> E,
) -> bool {
    let len = ctx.len();
    if len as usize <= SMALL {
        hand_over::<E, SMALL>(ring, ctx, len, event)
    } else {
        hand_over::<E, LARGE_FRAME>(ring, ctx, len, event)
    }
}

/// Copies the first `len` bytes of a packet into a ring buffer, behind an event that says how
/// many they are. `false` if they are more than `N`, or the daemon does not keep up.
#[inline(always)]
pub fn hand_over<E: Copy + 'static, const N: usize>(
    ring: &RingBuf,
    ctx: &TcContext,
    len: u32,
    event: impl FnOnce(u32) -> E,
) -> bool {
    let Some(mut entry) = ring.reserve::<Framed<E, N>>(0) else {
        return false;
    };
    let Some(len) = bounded::<N>(len) else {
        entry.discard(0);
        return false;
    };
    let framed = entry.as_mut_ptr();
    // SAFETY: the reserved entry has room for the event and `N` bytes, and the
    // helper writes `len` <= `N` of them.
    let copied = unsafe {
        (&raw mut (*framed).event).write(event(len));
        bpf_skb_load_bytes(ctx.raw().cast(), 0, (&raw mut (*framed).frame).cast(), len)
    };
    if copied != 0 {
        entry.discard(0);
        return false;
    }
    entry.submit(0);
    true
}
