//! The search, in global functions (the verifier's word): the verifier walks each once, and their
//! loops are bounded for kernels before 5.17. What needs the packet stands between them.

use aya_ebpf::helpers::generated::bpf_skb_load_bytes;
use aya_ebpf::programs::TcContext;
use xdptun_common::policy::search::{
    Chunk, Found, GROUP, LEAD, MAX_CHUNKS, STEP, WINDOW, group, is_at, look, sample,
};
use xdptun_common::policy::table::{Entry, MAX_STRIDE};

use crate::packet::skb::Skb as _;
use crate::packet::verifier::bounded;
use crate::policy::at_hand::{Memory, at_hand};
use crate::policy::rules::rule;

/// What a search came to, as numbers that global functions return.
pub const NOTHING: u32 = 0;
/// See [`NOTHING`]. Where is noted in [`found`](crate::policy::at_hand::AtHand::found).
pub const MATCH: u32 = 1;
/// See [`NOTHING`].
pub const CUT: u32 = 2;

/// Searches the part of the payload that the rule at a place names.
#[inline(always)]
pub fn search(ctx: &TcContext, place: u32) -> u32 {
    for number in 0..MAX_CHUNKS as u32 {
        if !load_window(ctx, policy_chunk(place, number)) {
            break;
        }
        let found = policy_scan(place);
        if found != NOTHING {
            return found;
        }
    }
    NOTHING
}

/// Makes the chunk with this number, of what the rule at a place searches, the one at hand. What is to
/// be loaded, from the lowest bit: how many bytes (16 bits), where in the window (16), where in the
/// packet (32); 0 if there is no such chunk.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn policy_chunk(place: u32, number: u32) -> u64 {
    let (Some(at_hand), Some(rule)) = (at_hand(), rule(place)) else {
        return 0;
    };
    let (first, len) = rule.part(at_hand.len);
    let Some(chunk) = Chunk::nth(number as usize, len) else {
        return 0;
    };
    at_hand.chunk = chunk;
    let from = at_hand.payload + first + chunk.first();
    let at = if chunk.base == 0 { LEAD as u32 } else { 0 };
    u64::from(from) << 32 | u64::from(at << 16 | chunk.loaded())
}

/// Loads what [`policy_chunk`] tells; whether there is a chunk, and the packet is as long as its headers
/// say.
#[inline(always)]
fn load_window(ctx: &TcContext, chunk: u64) -> bool {
    let (Some(len), Some(at_hand)) = (bounded::<WINDOW>(chunk as u32 & 0xffff), at_hand()) else {
        return false;
    };
    let at = (chunk >> 16) as usize & LEAD;
    let window = at_hand.window.as_mut_ptr().wrapping_add(at);
    let from = (chunk >> 32) as u32;
    // SAFETY: the context is valid, and the memory has room for a window that begins at `LEAD`.
    unsafe { bpf_skb_load_bytes(ctx.raw().cast(), from, window.cast(), len) == 0 }
}

/// Looks for the patterns of the rule at a place in the chunk at hand.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn policy_scan(place: u32) -> u32 {
    let (Some(at_hand), Some(rule)) = (at_hand(), rule(place)) else {
        return NOTHING;
    };
    let (table, chunk, window) = (&rule.table, at_hand.chunk, Memory::of(at_hand));
    let mut found = NOTHING;
    let meets = |at| {
        found = policy_group(place, at);
        found != NOTHING
    };
    match table.stride() {
        8 => sample::<8>(table, &window, chunk, meets),
        4 => sample::<4>(table, &window, chunk, meets),
        2 => sample::<2>(table, &window, chunk, meets),
        _ => sample::<1>(table, &window, chunk, meets),
    }
    found
}

/// Looks for the patterns of the rule at the places of a group.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn policy_group(place: u32, at: u32) -> u32 {
    let (Some(at_hand), Some(rule)) = (at_hand(), rule(place)) else {
        return NOTHING;
    };
    if at >= STEP as u32 {
        return NOTHING;
    }
    let meets = |at, bucket: u8| match policy_look(place, at, bucket.into()) {
        NOTHING => Found::Nothing,
        MATCH => Found::Match(0),
        _ => Found::Cut,
    };
    number(group(&rule.table, &Memory::of(at_hand), at, meets))
}

/// Looks for the patterns of a bucket at a place of the chunk at hand.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn policy_look(place: u32, at: u32, bucket: u32) -> u32 {
    let (Some(at_hand), Some(rule)) = (at_hand(), rule(place)) else {
        return NOTHING;
    };
    // The last group may end behind the chunk.
    if at >= (STEP + GROUP * MAX_STRIDE) as u32 {
        return NOTHING;
    }
    let (chunk, window) = (at_hand.chunk, Memory::of(at_hand));
    let steps = &mut at_hand.steps;
    let take = |wanted| {
        let is_left = *steps >= wanted;
        if is_left {
            *steps -= wanted;
        }
        is_left
    };
    let is_there =
        |entry: &Entry, at| policy_is_at(place, at, entry.pattern.into(), entry.len.into()) != 0;
    let found = look(
        &rule.table,
        &window,
        chunk,
        (at, bucket as u8),
        take,
        is_there,
    );
    if let Found::Match(start) = found {
        at_hand.found = start;
    }
    number(found)
}

/// What a search came to, as a number.
#[inline(always)]
const fn number(found: Found) -> u32 {
    match found {
        Found::Nothing => NOTHING,
        Found::Match(_) => MATCH,
        Found::Cut => CUT,
    }
}

/// Whether a pattern is at a place of the window.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn policy_is_at(place: u32, at: u32, pattern: u32, len: u32) -> u32 {
    let (Some(at_hand), Some(rule)) = (at_hand(), rule(place)) else {
        return 0;
    };
    if at >= (LEAD + STEP + GROUP * MAX_STRIDE) as u32 {
        return 0;
    }
    let window = Memory::of(at_hand);
    is_at(&rule.table, &window, at as usize, pattern as u8, len as u8).into()
}
