//! A datagram of an established flow becomes a segment.

use aya_ebpf::programs::TcContext;
use xdptun_common::Plain;
use xdptun_common::checksum::Sum;
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::translate::{GROWTH, Numbers, PayloadSum, disguise};
use xdptun_common::tunnel::window::window;
use xdptun_common::wire::{Ip, Ipv4Header, Ipv6Header, Protocol, TcpHeader, UdpHeader};

use crate::host::clock::now;
use crate::packet::access::Packet as _;
use crate::packet::direction::Direction;
use crate::packet::error::PacketError;
use crate::packet::link::link_len;
use crate::packet::payload;
use crate::packet::resize::{adjust_after_ip, set_len, shrink_after_ip};
use crate::packet::skb::{Skb as _, device_finishes_a_checksum};
use crate::tunnel::sent;
use crate::tunnel::shift::{shift, shift_and_sum};
use crate::tunnel::table::Entry;
use crate::tunnel::verdict::refused;

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

/// Turns the datagram in the packet into the next segment of `flow`. The caller
/// has found that it is one, in the plain shape, and that it ends where the
/// packet ends.
///
/// A subprogram that reads the headers again: keeping them alive across all
/// that precedes costs more stack than BPF has.
#[inline(never)]
pub fn into_segment<I: Settle>(ctx: &TcContext, flow: &Entry) -> Outcome {
    match segment::<I>(ctx, flow) {
        Ok(()) => Outcome::TxDisguised,
        Err(Refusal::Packet(error)) => refused(error, Direction::Outbound),
        Err(Refusal::PendingInside) => Outcome::TxDropPending,
    }
}

/// The longest payload that is moved: from there on the kernel, which copies more
/// bytes at a time, is faster whatever else it does.
const LONGEST_MOVED: usize = 2048;

/// Why a datagram cannot become a segment.
enum Refusal {
    /// It could not be read or changed.
    Packet(PacketError),
    /// It has no checksum, and a pending one belongs to a packet inside it: what
    /// the payload will add up to is not known.
    PendingInside,
}

impl From<PacketError> for Refusal {
    #[inline(always)]
    fn from(error: PacketError) -> Self {
        Self::Packet(error)
    }
}

#[inline(always)]
fn segment<I: Settle>(ctx: &TcContext, flow: &Entry) -> Result<(), Refusal> {
    let at = link_len() + I::LEN;
    let ip: I = ctx.read(link_len()).ok_or(PacketError::OutOfBounds)?;
    let udp: UdpHeader = ctx.read(at).ok_or(PacketError::OutOfBounds)?;
    let payload_len = usize::from(udp.length())
        .checked_sub(UdpHeader::LEN)
        .ok_or(PacketError::OutOfBounds)?;
    let payload = make_room::<I>(ctx, at, &ip, udp, payload_len)?;
    // Numbers are taken last: a datagram that cannot leave must not use any.
    let now = now();
    let (sequence, acknowledgment, count) = flow.send_datagram(payload_len as u32, now);
    let numbers = Numbers {
        sequence,
        acknowledgment,
        window: window(count),
    };
    flow.keep_fields(ip.fields());
    let ip = match flow.label() {
        0 => ip,
        label => ip.with_label(label),
    };
    let (ip, tcp) = disguise(ip, udp, payload, numbers);
    let len = udp.length().wrapping_add(GROWTH as u16);
    sent::remember(&ip, &tcp, len, now);
    ctx.write(link_len(), ip).ok_or(PacketError::OutOfBounds)?;
    ctx.write(at, tcp).ok_or(PacketError::OutOfBounds)?;
    Ok(())
}

/// Makes room for the TCP header in front of the payload, and tells what is
/// known of the payload's sum. `offset` is where the UDP header starts.
///
/// The room comes from either end of the packet. In front of what a socket of
/// this host sends there is just enough for the link header, and the kernel would
/// copy the packet to a larger buffer; behind it there is some, as buffers have
/// rounded sizes. Then moving the payload is cheaper. What is forwarded, or comes
/// from WireGuard in the kernel, has room in front.
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
    // A complete checksum that looks like a pending one makes work, but no
    // difference; unless one inside is pending, as in one of 65536 lengths and pairs
    // of addresses in a tunnel, whose packets are then refused.
    let pending = udp.checksum() == ip.pseudo_header(Protocol::UDP, udp.length()).pending();
    let field = offset + UdpHeader::CHECKSUM_OFFSET;
    let finishes = || device_finishes_a_checksum(ctx, field).ok_or(PacketError::Access);
    if absent && finishes()? {
        return Err(Refusal::PendingInside);
    }
    let behind = payload_len <= LONGEST_MOVED
        && ctx.has_socket()
        && ctx.start() + ctx.len() as usize <= ctx.end()
        // One of a packet inside may be finished where it is, but not moved.
        && (pending || absent || !finishes()?);
    let payload = offset + UdpHeader::LEN;
    if behind {
        set_len(ctx, payload + payload_len + GROWTH)?;
    }
    // Whether its checksum speaks for the payload. Where it does, the sum is zero and
    // not left out: the compiler would spill what has no value, and the verifier refuses
    // to load that.
    let speaks = !pending && !absent;
    let sum = match (speaks, behind) {
        (false, true) => shift_and_sum(ctx, payload, payload_len)?,
        (false, false) => payload::sum(ctx, payload, payload_len)?,
        (true, true) => {
            shift(ctx, payload, payload_len)?;
            Sum::new()
        }
        (true, false) => Sum::new(),
    };
    let room = if behind {
        TcpHeader::LEN
    } else {
        UdpHeader::LEN
    };
    if pending {
        settle::<I>(ctx, offset, room, payload_len)?;
    } else if !behind {
        adjust_after_ip(ctx, GROWTH as i32)?;
    }
    Ok(if speaks {
        PayloadSum::InUdpChecksum
    } else {
        PayloadSum::Known(sum)
    })
}

/// Ends a pending checksum and leaves room for the TCP header, where there was
/// `room` between the IP header and the payload.
///
/// BPF cannot move `csum_start`, and the device would write its sum into the TCP
/// header. But when the packet is shrunk past `csum_start`, the kernel's own pull
/// drops the pending sum (`skb_postpull_rcsum`): so the room and some payload are
/// taken out, and the TCP header and the same payload are put back.
#[inline(always)]
fn settle<I: Settle>(
    ctx: &TcContext,
    offset: usize,
    room: usize,
    payload_len: usize,
) -> Result<(), PacketError> {
    let saved_len = size_of::<I::Saved>();
    if payload_len < saved_len {
        set_len(ctx, offset + room + saved_len)?;
    }
    let saved: I::Saved = ctx.read(offset + room).ok_or(PacketError::OutOfBounds)?;
    shrink_after_ip(ctx, room + saved_len)?;
    adjust_after_ip(ctx, (TcpHeader::LEN + saved_len) as i32)?;
    ctx.write(offset + TcpHeader::LEN, saved)
        .ok_or(PacketError::OutOfBounds)?;
    if payload_len < saved_len {
        set_len(ctx, offset + TcpHeader::LEN + payload_len)?;
    }
    Ok(())
}
