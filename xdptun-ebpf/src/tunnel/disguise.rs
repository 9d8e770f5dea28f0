//! A datagram of an established flow becomes a segment.

use aya_ebpf::programs::TcContext;
use xdptun_common::checksum::Sum;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::translate::{GROWTH, Numbers, PayloadSum, disguise};
use xdptun_common::tunnel::window::window;
use xdptun_common::wire::{Ip, Protocol, TcpHeader, UdpHeader};

use crate::host::again;
use crate::host::clock::now;
use crate::host::interface::interface;
use crate::packet::access::Packet as _;
use crate::packet::direction::Direction;
use crate::packet::error::PacketError;
use crate::packet::link::link_len;
use crate::packet::payload;
use crate::packet::resize::{adjust_after_ip, set_len};
use crate::packet::settle::{Settle, settle};
use crate::packet::skb::{Skb as _, device_finishes_a_checksum, is_linear};
use crate::tunnel::share::note_answered;
use crate::tunnel::table::Entry;
use crate::tunnel::veil::veils;
use crate::tunnel::verdict::refused;
use crate::tunnel::{sent, shift};

/// Lets `disguise` make a segment of `flow` of the packet, and notes what follows for the flow.
#[inline(always)]
pub fn leave(
    ctx: &TcContext,
    key: &FlowKey,
    flow: Entry,
    disguise: impl FnOnce(&Entry) -> Outcome,
) -> Outcome {
    if flow.interface() != interface(ctx).index() {
        flow.keep_way(ctx, Direction::Outbound);
    }
    let outcome = disguise(&flow);
    let is_sent = matches!(outcome, Outcome::TxDisguised | Outcome::TxFragment);
    if is_sent && flow.has_just_answered() {
        note_answered(key);
    }
    outcome
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
    let way = way(ctx, at, &ip, udp, payload_len)?;
    if way.is_behind {
        make_room_behind(ctx, at, payload_len)?;
    }
    let payload = make_room::<I>(ctx, at, payload_len, way, shift::apart)?;
    // The stack is too full to cover the payload here.
    write_headers(ctx, flow, ip, udp, payload, window, |_, tcp, _| Some(tcp))?;
    Ok(())
}

/// How room for the TCP header is made, and where the sum of the payload comes from.
#[derive(Clone, Copy)]
pub struct Way {
    /// Whether the room is behind the packet, and the payload moves into it.
    ///
    /// The room comes from either end of the packet. In front of what a socket of
    /// this host sends there is just enough for the link header, and the kernel would
    /// copy the packet to a larger buffer; behind it there is some, as buffers have
    /// rounded sizes. Then moving the payload is cheaper ([`lacks_room`]).
    pub is_behind: bool,
    /// Whether a device was to write the checksum.
    pub is_pending: bool,
    /// Whether the checksum is complete, and so speaks for the payload.
    pub speaks: bool,
}

/// Whether the checksum of a datagram is still to be written by a device. A complete one
/// that looks like a pending one makes work, but no difference; unless one inside is pending,
/// as in one of 65536 lengths and pairs of addresses in a tunnel, whose packets are then
/// refused.
#[inline(always)]
pub fn is_pending<I: Ip>(ip: &I, udp: UdpHeader) -> bool {
    udp.checksum() == ip.pseudo_header(Protocol::UDP, udp.length()).pending()
}

/// Whether a packet has no room in front of its headers, as what a socket of this host sent. What is
/// forwarded, or comes from WireGuard in the kernel, has some. Pieces of a super-packet got it
/// before they came here again ([`make_headroom`](crate::host::split::make_headroom)); on the few
/// devices that compute no checksums they did not, and the kernel copies them.
#[inline(always)]
pub fn lacks_room(ctx: &TcContext) -> bool {
    ctx.has_socket() && !again::was_redirected(ctx)
}

/// Finds the way for any datagram, whose UDP header starts at `offset`.
#[inline(always)]
fn way<I: Settle>(
    ctx: &TcContext,
    offset: usize,
    ip: &I,
    udp: UdpHeader,
    payload_len: usize,
) -> Result<Way, Refusal> {
    // Zero says "no checksum" (RFC 768); TCP must have one.
    let absent = udp.checksum() == [0, 0];
    let is_pending = is_pending(ip, udp);
    let field = offset + UdpHeader::CHECKSUM_OFFSET;
    let finishes = || device_finishes_a_checksum(ctx, field).ok_or(PacketError::Access);
    // It would be written over the veil as well.
    if absent && finishes()? || veils() && !is_pending && finishes()? {
        return Err(Refusal::PendingInside);
    }
    let is_behind = payload_len <= shift::LONGEST
        && lacks_room(ctx)
        && is_linear(ctx)
        // One of a packet inside may be finished where it is, but not moved.
        && (is_pending || absent || !finishes()?);
    Ok(Way {
        is_behind,
        is_pending,
        speaks: !is_pending && !absent,
    })
}

/// Makes room for the TCP header behind a datagram, whose UDP header starts at `offset`. If
/// that fails, nothing has changed.
#[inline(always)]
pub fn make_room_behind(
    ctx: &TcContext,
    offset: usize,
    payload_len: usize,
) -> Result<(), PacketError> {
    set_len(ctx, offset + TcpHeader::LEN + payload_len)
}

/// Makes room for the TCP header in front of the payload, from that behind it if there is, and
/// tells what is known of the payload's sum. `offset` is where the UDP header starts; `shift` is
/// one of [`shift`].
#[inline(always)]
pub fn make_room<I: Settle>(
    ctx: &TcContext,
    offset: usize,
    payload_len: usize,
    way: Way,
    shift: impl FnOnce(&TcContext, usize, usize, bool) -> Result<Sum, PacketError>,
) -> Result<PayloadSum, PacketError> {
    let payload = offset + UdpHeader::LEN;
    // Where the checksum speaks, the sum is zero and not left out: the compiler would spill
    // what has no value, and the verifier refuses to load that.
    let sum = match (way.is_behind, way.speaks) {
        (true, speaks) => shift(ctx, payload, payload_len, !speaks)?,
        (false, false) => payload::sum(ctx, payload, payload_len)?,
        (false, true) => Sum::new(),
    };
    let room = if way.is_behind {
        TcpHeader::LEN
    } else {
        UdpHeader::LEN
    };
    if way.is_pending {
        settle::<I>(ctx, offset, [room, TcpHeader::LEN], payload_len)?;
    } else if !way.is_behind {
        adjust_after_ip(ctx, GROWTH as i32)?;
    }
    Ok(if way.speaks {
        PayloadSum::InUdpChecksum
    } else {
        PayloadSum::Known(sum)
    })
}

/// Writes the headers of the flow's next segment, for which there is room, over those of the
/// datagram. `window_of` makes its window of its acknowledgement number; `cover` does what is done to
/// its payload, whose length it is told.
#[inline(always)]
pub fn write_headers<I: Ip>(
    ctx: &TcContext,
    flow: &Entry,
    ip: I,
    udp: UdpHeader,
    payload: PayloadSum,
    window_of: impl FnOnce(u32) -> u16,
    cover: impl FnOnce(&I, TcpHeader, usize) -> Option<TcpHeader>,
) -> Result<(), PacketError> {
    // Numbers are taken last: a datagram that cannot leave must not use any.
    let now = now();
    let payload_len = udp.length().wrapping_sub(UdpHeader::LEN as u16);
    let (sequence, acknowledgment) = flow.send_datagram(u32::from(payload_len), now);
    let numbers = Numbers {
        sequence,
        acknowledgment,
        window: window_of(acknowledgment),
    };
    flow.keep_fields(ip.fields());
    let ip = match flow.label() {
        0 => ip,
        label => ip.with_label(label),
    };
    let (ip, tcp) = disguise(ip, udp, payload, numbers);
    let len = udp.length().wrapping_add(GROWTH as u16);
    let payload_len = usize::from(payload_len);
    let tcp = cover(&ip, tcp, payload_len).ok_or(PacketError::Access)?;
    sent::remember(&ip, &tcp, len, now);
    ctx.write(link_len(), ip).ok_or(PacketError::OutOfBounds)?;
    ctx.write(link_len() + I::LEN, tcp)
        .ok_or(PacketError::OutOfBounds)
}
