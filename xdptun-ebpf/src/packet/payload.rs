//! What looks at every byte of a payload: its sum, and its move.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use xdptun_common::Plain;
use xdptun_common::checksum::{LongSum, Sum};
use xdptun_common::wire::TcpHeader;

use crate::packet::access::Packet as _;
use crate::packet::resize::{ResizeError, make_linear};
use crate::packet::skb::Skb as _;
use crate::packet::verifier::opaque;

/// Bytes handled in one step.
const BLOCK: usize = 64;
/// The longest run that is handled; jumbo frames fit. A bound that the verifier
/// can walk.
pub const MAX_LEN: usize = 16 * 1024;

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

/// Moves `len` bytes from `offset`, which must be even, towards the end of the
/// packet by what a TCP header is longer than a UDP header. The caller has made
/// room for them.
#[inline(always)]
pub fn shift(ctx: &TcContext, offset: usize, len: usize) -> Result<(), ResizeError> {
    has_room(ctx, offset, len)?;
    xdptun_shift(ctx.raw(), offset as u32, len as u32);
    Ok(())
}

/// Moves bytes as [`shift`] does, and adds them up on the way.
#[inline(always)]
pub fn shift_and_sum(ctx: &TcContext, offset: usize, len: usize) -> Result<Sum, ResizeError> {
    has_room(ctx, offset, len)?;
    let sum = xdptun_shift_and_sum(ctx.raw(), offset as u32, len as u32);
    Ok(Sum::new().words(sum.to_ne_bytes()))
}

/// Whether bytes can be moved, before any are.
#[inline(always)]
fn has_room(ctx: &TcContext, offset: usize, len: usize) -> Result<(), ResizeError> {
    let end = offset + len + TcpHeader::GROWTH;
    if len > MAX_LEN || ctx.start() + end > ctx.end() {
        return Err(ResizeError);
    }
    Ok(())
}

// Global functions (the verifier's word), which the verifier walks once and not
// once for each way that leads to them.

/// See [`sum`].
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn xdptun_sum(skb: *mut __sk_buff, offset: u32, len: u32) -> u32 {
    walk::<0, true>(&TcContext::new(skb), offset as usize, len as usize)
}

/// See [`shift`].
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn xdptun_shift(skb: *mut __sk_buff, offset: u32, len: u32) -> u32 {
    walk::<{ TcpHeader::GROWTH }, false>(&TcContext::new(skb), offset as usize, len as usize)
}

/// See [`shift_and_sum`].
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn xdptun_shift_and_sum(skb: *mut __sk_buff, offset: u32, len: u32) -> u32 {
    walk::<{ TcpHeader::GROWTH }, true>(&TcContext::new(skb), offset as usize, len as usize)
}

/// Moves `len` bytes from `offset` `BY` bytes towards the end, and adds them up if
/// `SUM` says so; otherwise the sum is of some of them and means nothing.
///
/// From the end to the start, as old and new place overlap; in pieces that start
/// at multiples of their length, as the words of the sum must be even. Each
/// piece starts from an offset that is computed from `len` anew: had it come out
/// of the steps before, the verifier would follow what comes after once for each
/// way through these.
#[inline(always)]
fn walk<const BY: usize, const SUM: bool>(ctx: &TcContext, offset: usize, len: usize) -> u32 {
    if offset > MAX_LEN || len > MAX_LEN {
        return 0;
    }
    let mut rest = Sum::new();
    if len & 1 != 0 {
        let byte = piece::<u8, BY>(ctx, offset + within(len, !1));
        rest = rest.word([byte.unwrap_or(0), 0]);
    }
    if len & 2 != 0 {
        let word = piece::<u16, BY>(ctx, offset + within(len, !3));
        rest = rest.word(word.unwrap_or(0).to_ne_bytes());
    }
    if len & 4 != 0 {
        let words = piece::<u32, BY>(ctx, offset + within(len, !7));
        rest = rest.words(words.unwrap_or(0).to_ne_bytes());
    }
    let mut sum = LongSum::new();
    if len & 8 != 0 {
        run::<1, BY, SUM>(ctx, offset + within(len, !15), &mut sum);
    }
    if len & 16 != 0 {
        run::<2, BY, SUM>(ctx, offset + within(len, !31), &mut sum);
    }
    if len & 32 != 0 {
        run::<4, BY, SUM>(ctx, offset + within(len, !63), &mut sum);
    }
    // Of which the compiler must not know that there are no more than the loop has
    // rounds: it would count to this number alone, and kernel 6.1 forgets its bound.
    let blocks = within(len, !(BLOCK - 1)) / BLOCK;
    for block in 0..MAX_LEN / BLOCK {
        if block >= blocks {
            break;
        }
        let start = within(len - block * BLOCK - BLOCK, !(BLOCK - 1));
        run::<{ BLOCK / 8 }, BY, SUM>(ctx, offset + start, &mut sum);
    }
    rest.combine(sum.sum()).unfolded()
}

/// Moves one record, and tells what it is; `None` if it or its new place lies
/// beyond the packet.
#[inline(always)]
fn piece<T: Plain, const BY: usize>(ctx: &TcContext, offset: usize) -> Option<T> {
    let value = ctx.read::<T>(offset)?;
    if BY != 0 {
        ctx.write(offset + BY, value)?;
    }
    Some(value)
}

/// Moves a run of 64-bit words, and adds them up if `SUM` says so.
#[inline(always)]
fn run<const WORDS: usize, const BY: usize, const SUM: bool>(
    ctx: &TcContext,
    offset: usize,
    sum: &mut LongSum,
) {
    let at = ctx.start() + offset;
    if at + WORDS * 8 + BY > ctx.end() {
        return;
    }
    for word in (0..WORDS).rev() {
        let at = at + word * 8;
        // SAFETY: inside the packet by the check above; for the alignment see
        // `Packet::read`.
        unsafe {
            let value = (at as *const u64).read();
            if BY != 0 {
                ((at + BY) as *mut u64).write(value);
            }
            if SUM {
                *sum = sum.long(value);
            }
        }
    }
}

/// The bits `mask` of a length, as a number of which nothing but its bounds is
/// known.
#[inline(always)]
fn within(len: usize, mask: usize) -> usize {
    opaque(len as u64) as usize & (2 * MAX_LEN - 1) & mask
}
