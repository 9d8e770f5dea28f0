//! Moves a payload 12 bytes towards the end, because a TCP header is 12 bytes longer than a
//! UDP header.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use xdptun_common::checksum::Sum;
use xdptun_common::tunnel::translate::GROWTH;

use crate::packet::error::PacketError;
use crate::packet::payload::{has_room, walk};
use crate::packet::skb::Skb as _;

/// Moves `len` bytes from `offset`, which must be even. The caller has made room for them.
#[inline(always)]
pub fn shift(ctx: &TcContext, offset: usize, len: usize) -> Result<(), PacketError> {
    has_room(ctx, offset, len, GROWTH)?;
    xdptun_shift(ctx.raw(), offset as u32, len as u32);
    Ok(())
}

/// Moves bytes as [`shift`] does, and adds them up on the way.
#[inline(always)]
pub fn shift_and_sum(ctx: &TcContext, offset: usize, len: usize) -> Result<Sum, PacketError> {
    has_room(ctx, offset, len, GROWTH)?;
    let sum = xdptun_shift_and_sum(ctx.raw(), offset as u32, len as u32);
    Ok(Sum::new().words(sum.to_ne_bytes()))
}

// Global functions (the verifier's word), which the verifier walks once and not
// once for each way that leads to them.

/// See [`shift`].
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn xdptun_shift(skb: *mut __sk_buff, offset: u32, len: u32) -> u32 {
    walk::<GROWTH, false>(&TcContext::new(skb), offset as usize, len as usize)
}

/// See [`shift_and_sum`].
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn xdptun_shift_and_sum(skb: *mut __sk_buff, offset: u32, len: u32) -> u32 {
    walk::<GROWTH, true>(&TcContext::new(skb), offset as usize, len as usize)
}
