//! ICMP errors: our own about datagrams that do not fit, and those of the
//! network about our segments, made to be about the datagrams.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use xdptun_common::address::is_multicast_or_broadcast;
use xdptun_common::checksum::Sum;
use xdptun_common::flow::key::{received_flow, sent_flow};
use xdptun_common::parse::{Bytes as _, Shape, is_extension, locate, ports_at};
use xdptun_common::quote::{Quote, quoted};
use xdptun_common::tunnel::config::Request;
use xdptun_common::tunnel::fragment::growth;
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::state::State;
use xdptun_common::tunnel::translate::GROWTH;
use xdptun_common::tunnel::window::carries_fragment;
use xdptun_common::wire::{Icmp, IcmpHeader, Ip, IpVersion, Protocol, TcpHeader, UdpHeader};

use crate::host::clock::now;
use crate::packet::access::{Packet as _, View};
use crate::packet::direction::{Direction, reverse_link};
use crate::packet::error::PacketError;
use crate::packet::error_message::{message_len, replace_by_error};
use crate::packet::link::link_len;
use crate::packet::payload;
use crate::packet::skb::Skb as _;
use crate::packet::verifier::bounded;
use crate::tunnel::limits::Limit;
use crate::tunnel::rules::PHANTUN_ISS;
use crate::tunnel::sent::{Quoted, was_sent};
use crate::tunnel::table::{Entry, find};
use crate::tunnel::verdict::refused;
use crate::tunnel::{fragments, rules};

/// Turns a datagram that does not fit, once disguised and `growth` bytes longer, into the message
/// to its sender that says so. `mtu` is that of the interface. The message comes from
/// the datagram's destination, as the nearest router that could have sent it is
/// this host itself, whose addresses it would refuse as a source.
#[inline(never)]
pub fn too_big<I: Icmp>(ctx: &TcContext, mtu: u32, growth: usize) -> Outcome {
    match try_too_big::<I>(ctx, mtu, growth) {
        Ok(true) => Outcome::TxTooBig,
        Ok(false) => Outcome::TxDropTooBig,
        Err(error) => refused(error, Direction::Outbound),
    }
}

#[inline(always)]
fn try_too_big<I: Icmp>(ctx: &TcContext, mtu: u32, growth: usize) -> Result<bool, PacketError> {
    let located = locate::<I>(&View(ctx), link_len()).ok_or(PacketError::OutOfBounds)?;
    // An error about a packet to many would not be one about a socket.
    if is_multicast_or_broadcast(located.ip.destination()) || !Limit::Errors.take() {
        return Ok(false);
    }
    let udp: UdpHeader = View(ctx)
        .read(located.offset)
        .ok_or(PacketError::OutOfBounds)?;
    let outer = I::bare(
        located.ip.destination(),
        located.ip.source(),
        I::ICMP,
        message_len::<I>() as u16,
    );
    let icmp = I::too_big(mtu.saturating_sub(growth as u32));
    emit(ctx, outer, icmp, located.ip, udp)?;
    reverse_link(ctx)?;
    ctx.set_mark(Request::OwnError.mark());
    Ok(true)
}

/// Whether a packet of IP version `I` holds an ICMP message, or a part of one.
#[inline(always)]
pub fn is_icmp<I: Icmp>(ctx: &TcContext) -> bool {
    // Most packets are none, which one byte tells without a call.
    let other = |ip: I| {
        ip.protocol() != I::ICMP
            && (matches!(I::VERSION, IpVersion::V4) || !is_extension(ip.protocol()))
    };
    !ctx.read::<I>(link_len()).is_some_and(other) && is_message::<I>(ctx)
}

/// A subprogram, as its stack would be in the way of all others.
#[inline(never)]
fn is_message<I: Icmp>(ctx: &TcContext) -> bool {
    locate::<I>(&View(ctx), link_len())
        .is_some_and(|located| located.protocol == I::ICMP && located.shape != Shape::LaterFragment)
}

/// Where an error message may begin at most: behind an Ethernet header, an IPv6 header and
/// 64 bytes of options.
const MAX_OFFSET: usize = 128;

/// How long one may be; RFC 4443 allows 1,280 bytes in all, RFC 1812 allows 576.
const MAX_LEN: usize = 2048;

/// An ICMP message that came in; `None` if it changes nothing that is ours.
///
/// No datagram of an owned port leaves as UDP, so no router sends an error that quotes one.
/// Only `egress` makes such errors; they carry a mark. An error that quotes a segment has
/// to prove that its sender saw it. One that changes the route to a peer and quotes
/// anything else cannot be checked and is dropped: the kernel applies it to all that is
/// sent there, even if it quotes a ping that was never sent.
#[inline(always)]
pub fn receive<I: Icmp>(ctx: &TcContext) -> Option<Outcome> {
    match judge::<I>(ctx) {
        // The message gets a new checksum, so that damage would not show any more.
        Some(Outcome::RxIcmp) if !is_intact::<I>(ctx) => Some(Outcome::RxDropIcmp),
        Some(Outcome::RxIcmp) => Some(translate::<I>(ctx)),
        other => other,
    }
}

/// What becomes of an ICMP message: [`Outcome::RxIcmp`] if it is to be translated. These
/// are subprograms of their own, as their stacks do not fit into one.
#[inline(never)]
fn judge<I: Icmp>(ctx: &TcContext) -> Option<Outcome> {
    // Messages in a VLAN, as segments there, are for a program on its device.
    if ctx.is_in_vlan() {
        return None;
    }
    if Request::from_mark(ctx.mark()) == Some(Request::OwnError) {
        ctx.set_mark(0);
        return None;
    }
    let located = locate::<I>(&View(ctx), link_len())?;
    let icmp: IcmpHeader = View(ctx).read(located.offset)?;
    if !I::quotes(icmp) {
        return None;
    }
    // No error is so long that it has to be fragmented (RFC 1812 section 4.3.2.3, RFC 4443
    // section 2.4 (c)), and half of one cannot be judged. None stands behind more options
    // than IPv4 can have, and what stands so far behind could not be read.
    let at = bounded::<MAX_OFFSET>(located.offset as u32);
    let Some(at) = at.filter(|_| located.shape != Shape::FirstFragment) else {
        return Some(Outcome::RxDropIcmp);
    };
    // The kernel looks for a redirect's protocol even behind an impossible header.
    let Some(quote) = quoted::<I>(&View(ctx), at as usize + IcmpHeader::LEN) else {
        return I::changes_route(icmp).then_some(Outcome::RxDropIcmp);
    };
    // Ports that cannot be read belong to no flow, as port 0 does. Not an `Option`: the compiler
    // would spill the value of one that has none, which the verifier refuses.
    let ports = ports_at(&View(ctx), quote.offset).unwrap_or((0, 0));
    match quote.protocol {
        Protocol::TCP => {
            if !rules::owns_either(ports) {
                return None;
            }
            // Without a flow it is about a connection of this host, whose numbers the
            // kernel compares.
            let flow = find(&sent_flow(&quote.ip, ports))?;
            let end = located.offset + located.len;
            let now = now();
            if !proves(ctx, icmp, &quote, ports, flow, end, now) {
                flow.distrust(now);
                return Some(Outcome::RxDropIcmp);
            }
            Some(if I::is_error(icmp) {
                Outcome::RxIcmp
            } else {
                Outcome::RxDropIcmp
            })
        }
        Protocol::UDP if is_ours(&quote, ports) => Some(Outcome::RxDropIcmp),
        protocol if I::VERSION == IpVersion::V6 && is_extension(protocol) => {
            Some(Outcome::RxDropIcmp)
        }
        _ if I::changes_route(icmp) && rules::is_remote(quote.ip.destination()) => {
            Some(Outcome::RxDropIcmp)
        }
        _ => None,
    }
}

/// Whether a quoted datagram of this host would have left as a segment.
#[inline(always)]
fn is_ours<I: Ip>(quote: &Quote<I>, ports: (u16, u16)) -> bool {
    rules::owns_either(ports)
        && (rules::is_peer(quote.ip.destination()) || find(&sent_flow(&quote.ip, ports)).is_some())
}

/// Whether a message that ends at `end` proves that its sender saw a segment of the flow
/// (RFC 5927): no other host knows the flow's numbers.
#[inline(always)]
fn proves<I: Icmp>(
    ctx: &TcContext,
    icmp: IcmpHeader,
    quote: &Quote<I>,
    ports: (u16, u16),
    flow: Entry,
    end: usize,
    now: u64,
) -> bool {
    let Some(sequence) = View(ctx).read::<u32>(quote.offset + size_of::<u32>()) else {
        return false;
    };
    let sequence = u32::from_be(sequence);
    // A packet that fits is not too big.
    if I::mtu(icmp).is_some_and(|mtu| mtu as usize >= quote.ip_len) {
        return false;
    }
    let field = quote.offset + TcpHeader::CHECKSUM_OFFSET;
    let checksum = if field + size_of::<u16>() <= end {
        View(ctx).read::<[u8; 2]>(field)
    } else {
        None
    };
    match flow.state() {
        // No SYN is too long, and everybody knows the number of one to a phantun.
        State::SynSent | State::SynReceived => {
            sequence == flow.iss() && sequence != PHANTUN_ISS && !I::changes_route(icmp)
        }
        State::Established | State::FinSent | State::Closed => {
            let quoted = Quoted {
                ports,
                sequence,
                len: quote.len,
                checksum,
            };
            was_sent(&quote.ip, &quoted, flow, now)
        }
    }
}

/// Whether the checksum of a message is right, and that of an IPv4 header before it: the
/// message is made anew, and would hide what was wrong.
#[inline(never)]
fn is_intact<I: Icmp>(ctx: &TcContext) -> bool {
    let Some(located) = locate::<I>(&View(ctx), link_len()) else {
        return false;
    };
    // New bounds: the verifier forgets those of a big-endian word when it is swapped.
    let (Some(at), Some(len)) = (
        bounded::<MAX_OFFSET>(located.offset as u32),
        bounded::<MAX_LEN>(located.len as u32),
    ) else {
        return false;
    };
    if matches!(I::VERSION, IpVersion::V4) && !has_right_header(ctx.raw(), at) {
        return false;
    }
    let pseudo_header = located.ip.icmp_pseudo_header(len as u16);
    payload::sum(ctx, at as usize, len as usize)
        .is_ok_and(|sum| pseudo_header.combine(sum).is_intact())
}

/// Whether the checksum of an IPv4 header that ends at an offset is right.
#[inline(never)]
fn has_right_header(skb: *mut __sk_buff, end: u32) -> bool {
    let ctx = &TcContext::new(skb);
    let len = end.wrapping_sub(link_len() as u32);
    bounded::<MAX_IPV4_HEADER>(len)
        .and_then(|len| payload::sum(ctx, link_len(), len as usize).ok())
        .is_some_and(Sum::is_intact)
}

/// The longest IPv4 header, in bytes.
const MAX_IPV4_HEADER: usize = 60;

/// Whether a message that leaves is an error about a datagram of a peer, which was a segment
/// on the wire: the error would show the datagram there. The peer's TCP would ignore it, and
/// no TCP of this host would send it, so nothing takes its place.
///
/// A subprogram, as its stack would be in the way of all others.
#[inline(never)]
pub fn reveals_datagram<I: Icmp>(ctx: &TcContext) -> bool {
    let Some(located) = locate::<I>(&View(ctx), link_len()) else {
        return false;
    };
    let Some(icmp) = View(ctx).read::<IcmpHeader>(located.offset) else {
        return false;
    };
    if !I::quotes(icmp) {
        return false;
    }
    // No message stands so far behind; what did could not be read.
    let Some(at) = bounded::<MAX_OFFSET>(located.offset as u32) else {
        return true;
    };
    let at = at as usize + IcmpHeader::LEN;
    // A later fragment has no ports: what was noted of its first tells.
    let reveals = fragments::are_quoted::<I>(ctx, at as u32) || quotes_datagram::<I>(ctx, at);
    if reveals && located.shape == Shape::FirstFragment {
        fragments::refuse::<I>(ctx, Direction::Outbound);
    }
    reveals
}

/// Whether the packet that is quoted at `at` was a datagram of a peer to an owned port.
#[inline(always)]
fn quotes_datagram<I: Icmp>(ctx: &TcContext, at: usize) -> bool {
    let Some(quote) = quoted::<I>(&View(ctx), at) else {
        return false;
    };
    if quote.protocol != Protocol::UDP {
        return false;
    }
    let ports = ports_at(&View(ctx), quote.offset).unwrap_or((0, 0));
    rules::owns_either(ports)
        && (rules::is_peer(quote.ip.source()) || find(&received_flow(&quote.ip, ports)).is_some())
}

/// Makes a message about a segment one about the datagram that the segment was.
#[inline(never)]
fn translate<I: Icmp>(ctx: &TcContext) -> Outcome {
    match try_translate::<I>(ctx) {
        Ok(()) => Outcome::RxIcmp,
        Err(error) => refused(error, Direction::Inbound),
    }
}

#[inline(always)]
fn try_translate<I: Icmp>(ctx: &TcContext) -> Result<(), PacketError> {
    let located = locate::<I>(&View(ctx), link_len()).ok_or(PacketError::OutOfBounds)?;
    let at = bounded::<MAX_OFFSET>(located.offset as u32).ok_or(PacketError::OutOfBounds)? as usize;
    let icmp: IcmpHeader = View(ctx).read(at).ok_or(PacketError::OutOfBounds)?;
    let quote = quoted::<I>(&View(ctx), at + IcmpHeader::LEN).ok_or(PacketError::OutOfBounds)?;
    let (source, destination) =
        ports_at(&View(ctx), quote.offset).ok_or(PacketError::OutOfBounds)?;
    let udp_len = quote.len.saturating_sub(GROWTH) as u16;
    let udp = UdpHeader::new(source, destination, udp_len, [0; 2]);
    let end = located.offset + located.len;
    let was_fragment = match window_of(ctx, quote.offset, end) {
        Some(window) => carries_fragment(window),
        // If a fragment's sender is told too much, none of its datagrams crosses any more; if that of
        // a datagram is told too little, they are a little shorter than they need be.
        None => {
            find(&sent_flow(&quote.ip, (source, destination))).is_some_and(Entry::has_fragments)
        }
    };
    let growth = match was_fragment {
        true => growth::<I>(),
        false => GROWTH,
    };
    // Options of the message go.
    let len = message_len::<I>() as u16;
    let outer = located.ip.with_options(I::ICMP, 0, Sum::new(), len);
    emit(
        ctx,
        outer.with_fresh_checksum(),
        I::about_shorter(icmp, growth as u32),
        quote.ip,
        udp,
    )
}

/// The window of a segment quoted at an offset; `None` if the message ends before it.
#[inline(always)]
fn window_of(ctx: &TcContext, quoted_at: usize, end: usize) -> Option<u16> {
    let at = quoted_at + TcpHeader::WINDOW_OFFSET;
    if at + size_of::<u16>() > end {
        return None;
    }
    View(ctx).read(at).map(u16::from_be_bytes)
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
) -> Result<(), PacketError> {
    let quoted = ip
        .with_options(Protocol::UDP, 0, Sum::new(), udp.length())
        .with_fresh_checksum();
    replace_by_error(ctx, &outer, icmp, &quoted, &udp)
}
