//! Takes IPv4 options or IPv6 extension headers out before translation and puts
//! them back after it, because the kernel resizes only directly behind the fixed
//! IP header.

use aya_ebpf::bindings::BPF_F_RECOMPUTE_CSUM;
use aya_ebpf::helpers::generated::{bpf_skb_load_bytes, bpf_skb_store_bytes};
use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use aya_ebpf::programs::TcContext;
use xdptun_common::checksum::Sum;
use xdptun_common::parse::{Located, Shape, locate};
use xdptun_common::wire::{Ip, IpVersion, Protocol};

use crate::packet::access::{Packet as _, View};
use crate::packet::error::PacketError;
use crate::packet::link::link_len;
use crate::packet::resize::{MAX_OPTIONS, adjust_after_ip, store};
use crate::packet::skb::Skb as _;
use crate::packet::verifier::bounded;

/// What `options` has taken out of the packet at hand. Not on the stack, which
/// is full.
#[map]
pub static STASH: PerCpuArray<Stash> = PerCpuArray::with_max_entries(1, 0);

/// Options that were taken out of a packet.
#[repr(C)]
pub struct Stash {
    /// `len` bytes, and zeros.
    bytes: [u64; MAX_OPTIONS / 8],
    len: u32,
    /// Where the header that names the transport protocol starts.
    last: u32,
    /// The protocol that the fixed header named.
    next: u32,
}

/// Whether the options of a packet can be stashed.
#[inline(always)]
pub fn fit<I: Ip>(located: &Located<I>) -> bool {
    located.shape == Shape::Options && located.offset - (link_len() + I::LEN) <= MAX_OPTIONS
}

/// Takes the options out of a packet.
#[inline(never)]
pub fn take<I: Ip>(ctx: &TcContext) -> Result<(), PacketError> {
    let located = locate::<I>(&View(ctx), link_len()).ok_or(PacketError::OutOfBounds)?;
    let stash = STASH.get_ptr_mut(0).ok_or(PacketError::NoScratch)?;
    let len = (located.offset - (link_len() + I::LEN)) as u32;
    let len = bounded::<MAX_OPTIONS>(len).ok_or(PacketError::OutOfBounds)?;
    // SAFETY: a per-CPU value, which only this program run touches until it puts
    // the options back; it has room for `len` bytes.
    let loaded = unsafe {
        (*stash).bytes = [0; MAX_OPTIONS / 8];
        (*stash).len = len;
        (*stash).last = located.last_extension as u32;
        (*stash).next = u32::from(located.ip.protocol().0);
        bpf_skb_load_bytes(
            ctx.raw().cast(),
            (link_len() + I::LEN) as u32,
            (&raw mut (*stash).bytes).cast(),
            len,
        )
    };
    if loaded != 0 {
        return Err(PacketError::OutOfBounds);
    }
    adjust_after_ip(ctx, -(len as i32))?;
    // SAFETY: as above.
    let options = Sum::new().value(unsafe { &(*stash).bytes });
    let plain = located.ip.with_options(
        located.protocol,
        0,
        Sum::new().without(options),
        located.len as u16,
    );
    store(ctx, link_len(), &plain)
}

/// Puts the options back that [`take`] has just taken. Returns their length in bytes.
#[inline(never)]
pub fn put_back<I: Ip>(ctx: &TcContext) -> Result<u32, PacketError> {
    let at = link_len() + I::LEN;
    let ip: I = ctx.read(link_len()).ok_or(PacketError::OutOfBounds)?;
    let transport_len = ip.payload_len().ok_or(PacketError::OutOfBounds)? as u16;
    let stash = STASH.get_ptr(0).ok_or(PacketError::NoScratch)?;
    // SAFETY: as in `take`.
    let stash = unsafe { &*stash };
    let len = bounded::<MAX_OPTIONS>(stash.len).ok_or(PacketError::OutOfBounds)?;
    adjust_after_ip(ctx, len as i32)?;
    // SAFETY: the context is valid, and `bytes` has `len` bytes.
    let stored = unsafe {
        bpf_skb_store_bytes(
            ctx.raw().cast(),
            at as u32,
            (&raw const stash.bytes).cast(),
            len,
            u64::from(BPF_F_RECOMPUTE_CSUM),
        )
    };
    if stored != 0 {
        return Err(PacketError::Access);
    }
    let next = match I::VERSION {
        IpVersion::V4 => ip.protocol(),
        IpVersion::V6 => {
            store(ctx, at + stash.last as usize, &[ip.protocol().0])?;
            Protocol(stash.next as u8)
        }
    };
    let options = Sum::new().value(&stash.bytes);
    store(
        ctx,
        link_len(),
        &ip.with_options(next, len as usize, options, transport_len),
    )?;
    Ok(len)
}
