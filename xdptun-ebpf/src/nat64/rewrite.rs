//! Writes the headers of the other version into a packet, and changes the checksum of its transport.

use aya_ebpf::bindings::{BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR};
use aya_ebpf::programs::TcContext;
use xdptun_common::checksum::Sum;
use xdptun_common::wire::{Ip, Protocol};

use crate::packet::error::PacketError;
use crate::packet::link::link_len;
use crate::packet::resize::{self, adjust_after_ip, change_version, store};
use crate::packet::skb::Skb as _;
use crate::packet::verifier::bounded;

/// Where a transport header may begin at most: behind as many extension headers as anybody sends.
pub const MAX_OFFSET: usize = 512;

/// Writes an IP header instead of the one that is there, which has another version and `removed` bytes
/// of options or extension headers; `inserted` undefined bytes follow it.
#[inline(always)]
pub fn replace_header<I: Ip>(
    ctx: &TcContext,
    header: &I,
    removed: usize,
    inserted: usize,
) -> Result<(), PacketError> {
    if removed > 0 {
        adjust_after_ip(ctx, -(removed as i32))?;
    }
    change_version(ctx, I::VERSION)?;
    if inserted > 0 {
        adjust_after_ip(ctx, inserted as i32)?;
    }
    store(ctx, link_len(), header)
}

/// By how much the sum of a pseudo-header changes with its addresses: both of the one version, then
/// both of the other.
#[inline(always)]
pub const fn address_change(before: [[u8; 16]; 2], after: [[u8; 16]; 2]) -> Sum {
    let [source, destination] = before;
    let [new_source, new_destination] = after;
    let before = Sum::new().address(source).address(destination);
    let after = Sum::new().address(new_source).address(new_destination);
    after.without(before)
}

/// Changes the checksum of TCP or UDP at `offset` with the addresses, whichever of its states it
/// has: complete, pending, or none (UDP).
///
/// The headers were written in a way that a device's sum over the packet stays true. So this has to
/// change that sum by what it changes in the field, which the helper does unless told that the
/// addresses are those of IPv6 (`BPF_F_IPV6`): then it would take them as changed by itself.
#[inline(always)]
pub fn change_checksum(
    ctx: &TcContext,
    offset: usize,
    protocol: Protocol,
    change: Sum,
) -> Result<(), PacketError> {
    let flags = match protocol {
        // Zero would say that there is none.
        Protocol::UDP => BPF_F_PSEUDO_HDR | BPF_F_MARK_MANGLED_0,
        _ => BPF_F_PSEUDO_HDR,
    };
    let field = offset + protocol.checksum_offset();
    ctx.l4_csum_replace(field, 0, change.unfolded().into(), flags.into())
        .map_err(|_| PacketError::Access)
}

/// [`resize::trim`], unless it is a super-packet, which has no padding.
#[inline(always)]
pub fn trim(ctx: &TcContext, end: usize) -> Result<(), PacketError> {
    if !ctx.is_super_packet() {
        return resize::trim(ctx, end);
    }
    if (ctx.len() as usize) < end {
        return Err(PacketError::OutOfBounds);
    }
    Ok(())
}

/// An offset that the verifier knows a bound of.
#[inline(always)]
pub fn checked(offset: usize) -> Result<usize, PacketError> {
    bounded::<MAX_OFFSET>(offset as u32)
        .map(|offset| offset as usize)
        .ok_or(PacketError::OutOfBounds)
}
