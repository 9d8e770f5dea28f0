//! Short datagrams are padded before they become segments, and cut when they are datagrams again.

use aya_ebpf::helpers::generated::bpf_get_prandom_u32;
use aya_ebpf::programs::TcContext;
use xdptun_common::checksum::Sum;
use xdptun_common::parse::Bytes as _;
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::veil::{MOST_PADDED, TRAILER, padded_len, unpadded_len};
use xdptun_common::wire::{Ip, Protocol, UdpHeader};

use super::{most_padded, note_done};
use crate::machine::opaque;
use crate::packet::access::{Packet as _, View};
use crate::packet::link::link_len;
use crate::packet::resize::{set_len, store};
use crate::packet::skb::device_finishes_a_checksum;
use crate::packet::verifier::{bounded, told};
use crate::tunnel::disguise::is_pending;

/// Whether a datagram of this length is padded.
#[inline(always)]
pub fn pads(len: usize) -> bool {
    len + TRAILER <= most_padded()
}

/// Pads the datagram in the packet, which is to be padded. Called from the entry point, where the
/// stack is empty; the outcome if that fails.
#[inline(never)]
pub fn pad<I: Ip>(ctx: &TcContext) -> Outcome {
    match try_pad::<I>(ctx) {
        Some(true) => Outcome::TxDisguised,
        Some(false) => Outcome::TxDropPending,
        None => Outcome::TxDropResize,
    }
}

/// `false` if a device is to write the checksum of a packet inside, which it would do into covered
/// bytes.
#[inline(always)]
fn try_pad<I: Ip>(ctx: &TcContext) -> Option<bool> {
    let at = link_len() + I::LEN;
    let ip: I = ctx.read(link_len())?;
    let udp: UdpHeader = ctx.read(at)?;
    let len = told(udp.length()).checked_sub(UdpHeader::LEN)?;
    let is_pending = is_pending(&ip, udp);
    if !is_pending && device_finishes_a_checksum(ctx, at + UdpHeader::CHECKSUM_OFFSET)? {
        return Some(false);
    }
    // SAFETY: the helper takes no arguments.
    let random = unsafe { bpf_get_prandom_u32() };
    let padded = padded_len(len, most_padded(), random)?;
    let padded = bounded::<MOST_PADDED>(padded as u32)? as usize;
    let end = at + UdpHeader::LEN + padded;
    set_len(ctx, end).ok()?;
    let trailer = (len as u16).to_be_bytes();
    store(ctx, end - TRAILER, &trailer).ok()?;
    let udp_len = (UdpHeader::LEN + padded) as u16;
    let with_len = ip.with_payload(Protocol::UDP, udp_len);
    let checksum = if udp.checksum() == [0, 0] {
        [0, 0]
    } else if is_pending {
        with_len.pseudo_header(Protocol::UDP, udp_len).pending()
    } else {
        // The length is summed twice: in the header and in the pseudo-header.
        let grown = udp_len.wrapping_sub(udp.length());
        let sum = Sum::of_checksum(udp.checksum()).number(grown).number(grown);
        sum.combine(sum_of(trailer, padded)).udp_checksum()
    };
    store(ctx, link_len(), &with_len).ok()?;
    let udp = UdpHeader::new(udp.source(), udp.destination(), udp_len, checksum);
    store(ctx, at, &udp).ok()?;
    note_done();
    Some(true)
}

/// What the field at the end of a payload of `len` bytes adds to its sum.
#[inline(always)]
const fn sum_of(trailer: [u8; TRAILER], len: usize) -> Sum {
    Sum::new().word(trailer).at(len)
}

/// Unpads the restored datagram in the packet. Called from the entry point, where
/// the stack is empty; `false` if it cannot be one of ours.
#[inline(never)]
pub fn unpad<I: Ip>(ctx: &TcContext) -> bool {
    try_unpad::<I>(ctx).is_some()
}

#[inline(always)]
fn try_unpad<I: Ip>(ctx: &TcContext) -> Option<()> {
    let at = link_len() + I::LEN;
    let ip: I = ctx.read(link_len())?;
    let udp: UdpHeader = ctx.read(at)?;
    let len = told(udp.length()).checked_sub(UdpHeader::LEN)?;
    let len = bounded::<MOST_PADDED>(len as u32)? as usize;
    let end = at + UdpHeader::LEN + len;
    let field = opaque((end - TRAILER) as u64) as usize;
    let trailer: [u8; TRAILER] = View(ctx).read(field)?;
    let datagram = unpadded_len(len, trailer)?;
    set_len(ctx, at + UdpHeader::LEN + datagram).ok()?;
    let udp_len = (UdpHeader::LEN + datagram) as u16;
    // The length is summed twice: in the header and in the pseudo-header.
    let cut = (len - datagram) as u16;
    let sum = Sum::of_checksum(udp.checksum())
        .without(sum_of(trailer, len))
        .without_number(cut)
        .without_number(cut);
    store(ctx, link_len(), &ip.with_payload(Protocol::UDP, udp_len)).ok()?;
    let (source, destination) = (udp.source(), udp.destination());
    let udp = UdpHeader::new(source, destination, udp_len, sum.udp_checksum());
    store(ctx, at, &udp).ok()
}
