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
use xdptun_common::parse::{FragmentKey, locate};
use xdptun_common::tunnel::fragment::First;
use xdptun_common::wire::Ip;

use crate::host::clock::now;
use crate::packet::access::View;
use crate::packet::direction::Direction;
use crate::packet::link::link_len;

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

#[inline(always)]
fn note(datagram: &FragmentKey, first: First) {
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

#[inline(always)]
fn key<I: Ip>(ctx: &TcContext, direction: Direction) -> Option<FragmentKey> {
    locate::<I>(&View(ctx), link_len())
        .map(|located| located.fragmented(direction == Direction::Outbound))
}
