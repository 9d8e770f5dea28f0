//! Fragments. Half a datagram cannot become a segment, so the first fragment,
//! which names the ports, is dropped, and the others, which do not, with it.
//!
//! Subprograms that parse again: the common path keeps its stack.

use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::programs::TcContext;
use xdptun_common::parse::{FragmentKey, locate};
use xdptun_common::wire::Ip;

use crate::control::Was;
use crate::maps::{FRAGMENTS, link_len};
use crate::packet::{View, now};

/// How long fragments of one datagram may be apart: what Linux waits for them
/// (`net.ipv4.ipfrag_time`). Later the number may be another datagram's.
const LIFETIME_NS: u64 = 30_000_000_000;

/// Remembers the datagram of a first fragment that is dropped.
#[inline(never)]
pub fn refuse<I: Ip>(ctx: &TcContext, way: Was) {
    if let Some(key) = key::<I>(ctx, way) {
        // If the kernel has no room, the others leave and lead nowhere.
        let _ = FRAGMENTS.insert(key, now(), u64::from(BPF_ANY));
    }
}

/// Whether a later fragment belongs to such a datagram.
#[inline(never)]
pub fn is_refused<I: Ip>(ctx: &TcContext, way: Was) -> bool {
    let Some(refused_at) = key::<I>(ctx, way).and_then(|key| FRAGMENTS.get_ptr(key)) else {
        return false;
    };
    // SAFETY: a map value, which stays readable for the whole program run.
    now().wrapping_sub(unsafe { refused_at.read_volatile() }) < LIFETIME_NS
}

#[inline(always)]
fn key<I: Ip>(ctx: &TcContext, way: Was) -> Option<FragmentKey> {
    locate::<I>(&View(ctx), link_len()).map(|located| located.fragmented(way == Was::Outbound))
}
