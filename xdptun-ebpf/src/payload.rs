//! The sum of a payload, the one pass over data that cannot be avoided.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use xdptun_common::checksum::Sum;

use crate::opaque::opaque;
use crate::packet::{Packet as _, Skb as _};
use crate::resize::{ResizeError, make_linear};

/// Bytes added up in one step.
const BLOCK: usize = 64;
/// The longest run that is added up; jumbo frames fit. A bound that the
/// verifier can walk.
const MAX_LEN: usize = 16 * 1024;

/// Adds up `len` bytes from `offset`, which must be even.
#[inline(always)]
pub fn sum(ctx: &TcContext, offset: usize, len: usize) -> Result<Sum, ResizeError> {
    if len > MAX_LEN || (ctx.len() as usize) < offset + len {
        return Err(ResizeError);
    }
    make_linear(ctx, offset + len)?;
    let sum = xdptun_sum(ctx.raw(), offset as u32, len as u32);
    Ok(Sum::new().words(sum.to_ne_bytes()))
}

/// See [`sum`].
///
/// A global function (the verifier's word), which the verifier walks once and
/// not once for each way that leads to it. For the same reason each step starts
/// from an offset that is computed from `len` anew: had it come out of the loop
/// before, the verifier would follow what comes after once for each way out of
/// that loop.
///
/// 32-bit loads into a 64-bit accumulator: no carry to handle, so a load and an
/// add for four bytes.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn xdptun_sum(skb: *mut __sk_buff, offset: u32, len: u32) -> u32 {
    let ctx = TcContext::new(skb);
    let (offset, len) = (offset as usize, len as usize);
    if offset > MAX_LEN || len > MAX_LEN {
        return 0;
    }
    let end = ctx.end();
    let start = ctx.start() + offset;
    let mut sum = Sum::new();
    let blocks = len / BLOCK;
    for block in 0..MAX_LEN / BLOCK {
        let at = start + block * BLOCK;
        if block >= blocks || at + BLOCK > end {
            break;
        }
        for word in 0..BLOCK / 4 {
            // SAFETY: `at + BLOCK` is inside the packet.
            sum = sum.words(unsafe { ((at + word * 4) as *const u32).read() }.to_ne_bytes());
        }
    }
    let words = len % BLOCK / 4;
    let at = offset + within(len, !(BLOCK - 1));
    for word in 0..BLOCK / 4 {
        if word >= words {
            break;
        }
        if let Some(word) = ctx.read::<u32>(at + word * 4) {
            sum = sum.words(word.to_ne_bytes());
        }
    }
    let mut at = offset + within(len, !3);
    if len & 2 != 0 {
        if let Some(word) = ctx.read::<u16>(at) {
            sum = sum.word(word.to_ne_bytes());
        }
        at += 2;
    }
    if len & 1 != 0
        && let Some(byte) = ctx.read::<u8>(at)
    {
        sum = sum.word([byte, 0]);
    }
    sum.unfolded()
}

/// The bits `mask` of a length, as a number of which nothing but its bounds is
/// known.
#[inline(always)]
fn within(len: usize, mask: usize) -> usize {
    opaque(len as u64) as usize & (2 * MAX_LEN - 1) & mask
}
