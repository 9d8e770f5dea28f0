//! Fragments. Part of a datagram cannot become a segment. The program drops the
//! first fragment, which has the ports, and remembers the datagram to drop its
//! other fragments.
//!
//! Subprograms that parse again: the common path keeps its stack.

use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::macros::map;
use aya_ebpf::maps::LruHashMap;
use aya_ebpf::programs::TcContext;
use xdptun_common::parse::{FragmentKey, locate};
use xdptun_common::wire::Ip;

use crate::host::clock::now;
use crate::packet::access::View;
use crate::packet::direction::Direction;
use crate::packet::link::link_len;

/// Datagrams whose first fragment was dropped, and when (nanoseconds). LRU, as
/// nothing tells when the last fragment has come.
#[map]
pub static FRAGMENTS: LruHashMap<FragmentKey, u64> = LruHashMap::with_max_entries(8192, 0);

/// How long fragments of one datagram may be apart: what Linux waits for them
/// (`net.ipv4.ipfrag_time`). Later the number may be another datagram's.
const LIFETIME_NS: u64 = 30_000_000_000;

/// Remembers the datagram of a first fragment that is dropped.
#[inline(never)]
pub fn refuse<I: Ip>(ctx: &TcContext, direction: Direction) {
    if let Some(key) = key::<I>(ctx, direction) {
        // If the kernel has no room, the others leave and lead nowhere.
        let _ = FRAGMENTS.insert(key, now(), u64::from(BPF_ANY));
    }
}

/// Whether a later fragment belongs to such a datagram.
#[inline(never)]
pub fn is_refused<I: Ip>(ctx: &TcContext, direction: Direction) -> bool {
    let Some(refused_at) = key::<I>(ctx, direction).and_then(|key| FRAGMENTS.get_ptr(key)) else {
        return false;
    };
    // SAFETY: a map value, which stays readable for the whole program run.
    let refused_at = unsafe { refused_at.read_volatile() };
    // Another CPU's clock may have been a tick ahead.
    now().saturating_sub(refused_at) < LIFETIME_NS
}

#[inline(always)]
fn key<I: Ip>(ctx: &TcContext, direction: Direction) -> Option<FragmentKey> {
    locate::<I>(&View(ctx), link_len())
        .map(|located| located.fragmented(direction == Direction::Outbound))
}
