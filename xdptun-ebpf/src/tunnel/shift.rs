//! Moves a payload 12 bytes towards the end, because a TCP header is 12 bytes longer than a
//! UDP header.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use xdptun_common::checksum::Sum;
use xdptun_common::tunnel::translate::GROWTH;

use crate::packet::error::PacketError;
use crate::packet::payload::{has_room, walk};
use crate::packet::skb::Skb as _;

/// The longest payload that is moved: from there on the kernel, which copies more
/// bytes at a time, is faster whatever else it does.
pub const LONGEST: usize = 2048;

/// Moves `len` bytes from `offset`, which must be even, and adds them up on the way if `sums`
/// says so. The caller has made room for them.
#[inline(always)]
pub fn here(ctx: &TcContext, offset: usize, len: usize, sums: bool) -> Result<Sum, PacketError> {
    has_room(ctx, offset, len, GROWTH)?;
    if !sums {
        walk::<GROWTH, false, LONGEST>(ctx, offset, len);
        return Ok(Sum::new());
    }
    let sum = walk::<GROWTH, true, LONGEST>(ctx, offset, len);
    Ok(Sum::new().words(sum.to_ne_bytes()))
}

/// The same in subprograms, for callers that have no stack to spare.
#[inline(always)]
pub fn apart(ctx: &TcContext, offset: usize, len: usize, sums: bool) -> Result<Sum, PacketError> {
    has_room(ctx, offset, len, GROWTH)?;
    if !sums {
        shift(ctx.raw(), offset as u32, len as u32);
        return Ok(Sum::new());
    }
    let sum = shift_and_sum(ctx.raw(), offset as u32, len as u32);
    Ok(Sum::new().words(sum.to_ne_bytes()))
}

#[inline(never)]
fn shift(skb: *mut __sk_buff, offset: u32, len: u32) -> u32 {
    walk::<GROWTH, false, LONGEST>(&TcContext::new(skb), offset as usize, len as usize)
}

#[inline(never)]
fn shift_and_sum(skb: *mut __sk_buff, offset: u32, len: u32) -> u32 {
    walk::<GROWTH, true, LONGEST>(&TcContext::new(skb), offset as usize, len as usize)
}
