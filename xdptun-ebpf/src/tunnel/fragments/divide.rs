//! A datagram of WireGuard that is too long for a segment leaves as two fragments.
//!
//! The senders of all others are told what fits. WireGuard does not learn from that, but the kernel does,
//! for the peer's address and ten minutes. As long it refuses (`EMSGSIZE`) longer datagrams that
//! wireguard-go sends many at once (UDP GSO), and wireguard-go drops them.

use aya_ebpf::programs::TcContext;
use xdptun_common::checksum::Sum;
use xdptun_common::parse::{Bytes as _, Located, Shape};
use xdptun_common::wire::{Ip, IpVersion, Part, UdpHeader, WireGuardData};

use super::cut::{Uncut, halve};
use crate::packet::access::{Packet as _, View};
use crate::packet::error::PacketError;
use crate::packet::link::link_len;
use crate::packet::payload;
use crate::packet::resize::adjust_after_ip;
use crate::packet::settle::{Settle, settle};
use crate::packet::skb::device_finishes_a_checksum;
use crate::tunnel::disguise::is_pending;
use crate::tunnel::rules::is_phantun;

/// Whether a datagram that is too long is divided. If not, its sender is told. phantun takes no fragments.
#[inline(always)]
pub fn divides<I: Ip>(ctx: &TcContext, located: &Located<I>) -> bool {
    located.shape == Shape::Plain
        && located.len <= payload::MAX_LEN
        && data(ctx, located.offset).is_some()
        && !is_phantun(located.ip.destination())
}

/// The header of a data message, if one is in the datagram whose UDP header is at `offset`.
#[inline(always)]
fn data(ctx: &TcContext, offset: usize) -> Option<WireGuardData> {
    let data: WireGuardData = View(ctx).read(offset + UdpHeader::LEN)?;
    data.is_valid().then_some(data)
}

/// Sends the first half as a fragment, and makes the packet the second. The datagram stands right behind
/// the fixed IP header, and ends where the packet ends.
#[inline(never)]
pub fn divide<I: Settle>(ctx: &TcContext) -> Result<(), Uncut> {
    let ip: I = ctx.read(link_len()).ok_or(PacketError::OutOfBounds)?;
    let len = ip.payload_len().ok_or(PacketError::OutOfBounds)?;
    let data = data(ctx, link_len() + I::LEN).ok_or(PacketError::OutOfBounds)?;
    finish_checksum::<I>(ctx)?;
    if I::VERSION == IpVersion::V6 {
        adjust_after_ip(ctx, I::PART_LEN as i32)?;
    }
    let whole = Part {
        offset: 0,
        more: false,
        identification: data.identification(),
    };
    halve(ctx, ip, len, whole)
}

/// Completes the checksum of the datagram, if a device was to do that, which would see one half at a time.
/// Refuses a datagram with a pending one further inside, which the device would write in a wrong place.
#[inline(never)]
fn finish_checksum<I: Settle>(ctx: &TcContext) -> Result<(), Uncut> {
    let at = link_len() + I::LEN;
    let ip: I = ctx.read(link_len()).ok_or(PacketError::OutOfBounds)?;
    let udp: UdpHeader = ctx.read(at).ok_or(PacketError::OutOfBounds)?;
    if !is_pending(&ip, udp) {
        return match device_finishes_a_checksum(ctx, at + UdpHeader::CHECKSUM_OFFSET) {
            Some(false) => Ok(()),
            Some(true) => Err(Uncut::PendingInside),
            None => Err(PacketError::Access.into()),
        };
    }
    let payload_len = usize::from(udp.length())
        .checked_sub(UdpHeader::LEN)
        .ok_or(PacketError::OutOfBounds)?;
    let payload = payload::sum(ctx, at + UdpHeader::LEN, payload_len)?;
    settle::<I>(ctx, at, [UdpHeader::LEN; 2], payload_len)?;
    // A pending checksum is the sum of the pseudo-header.
    let sum = Sum::new().value(&udp).combine(payload);
    ctx.write(at, udp.with_checksum(sum.udp_checksum()))
        .ok_or(PacketError::OutOfBounds)?;
    Ok(())
}
