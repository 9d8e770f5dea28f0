//! ICMP errors: our own about datagrams that do not fit, and those of the
//! network about our segments, made to be about the datagrams.

use aya_ebpf::programs::TcContext;
use xdptun_common::checksum::Sum;
use xdptun_common::counter::Outcome;
use xdptun_common::flow::{FlowKey, State};
use xdptun_common::parse::{Bytes as _, Located, Shape, locate};
use xdptun_common::wire::{
    Icmp, IcmpHeader, Protocol, TcpHeader, UdpHeader, is_multicast_or_broadcast,
};

use crate::budget::Budget;
use crate::control::reverse_link;
use crate::maps::link_len;
use crate::packet::{Packet as _, Skb as _, View};
use crate::resize::{ResizeError, replace_transport, store};
use crate::table::find;
use crate::{payload, rules};

/// Bytes of an error message behind its IP header: ICMP header, and of the
/// packet it is about the fixed IP header and what identifies the socket. More
/// would be allowed; a host needs no more (RFC 792, RFC 4443 section 2.4 (c)).
const fn message_len<I: Icmp>() -> usize {
    IcmpHeader::LEN + I::LEN + UdpHeader::LEN
}

/// Turns a datagram that does not fit, once disguised, into the message to its
/// sender that says so. `mtu` is that of the interface. The message comes from
/// the datagram's destination, as the nearest router that could have sent it is
/// this host itself, whose addresses it would refuse as a source.
#[inline(never)]
pub fn too_big<I: Icmp>(ctx: &TcContext, mtu: u32) -> Outcome {
    match try_too_big::<I>(ctx, mtu) {
        Ok(true) => Outcome::TxTooBig,
        Ok(false) => Outcome::TxDropTooBig,
        Err(ResizeError) => Outcome::TxDropResize,
    }
}

#[inline(always)]
fn try_too_big<I: Icmp>(ctx: &TcContext, mtu: u32) -> Result<bool, ResizeError> {
    let located = locate::<I>(&View(ctx), link_len()).ok_or(ResizeError)?;
    // An error about a packet to many would not be one about a socket.
    if is_multicast_or_broadcast(located.ip.destination()) || !Budget::Errors.take() {
        return Ok(false);
    }
    let udp: UdpHeader = View(ctx).read(located.offset).ok_or(ResizeError)?;
    let outer = I::bare(
        located.ip.destination(),
        located.ip.source(),
        I::ICMP,
        message_len::<I>() as u16,
    );
    let icmp = I::too_big(mtu.saturating_sub(TcpHeader::GROWTH as u32));
    emit(ctx, outer, icmp, located.ip, udp)?;
    reverse_link(ctx)?;
    Ok(true)
}

/// Whether a packet of IP version `I` holds nothing but an ICMP message. A
/// subprogram, as its stack would be in the way of all others.
#[inline(always)]
pub fn is_icmp<I: Icmp>(ctx: &TcContext) -> bool {
    // Most packets are none, which one byte tells without a call.
    let other = |ip: I| ip.protocol() != I::ICMP;
    !ctx.read::<I>(link_len()).is_some_and(other) && is_message::<I>(ctx)
}

#[inline(never)]
fn is_message<I: Icmp>(ctx: &TcContext) -> bool {
    match View(ctx).read::<I>(link_len()) {
        Some(ip) => {
            ip.is_valid()
                && ip.protocol() == I::ICMP
                && ip.header_len() == I::LEN
                && ip.fragment().is_none()
        }
        None => false,
    }
}

/// An ICMP message that came in; `None` if it is not about a segment of ours.
#[inline(never)]
pub fn receive<I: Icmp>(ctx: &TcContext) -> Option<Outcome> {
    // Messages in a VLAN, as segments there, are for a program on its device.
    if ctx.is_in_vlan() {
        return None;
    }
    let at = link_len() + I::LEN;
    let quoted_at = at + IcmpHeader::LEN;
    let icmp: IcmpHeader = View(ctx).read(at)?;
    if !I::is_error(icmp) {
        return None;
    }
    let quoted = locate::<I>(&View(ctx), quoted_at)?;
    if quoted.protocol != Protocol::TCP || quoted.shape == Shape::LaterFragment {
        return None;
    }
    // The quoted packet may end behind the ports and the sequence number.
    let ports = quoted.ports(&View(ctx))?;
    if !rules::owns_either(ports) {
        return None;
    }
    let sequence = u32::from_be(View(ctx).read(quoted.offset + size_of::<u32>())?);
    if !is_ours(&quoted.outbound(ports), sequence)? {
        return Some(Outcome::RxDropIcmp);
    }
    let outer: I = View(ctx).read(link_len())?;
    // The message gets a new checksum, so one that was damaged is left as it is
    // for the stack to find.
    let len = outer.payload_len()?;
    let sum = outer
        .icmp_pseudo_header(len as u16)
        .combine(payload::sum(ctx, at, len).ok()?);
    if !sum.is_intact() {
        return None;
    }
    Some(match translate(ctx, &outer, icmp, &quoted, ports) {
        Ok(()) => Outcome::RxIcmp,
        Err(ResizeError) => Outcome::RxDropResize,
    })
}

/// How many bytes ago a segment may have left that an error is about.
const LATELY: u32 = 1 << 24;

/// Whether a flow sent this sequence number a short while ago (RFC 5927 section
/// 4.1): who is not on the path must guess, and is right once in 256 times. `None`
/// if there is no such flow.
#[inline(always)]
fn is_ours(key: &FlowKey, sequence: u32) -> Option<bool> {
    let endpoint = find(key)?.endpoint();
    Some(match endpoint.state {
        State::SynSent | State::SynReceived => sequence == endpoint.iss,
        State::Established | State::FinSent | State::Closed => {
            endpoint.snd_nxt.wrapping_sub(sequence) <= LATELY
        }
    })
}

#[inline(always)]
fn translate<I: Icmp>(
    ctx: &TcContext,
    outer: &I,
    icmp: IcmpHeader,
    quoted: &Located<I>,
    (source, destination): (u16, u16),
) -> Result<(), ResizeError> {
    // A segment is never shorter than its header; what claims to be is cut off
    // at zero rather than refused, for the ports are right.
    let udp_len = quoted.len.saturating_sub(TcpHeader::GROWTH) as u16;
    let udp = UdpHeader::new(source, destination, udp_len, [0; 2]);
    let outer = outer.with_payload(I::ICMP, message_len::<I>() as u16);
    emit(
        ctx,
        outer,
        I::about_shorter(icmp, TcpHeader::GROWTH as u32),
        quoted.ip,
        udp,
    )
}

/// Replaces the packet by an ICMP message about the datagram `udp`, which was
/// sent with the IP header `ip`. Options it had are not quoted.
#[inline(always)]
fn emit<I: Icmp>(
    ctx: &TcContext,
    outer: I,
    icmp: IcmpHeader,
    ip: I,
    udp: UdpHeader,
) -> Result<(), ResizeError> {
    let at = link_len() + I::LEN;
    let quoted = ip
        .with_options(Protocol::UDP, 0, Sum::new(), udp.length())
        .with_fresh_checksum();
    replace_transport::<I>(ctx, message_len::<I>())?;
    let sum = outer
        .icmp_pseudo_header(message_len::<I>() as u16)
        .record(&icmp)
        .record(&quoted)
        .record(&udp);
    store(ctx, link_len(), &outer)?;
    store(ctx, at, &icmp.with_checksum(sum.checksum()))?;
    store(ctx, at + IcmpHeader::LEN, &quoted)?;
    store(ctx, at + IcmpHeader::LEN + I::LEN, &udp)
}
