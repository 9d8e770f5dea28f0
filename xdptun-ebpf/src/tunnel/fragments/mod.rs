//! Fragments of datagrams, in segments of their own ([`xdptun_common::tunnel::fragment`]). Only the
//! first has ports: what becomes of it is noted, and the others become the same.
//!
//! Fragments of segments are dropped: a device on the path made them in spite of DF.
//!
//! Subprograms that parse again: the common path keeps its stack.

pub mod arriving;
mod cut;
pub mod divide;
pub mod leaving;

use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::macros::map;
use aya_ebpf::maps::LruHashMap;
use aya_ebpf::programs::TcContext;
use xdptun_common::parse::{FragmentKey, Shape, locate};
use xdptun_common::tunnel::fragment::First;
use xdptun_common::wire::Ip;

use crate::host::clock::now;
use crate::packet::access::View;
use crate::packet::direction::Direction;
use crate::packet::link::link_len;
use crate::packet::verifier::bounded;

/// What became of the first fragment of each datagram. LRU, as nothing tells when the last
/// fragment has come.
#[map]
pub static FRAGMENTS: LruHashMap<FragmentKey, First> = LruHashMap::with_max_entries(8192, 0);

/// Notes that a first fragment is dropped.
#[inline(never)]
pub fn refuse<I: Ip>(ctx: &TcContext, direction: Direction) {
    if let Some(key) = key::<I>(ctx, direction) {
        note(&key, First::dropped(now()));
    }
}

/// Whether a later fragment that comes belongs to a datagram whose first was dropped.
#[inline(never)]
pub fn is_dropped<I: Ip>(ctx: &TcContext) -> bool {
    // One that a segment carried is of another datagram: no fragment comes beside the segments.
    let first = key::<I>(ctx, Direction::Inbound).and_then(|key| first(&key));
    first.is_some_and(|first| first.ports().is_none())
}

/// Lets those follow the first fragment in the packet that do, which leaves and is none of ours, but has the
/// number of one of ours. If that left a moment before, its others may still come, and nothing tells them
/// from these: then neither follow.
#[inline(never)]
pub fn make_way<I: Ip>(ctx: &TcContext) {
    let Some(key) = key::<I>(ctx, Direction::Outbound) else {
        return;
    };
    let now = now();
    match first(&key) {
        None => {}
        Some(first) if first.is_leaving(now) => note(&key, First::dropped(now)),
        Some(_) => {
            // Another CPU may have removed it.
            let _ = FRAGMENTS.remove(key);
        }
    }
}

/// Whether the packet that an ICMP error quotes at `at` was a later fragment of a datagram that came in
/// segments.
#[inline(never)]
pub fn are_quoted<I: Ip>(ctx: &TcContext, at: u32) -> bool {
    let Some(at) = bounded::<MAX_QUOTE>(at) else {
        return true;
    };
    let Some(quoted) = locate::<I>(&View(ctx), at as usize) else {
        return false;
    };
    quoted.shape == Shape::LaterFragment
        && first(&quoted.fragmented(false)).is_some_and(|first| first.ports().is_some())
}

/// Where a quote may begin at most.
const MAX_QUOTE: usize = 256;

/// Notes what became of the first fragment of a datagram.
#[inline(always)]
pub fn note(datagram: &FragmentKey, first: First) {
    // If the kernel has no room, the others leave and lead nowhere.
    let _ = FRAGMENTS.insert(datagram, first, u64::from(BPF_ANY));
}

/// What became of the first fragment of a datagram.
#[inline(always)]
fn first(datagram: &FragmentKey) -> Option<First> {
    let first = FRAGMENTS.get_ptr(datagram)?;
    // SAFETY: a map value, which stays readable for the whole program run.
    let first = unsafe { first.read_volatile() };
    first.lasts(now()).then_some(first)
}

/// What became of the first fragment of a datagram, if others may follow it now.
#[inline(always)]
pub fn followed(datagram: &FragmentKey) -> Option<First> {
    first(datagram).filter(|first| first.is_followed(now()))
}

#[inline(always)]
fn key<I: Ip>(ctx: &TcContext, direction: Direction) -> Option<FragmentKey> {
    locate::<I>(&View(ctx), link_len())
        .map(|located| located.fragmented(direction == Direction::Outbound))
}
