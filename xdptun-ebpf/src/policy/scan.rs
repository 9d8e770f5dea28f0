//! The search, in global functions (the verifier's word): the verifier walks each once, and their
//! loops are bounded for kernels before 5.17.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::helpers::generated::bpf_skb_load_bytes;
use aya_ebpf::programs::TcContext;
use xdptun_common::policy::rule::Rule;
use xdptun_common::policy::search::{
    Chunk, Found, GROUP, LEAD, MAX_CHUNKS, MAX_STEPS, STEP, WINDOW, group, is_at, look, sample,
};
use xdptun_common::policy::table::{Entry, MAX_PATTERN, MAX_STRIDE};

use crate::packet::skb::Skb as _;
use crate::packet::verifier::bounded;
use crate::policy::at_hand::{AtHand, Memory, at_hand};
use crate::policy::rules::rule;

/// What a search came to, as numbers that global functions return.
pub const NOTHING: u32 = 0;
/// See [`NOTHING`]. Where is noted in [`AtHand::found`].
pub const MATCH: u32 = 1;
/// See [`NOTHING`].
pub const CUT: u32 = 2;

/// Searches the part of the payload that a rule names.
#[inline(always)]
pub fn search(ctx: &TcContext, at_hand: &mut AtHand, rule: &Rule, place: u32) -> u32 {
    let (first, len) = rule.part(at_hand.len);
    at_hand.steps = MAX_STEPS;
    let begin = at_hand.payload + first;
    for number in 0..MAX_CHUNKS {
        let Some(chunk) = Chunk::nth(number, len) else {
            break;
        };
        at_hand.chunk = chunk;
        if policy_load(ctx.raw(), begin) == 0 {
            break;
        }
        let found = policy_scan(place);
        if found != NOTHING {
            return found;
        }
    }
    NOTHING
}

/// Loads the window of the chunk at hand, of a payload that begins at `begin`; 0 if the packet ends
/// before it, which its headers deny.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn policy_load(skb: *mut __sk_buff, begin: u32) -> u32 {
    let Some(at_hand) = at_hand() else {
        return 0;
    };
    let chunk = at_hand.chunk;
    let from = begin.wrapping_add(chunk.first());
    let window = at_hand.window.as_mut_ptr();
    // SAFETY: the context is valid, and the helper writes as many bytes as fit.
    let result = unsafe {
        // Two calls with bounds of their own: the verifier adds up the largest of both.
        if chunk.base == 0 {
            let Some(len) = bounded::<{ STEP + MAX_PATTERN }>(chunk.loaded()) else {
                return 0;
            };
            bpf_skb_load_bytes(skb.cast(), from, window.add(LEAD).cast(), len)
        } else {
            let Some(len) = bounded::<WINDOW>(chunk.loaded()) else {
                return 0;
            };
            bpf_skb_load_bytes(skb.cast(), from, window.cast(), len)
        }
    };
    u32::from(result == 0)
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
