//! Checksums that a device was to write.

use aya_ebpf::programs::TcContext;
use xdptun_common::Plain;
use xdptun_common::wire::{Ip, Ipv4Header, Ipv6Header};

use crate::packet::access::Packet as _;
use crate::packet::error::PacketError;
use crate::packet::resize::{adjust_after_ip, make_linear, set_len, shrink_after_ip};

/// Payload bytes that are taken out and put back to settle a pending checksum
/// (see `settle`): together with the UDP header they must be longer than
/// the link and IP header, 14 + 20 or 14 + 40 bytes.
pub trait Settle: Ip {
    /// Room for them on the stack.
    type Saved: Plain;
}

impl Settle for Ipv4Header {
    type Saved = [u64; 4];
}

impl Settle for Ipv6Header {
    type Saved = [u64; 6];
}

/// Ends a pending checksum. Between the IP header, which ends at `offset`, and the payload there
/// is room of the first length in bytes before and of the second after.
///
/// BPF cannot move `csum_start`, and the device would write its sum into the TCP
/// header. But when the packet is shrunk past `csum_start`, the kernel's own pull
/// drops the pending sum (`skb_postpull_rcsum`): so the room and some payload are
/// taken out, and the room for the TCP header and the same payload are put back.
#[inline(always)]
pub fn settle<I: Settle>(
    ctx: &TcContext,
    offset: usize,
    [before, after]: [usize; 2],
    payload_len: usize,
) -> Result<(), PacketError> {
    let saved_len = size_of::<I::Saved>();
    if payload_len < saved_len {
        set_len(ctx, offset + before + saved_len)?;
    }
    // The payload may lie in pages of its sender.
    make_linear(ctx, offset + before + saved_len)?;
    let saved: I::Saved = ctx.read(offset + before).ok_or(PacketError::OutOfBounds)?;
    shrink_after_ip(ctx, before + saved_len)?;
    adjust_after_ip(ctx, (after + saved_len) as i32)?;
    ctx.write(offset + after, saved)
        .ok_or(PacketError::OutOfBounds)?;
    if payload_len < saved_len {
        set_len(ctx, offset + after + payload_len)?;
    }
    Ok(())
}
