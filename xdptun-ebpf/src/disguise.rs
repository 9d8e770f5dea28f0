//! A datagram of an established flow becomes a segment.

use aya_ebpf::programs::TcContext;
use xdptun_common::Plain;
use xdptun_common::counter::Outcome;
use xdptun_common::flow::window;
use xdptun_common::translate::{Numbers, PayloadSum, disguise};
use xdptun_common::wire::{Ip, Ipv4Header, Ipv6Header, Protocol, TcpHeader, UdpHeader};

use crate::maps::link_len;
use crate::packet::{Packet as _, now};
use crate::payload;
use crate::resize::{ResizeError, adjust_after_ip, set_len, shrink_after_ip};
use crate::table::Entry;

/// Payload bytes that are taken out and put back to settle a pending checksum
/// (see [`settle`]): together with the UDP header they must be longer than
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

/// Turns the datagram in the packet into the next segment of `flow`. The caller
/// has found that it is one, in the plain shape, and that it ends where the
/// packet ends.
///
/// A subprogram that reads the headers again: keeping them alive across all
/// that precedes costs more stack than BPF has.
#[inline(never)]
pub fn run<I: Settle>(ctx: &TcContext, flow: &Entry) -> Outcome {
    match segment::<I>(ctx, flow) {
        Ok(()) => Outcome::TxDisguised,
        Err(Refusal::Resize) => Outcome::TxDropResize,
        Err(Refusal::PendingInside) => Outcome::TxDropPending,
    }
}

/// Why a datagram cannot become a segment.
enum Refusal {
    /// See [`ResizeError`].
    Resize,
    /// The pending checksum is not the datagram's own but that of a packet
    /// inside it.
    PendingInside,
}

impl From<ResizeError> for Refusal {
    #[inline(always)]
    fn from(_: ResizeError) -> Self {
        Self::Resize
    }
}

#[inline(always)]
fn segment<I: Settle>(ctx: &TcContext, flow: &Entry) -> Result<(), Refusal> {
    let at = link_len() + I::LEN;
    let ip: I = ctx.read(link_len()).ok_or(ResizeError)?;
    let udp: UdpHeader = ctx.read(at).ok_or(ResizeError)?;
    let payload_len = usize::from(udp.length())
        .checked_sub(UdpHeader::LEN)
        .ok_or(ResizeError)?;
    let payload = make_room::<I>(ctx, at, &ip, udp, payload_len)?;
    // Numbers are taken last: a datagram that cannot leave must not use any.
    let (sequence, acknowledgment, count) = flow.send_datagram(payload_len as u32, now());
    let numbers = Numbers {
        sequence,
        acknowledgment,
        window: window(count),
    };
    let (ip, tcp) = disguise(ip, udp, payload, numbers);
    ctx.write(link_len(), ip).ok_or(ResizeError)?;
    ctx.write(at, tcp).ok_or(ResizeError)?;
    Ok(())
}

/// Makes room for the TCP header in front of the payload, and tells what is
/// known of the payload's sum. `offset` is where the UDP header starts.
#[inline(always)]
fn make_room<I: Settle>(
    ctx: &TcContext,
    offset: usize,
    ip: &I,
    udp: UdpHeader,
    payload_len: usize,
) -> Result<PayloadSum, Refusal> {
    // Zero says "no checksum" (RFC 768); TCP must have one.
    let absent = udp.checksum() == [0, 0];
    if !absent && !checksum_is_pending(ctx, offset, udp)? {
        adjust_after_ip(ctx, TcpHeader::GROWTH as i32)?;
        return Ok(PayloadSum::InUdpChecksum);
    }
    if !absent && udp.checksum() != ip.pseudo_header(Protocol::UDP, udp.length()).pending() {
        return Err(Refusal::PendingInside);
    }
    let sum = payload::sum(ctx, offset + UdpHeader::LEN, payload_len)?;
    if absent {
        adjust_after_ip(ctx, TcpHeader::GROWTH as i32)?;
    } else {
        settle::<I>(ctx, offset, payload_len)?;
    }
    Ok(PayloadSum::Known(sum))
}

/// Whether the skb is `CHECKSUM_PARTIAL`: the field holds only the
/// pseudo-header, and the device writes the rest later.
///
/// `bpf_l4_csum_replace` without `BPF_F_PSEUDO_HDR` changes the field unless
/// exactly that is the case (`inet_proto_csum_replace4`). The field itself is
/// about to be overwritten, so nothing has to be undone.
#[inline(always)]
fn checksum_is_pending(ctx: &TcContext, at: usize, udp: UdpHeader) -> Result<bool, ResizeError> {
    let field = at + UdpHeader::CHECKSUM_OFFSET;
    ctx.l4_csum_replace(field, 0, 1, 2)
        .map_err(|_| ResizeError)?;
    let after: u16 = ctx.read(field).ok_or(ResizeError)?;
    Ok(after == u16::from_ne_bytes(udp.checksum()))
}

/// Ends a pending checksum and makes room for the TCP header.
///
/// BPF cannot move `csum_start`, and after the header has grown the device
/// would write its sum into the sequence number. But when the packet is shrunk
/// past `csum_start`, the kernel's own pull drops the pending sum
/// (`skb_postpull_rcsum`): so the UDP header and some payload are taken out,
/// and the TCP header and the same payload are put back.
#[inline(always)]
fn settle<I: Settle>(
    ctx: &TcContext,
    offset: usize,
    payload_len: usize,
) -> Result<(), ResizeError> {
    let saved_len = size_of::<I::Saved>();
    if payload_len < saved_len {
        set_len(ctx, offset + UdpHeader::LEN + saved_len)?;
    }
    let saved: I::Saved = ctx.read(offset + UdpHeader::LEN).ok_or(ResizeError)?;
    shrink_after_ip(ctx, UdpHeader::LEN + saved_len)?;
    adjust_after_ip(ctx, (TcpHeader::LEN + saved_len) as i32)?;
    ctx.write(offset + TcpHeader::LEN, saved)
        .ok_or(ResizeError)?;
    if payload_len < saved_len {
        set_len(ctx, offset + TcpHeader::LEN + payload_len)?;
    }
    Ok(())
}
