//! The helpers that change a packet's length, and what goes with it.

use aya_ebpf::Global;
use aya_ebpf::bindings::BPF_F_RECOMPUTE_CSUM;
use aya_ebpf::bindings::bpf_adj_room_mode::BPF_ADJ_ROOM_NET;
use aya_ebpf::helpers::generated::{
    bpf_skb_change_head, bpf_skb_change_proto, bpf_skb_change_tail, bpf_skb_store_bytes,
    bpf_skb_vlan_pop, bpf_skb_vlan_push, bpf_xdp_adjust_head,
};
use aya_ebpf::programs::{TcContext, XdpContext};
use xdptun_common::Plain;
use xdptun_common::wire::{EtherType, EthernetHeader, Ip, IpVersion};

use crate::packet::access::Packet as _;
use crate::packet::error::PacketError;
use crate::packet::link::{has_ethernet, link_len};
use crate::packet::skb::Skb as _;

/// The most bytes of options that are stashed: all that IPv4 can have, and more
/// than IPv6 hosts send.
pub const MAX_OPTIONS: usize = 64;

#[unsafe(no_mangle)]
static SHRINK_TWICE: Global<u32> = Global::new(0);

/// Whether a pending checksum ends only with the second shrinking.
#[inline(always)]
fn shrink_twice() -> bool {
    SHRINK_TWICE.load() != 0
}

/// Puts the first `len` bytes into the linear part, if they are not there yet.
#[inline(always)]
pub fn make_linear(ctx: &TcContext, len: usize) -> Result<(), PacketError> {
    if ctx.start() + len <= ctx.end() {
        return Ok(());
    }
    ctx.pull_data(len as u32).map_err(|_| PacketError::Access)
}

/// Sets the length of the packet, cutting its end off or appending zeros. The kernel
/// refuses it for a packet with another inside whose checksum is pending
/// (`skb->encapsulation`).
#[inline(always)]
pub fn set_len(ctx: &TcContext, len: usize) -> Result<(), PacketError> {
    // SAFETY: the context is valid; the helper checks the length.
    match unsafe { bpf_skb_change_tail(ctx.raw(), len as u32, 0) } {
        0 => Ok(()),
        _ => Err(PacketError::Resize),
    }
}

/// Makes the packet end where its IP packet ends: behind it, a short frame has padding.
#[inline(always)]
pub fn trim(ctx: &TcContext, end: usize) -> Result<(), PacketError> {
    match ctx.len() as usize {
        len if len < end => Err(PacketError::OutOfBounds),
        len if len > end => set_len(ctx, end),
        _ => Ok(()),
    }
}

/// Replaces all that follows the fixed IP header by `len` undefined bytes, and
/// with it any checksum that the device was to write: bytes beyond its start
/// are pulled away, which makes the kernel forget it (see `disguise::settle`).
#[inline(always)]
pub fn replace_transport<I: Ip>(ctx: &TcContext, len: usize) -> Result<(), PacketError> {
    let header = link_len() + I::LEN;
    // One even number of bytes more than can lie before the transport header.
    let pull = header + MAX_OPTIONS + 2;
    set_len(ctx, header + pull)?;
    shrink_after_ip(ctx, pull)?;
    adjust_after_ip(ctx, len as i32)
}

/// Removes `by` bytes after the fixed IP header, and with them a pending
/// checksum that starts less than `by` bytes from the start of the packet.
#[inline(always)]
pub fn shrink_after_ip(ctx: &TcContext, by: usize) -> Result<(), PacketError> {
    if shrink_twice() {
        adjust_after_ip(ctx, -(by as i32 - 1))?;
        return adjust_after_ip(ctx, -1);
    }
    adjust_after_ip(ctx, -(by as i32))
}

/// Writes a value in a way that a device's sum over the whole packet
/// (`CHECKSUM_COMPLETE`) stays true. Not for the link header, which is not in it.
#[inline(always)]
pub fn store<T: Plain>(ctx: &TcContext, offset: usize, value: &T) -> Result<(), PacketError> {
    // SAFETY: the context is valid; the helper checks the offset, and reads as
    // many bytes as the value has.
    let result = unsafe {
        bpf_skb_store_bytes(
            ctx.raw().cast(),
            offset as u32,
            core::ptr::from_ref(value).cast(),
            size_of::<T>() as u32,
            u64::from(BPF_F_RECOMPUTE_CSUM),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(PacketError::Access),
    }
}

/// Inserts (`by` > 0) or removes (`by` < 0) bytes after the fixed IP header.
#[inline(always)]
pub fn adjust_after_ip(ctx: &TcContext, by: i32) -> Result<(), PacketError> {
    ctx.adjust_room(by, BPF_ADJ_ROOM_NET, 0)
        .map_err(|_| PacketError::Resize)
}

/// Makes the packet one of another IP version. Its fixed IP header has undefined bytes then; what
/// follows it stays, and so do a pending checksum and the size of segments.
#[inline(always)]
pub fn change_version(ctx: &TcContext, version: IpVersion) -> Result<(), PacketError> {
    let ether_type = match version {
        IpVersion::V4 => EtherType::IPV4,
        IpVersion::V6 => EtherType::IPV6,
    };
    // SAFETY: the context is valid; the helper checks the versions.
    let result = unsafe { bpf_skb_change_proto(ctx.raw(), ether_type.0.to_be(), 0) };
    if result != 0 {
        return Err(PacketError::Resize);
    }
    if has_ethernet() {
        let link: EthernetHeader = ctx.read(0).ok_or(PacketError::OutOfBounds)?;
        ctx.write(0, link.with_ether_type(ether_type))
            .ok_or(PacketError::OutOfBounds)?;
    }
    Ok(())
}

/// Puts a link header before a packet that has none.
#[inline(always)]
pub fn push_link(ctx: &TcContext, link: EthernetHeader) -> Result<(), PacketError> {
    // SAFETY: the context is valid; the helper checks the length.
    match unsafe { bpf_skb_change_head(ctx.raw(), EthernetHeader::LEN as u32, 0) } {
        0 => ctx.write(0, link).ok_or(PacketError::OutOfBounds),
        _ => Err(PacketError::Resize),
    }
}

/// Puts a VLAN tag with number 0 beside the packet; one that is there moves into it.
#[inline(always)]
pub fn push_tag(ctx: &TcContext) -> Result<(), PacketError> {
    let protocol = EtherType::VLAN.0.to_be();
    // SAFETY: the context is valid.
    match unsafe { bpf_skb_vlan_push(ctx.raw(), protocol, 0) } {
        0 => Ok(()),
        _ => Err(PacketError::Resize),
    }
}

/// Takes the outermost VLAN tag off.
#[inline(always)]
pub fn pop_tag(ctx: &TcContext) -> Result<(), PacketError> {
    // SAFETY: the context is valid.
    match unsafe { bpf_skb_vlan_pop(ctx.raw()) } {
        0 => Ok(()),
        _ => Err(PacketError::Resize),
    }
}

/// Moves the start of the packet `by` bytes forward.
#[inline(always)]
pub fn cut_head(ctx: &XdpContext, by: usize) -> Result<(), PacketError> {
    // SAFETY: the context is valid; the helper checks the length.
    match unsafe { bpf_xdp_adjust_head(ctx.ctx, by as i32) } {
        0 => Ok(()),
        _ => Err(PacketError::Resize),
    }
}
