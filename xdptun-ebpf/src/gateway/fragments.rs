//! Fragments. Only the first has ports. It is translated like a whole packet, and the others
//! get the address that it got. One that comes before the first goes on as it is.

use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::macros::map;
use aya_ebpf::maps::LruHashMap;
use aya_ebpf::programs::TcContext;
use xdptun_common::gateway::outcome::Outcome;
use xdptun_common::gateway::tuple::{End, Side};
use xdptun_common::parse::{FragmentKey, Located};
use xdptun_common::wire::Ip;

use crate::gateway::rewrite::write_address;
use crate::host::clock::now;
use crate::packet::error::PacketError;
use crate::packet::link::link_len;
use crate::packet::resize::make_linear;

/// Datagrams whose first fragment was translated.
#[map]
pub static TRANSLATED: LruHashMap<FragmentKey, Translated> = LruHashMap::with_max_entries(8192, 0);

/// What became of a first fragment.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Translated {
    /// When, in nanoseconds.
    at: u64,
    to: End,
    outcome: u8,
    reserved: [u8; 5],
}

/// How long fragments of one datagram may be apart: what Linux waits for them
/// (`net.ipv4.ipfrag_time`). Later the number may be another datagram's.
const LIFETIME_NS: u64 = 30_000_000_000;

/// Notes what the first fragment becomes.
#[inline(always)]
pub fn note<I: Ip>(located: &Located<I>, side: Side, to: End, outcome: Outcome) {
    let translated = Translated {
        at: now(),
        to,
        outcome: outcome.index() as u8,
        reserved: [0; 5],
    };
    // If the kernel has no room, the others go on as they are and lead nowhere.
    let _ = TRANSLATED.insert(key(located, side), translated, u64::from(BPF_ANY));
}

/// Translates a later fragment, which ends as its first; `None` if that was not translated.
#[inline(always)]
pub fn follow<I: Ip>(
    ctx: &TcContext,
    located: &Located<I>,
    side: Side,
) -> Option<Result<Outcome, PacketError>> {
    let found = TRANSLATED.get_ptr(key(located, side))?;
    // SAFETY: a map value, which stays readable for the whole program run.
    let Translated {
        at, to, outcome, ..
    } = unsafe { found.read() };
    if now().wrapping_sub(at) >= LIFETIME_NS {
        return None;
    }
    let written = make_linear(ctx, link_len() + I::LEN);
    let outcome = *Outcome::ALL.get(usize::from(outcome))?;
    let written = written.and_then(|()| write_address::<I>(ctx, side, to));
    Some(written.map(|()| outcome))
}

#[inline(always)]
fn key<I: Ip>(located: &Located<I>, side: Side) -> FragmentKey {
    located.fragmented(side == Side::Out)
}
