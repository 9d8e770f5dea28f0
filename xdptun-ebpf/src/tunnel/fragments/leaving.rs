//! A fragment that leaves becomes a segment; a datagram that is divided becomes two.

use aya_ebpf::programs::TcContext;
use xdptun_common::checksum::Sum;
use xdptun_common::flow::key::{FlowKey, sent_flow};
use xdptun_common::parse::{Bytes as _, Located, Shape, locate};
use xdptun_common::tunnel::event::Kind;
use xdptun_common::tunnel::fragment::{First, growth, is_possible, on_the_way};
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::state::State;
use xdptun_common::tunnel::translate::PayloadSum;
use xdptun_common::tunnel::window::{of_fragments, window};
use xdptun_common::wire::{
    FragmentHeader, Icmp, Ip, IpFields, IpVersion, Ipv4Header, Part, Protocol, TcpHeader, UdpHeader,
};

use super::cut::cut;
use super::divide::divide;
use super::{followed, note};
use crate::host::again;
use crate::host::clock::now;
use crate::packet::access::{Packet as _, View};
use crate::packet::direction::Direction;
use crate::packet::error::PacketError;
use crate::packet::link::link_len;
use crate::packet::mtu::exceeded_mtu;
use crate::packet::payload;
use crate::packet::resize::{adjust_after_ip, make_linear, trim};
use crate::packet::settle::Settle;
use crate::packet::verifier::bounded;
use crate::tunnel::disguise::{leave, write_headers};
use crate::tunnel::events::report;
use crate::tunnel::icmp::too_big;
use crate::tunnel::reply::{probe, rewrite};
use crate::tunnel::rules::is_phantun;
use crate::tunnel::table::{Entry, find};
use crate::tunnel::veil::{cover, veils};
use crate::tunnel::verdict::refused;

/// What becomes of the packet. A value goes with it, zero if it needs none: where an enum has no value, its
/// bytes would be undefined, and the verifier refuses to load them.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Action {
    /// It goes on as it is: it is none of ours, or its first has not come.
    AsItIs = 0,
    /// It is dropped.
    Nowhere = 1,
    /// It becomes the question whether the peer takes any, of the flow with these ports, the source in
    /// the high half.
    AsProbe = 2,
    /// It goes back: with a segment around it, it exceeds this MTU.
    Back = 3,
    /// It becomes a segment with these ports.
    AsSegment = 4,
    /// It is cut in two, each of which becomes one: its sender was told a moment ago.
    AsTwo = 5,
    /// It is a whole datagram, and is cut in two.
    AsHalves = 6,
}

impl Action {
    /// The action and its value in one number, as the result of a subprogram.
    #[inline(always)]
    const fn with(self, value: u32) -> u64 {
        (self as u64) << 32 | value as u64
    }
}

/// Handles a fragment, or a datagram that is divided; `None` if it goes on as it is. Called from the entry
/// point, where the stack is empty.
#[inline(always)]
pub fn process<I: Settle + Icmp>(ctx: &TcContext) -> Option<Outcome> {
    const AS_IT_IS: u32 = Action::AsItIs as u32;
    const AS_PROBE: u32 = Action::AsProbe as u32;
    const BACK: u32 = Action::Back as u32;
    const AS_SEGMENT: u32 = Action::AsSegment as u32;
    const AS_TWO: u32 = Action::AsTwo as u32;
    const AS_HALVES: u32 = Action::AsHalves as u32;
    let action = decide::<I>(ctx);
    let value = action as u32;
    Some(match (action >> 32) as u32 {
        AS_IT_IS => return None,
        AS_PROBE => ask::<I>(ctx, value),
        BACK => too_big::<I>(ctx, value, growth::<I>()),
        AS_SEGMENT => carry::<I>(ctx, value),
        AS_TWO => match cut::<I>(ctx) {
            Ok(()) => carry::<I>(ctx, value),
            Err(uncut) => uncut.outcome(),
        },
        AS_HALVES => match divide::<I>(ctx) {
            Ok(()) => carry::<I>(ctx, value),
            Err(uncut) => uncut.outcome(),
        },
        _ => Outcome::TxDropFragment,
    })
}

/// Decides what the packet does, and notes it for the fragments that follow the first.
#[inline(never)]
fn decide<I: Icmp>(ctx: &TcContext) -> u64 {
    let Some(located) = locate::<I>(&View(ctx), link_len()) else {
        return Action::AsItIs.with(0);
    };
    let datagram = located.fragmented(true);
    let is_first = located.shape == Shape::FirstFragment;
    let is_whole = located.shape == Shape::Plain;
    let ports = if is_first || is_whole {
        located.ports(&View(ctx))
    } else {
        match followed(&datagram).map(|first| first.ports()) {
            Some(None) => return Action::Nowhere.with(0),
            Some(ports) => ports,
            None => None,
        }
    };
    let Some(ports) = ports else {
        return Action::AsItIs.with(0);
    };
    let flow = find(&located.outbound(ports)).filter(|flow| flow.state() == State::Established);
    // Behind its end a short frame has padding, and what was cut off has the other half.
    if trim(ctx, located.offset + located.len).is_err() {
        return Action::Nowhere.with(0);
    }
    let both_ports = u32::from(ports.0) << 16 | u32::from(ports.1);
    let (action, value) = match flow.filter(|_| is_whole || is_alone(&located)) {
        None => (Action::Nowhere, 0),
        Some(_) if is_phantun(located.ip.destination()) => (Action::Nowhere, 0),
        Some(flow) if !flow.takes_fragments() => (Action::AsProbe, both_ports),
        Some(_) if is_whole => (Action::AsHalves, both_ports),
        Some(flow) => match exceeded_mtu(ctx, growth::<I>()) {
            // It makes all the others no longer then. What follows this one is lost with it.
            Some(mtu) if is_first && flow.claim_too_big(now()) => (Action::Back, mtu),
            Some(_) => (Action::AsTwo, both_ports),
            None => (Action::AsSegment, both_ports),
        },
    };
    if is_whole {
        return action.with(value);
    }
    let is_carried = matches!(action, Action::AsSegment | Action::AsTwo);
    if is_first {
        let first = match is_carried {
            true => First::carried(now(), ports),
            false => First::dropped(now()),
        };
        // Of the first half of what was cut, who cut it has done so, if others follow.
        if !again::was_redirected(ctx) {
            note(&datagram, first);
        }
    } else if !is_carried {
        return Action::Nowhere.with(0);
    }
    action.with(value)
}

/// The flow of a packet with these ports.
#[inline(always)]
fn flow_of<I: Ip>(ctx: &TcContext, ports: u32) -> Option<(FlowKey, Entry)> {
    let ports = ((ports >> 16) as u16, ports as u16);
    let key = sent_flow(&ctx.read::<I>(link_len())?, ports);
    find(&key).map(|flow| (key, flow))
}

/// Sends the fragment as a segment.
#[inline(never)]
fn carry<I: Ip>(ctx: &TcContext, ports: u32) -> Outcome {
    let Some((key, flow)) = flow_of::<I>(ctx, ports) else {
        return Outcome::TxDropFragment;
    };
    let ports = ((ports >> 16) as u16, ports as u16);
    let outcome = leave(ctx, &key, flow, |flow| into_segment::<I>(ctx, flow, ports));
    if outcome == Outcome::TxFragment && veils() && !cover::<I>(ctx) {
        return Outcome::TxDropAccess;
    }
    if outcome == Outcome::TxFragment && flow.claim_telling() {
        report(Kind::Fragmented, &key);
    }
    outcome
}

/// Whether the fragment stands right behind its IP header, or the fragment header there.
#[inline(always)]
fn is_alone<I: Ip>(located: &Located<I>) -> bool {
    located.offset == link_len() + I::LEN + I::PART_LEN
}

/// Turns the packet into a probe, if it is time to ask the peer whether it takes any: peers
/// that do say so in what they answer.
#[inline(never)]
fn ask<I: Ip>(ctx: &TcContext, ports: u32) -> Outcome {
    let Some((key, flow)) = flow_of::<I>(ctx, ports) else {
        return Outcome::TxDropFragment;
    };
    let now = now();
    if !flow.claim_question(now) {
        return Outcome::TxDropFragment;
    }
    match rewrite::<I>(ctx, Direction::Outbound, &key, &probe(&key, flow, now)) {
        Ok(()) => Outcome::TxAskedLost,
        Err(error) => refused(error, Direction::Outbound),
    }
}

/// Turns the fragment in the packet, of a datagram with these ports, into the next segment of
/// `flow`.
#[inline(always)]
fn into_segment<I: Ip>(ctx: &TcContext, flow: &Entry, ports: (u16, u16)) -> Outcome {
    let mut sum = Sum::new();
    let enclosed = enclose::<I>(ctx, &mut sum);
    match enclosed.and_then(|()| write::<I>(ctx, flow, ports, sum)) {
        Ok(()) => Outcome::TxFragment,
        Err(error) => refused(error, Direction::Outbound),
    }
}

/// Makes the fragment the payload of a segment, behind room for a TCP header. The IP header is that
/// of a datagram with this payload, whose sum goes into `sum`.
///
/// A subprogram of its own, as is what follows: both stacks do not fit into one.
#[inline(never)]
fn enclose<I: Ip>(ctx: &TcContext, sum: &mut Sum) -> Result<(), PacketError> {
    let at = link_len() + I::LEN;
    let located = locate::<I>(&View(ctx), link_len()).ok_or(PacketError::OutOfBounds)?;
    let len = located.len;
    let part = part::<I>(ctx).ok_or(PacketError::OutOfBounds)?;
    if !is_possible(part, len) {
        return Err(PacketError::OutOfBounds);
    }
    let first = match part.offset {
        0 => View(ctx).read::<UdpHeader>(at + I::PART_LEN),
        _ => None,
    };
    adjust_after_ip(ctx, growth::<I>() as i32)?;
    let carried = at + TcpHeader::LEN;
    make_linear(ctx, carried + FragmentHeader::LEN + UdpHeader::LEN.min(len))?;
    ctx.write(carried, FragmentHeader::new(Protocol::UDP, part))
        .ok_or(PacketError::OutOfBounds)?;
    if let Some(udp) = first {
        ctx.write(carried + FragmentHeader::LEN, on_the_way(&located.ip, udp))
            .ok_or(PacketError::OutOfBounds)?;
    }
    let udp_len = (UdpHeader::LEN + FragmentHeader::LEN + len) as u16;
    // Its number stands in front of the payload. No segments of a TCP have the same one.
    let whole = located.ip.whole(Protocol::UDP, udp_len);
    let fields = whole.fields();
    let identification = fields.identification.wrapping_add(part.offset);
    let whole = whole.with_fields(IpFields {
        identification,
        ..fields
    });
    ctx.write(link_len(), whole)
        .ok_or(PacketError::OutOfBounds)?;
    let len = bounded::<{ payload::MAX_LEN }>((FragmentHeader::LEN + len) as u32);
    *sum = payload::sum(ctx, carried, len.ok_or(PacketError::TooLong)? as usize)?;
    Ok(())
}

/// Writes the headers of the segment whose payload adds up to `sum`.
#[inline(never)]
fn write<I: Ip>(
    ctx: &TcContext,
    flow: &Entry,
    (source, destination): (u16, u16),
    sum: Sum,
) -> Result<(), PacketError> {
    let ip: I = ctx.read(link_len()).ok_or(PacketError::OutOfBounds)?;
    let udp_len = ip.payload_len().ok_or(PacketError::OutOfBounds)? as u16;
    let udp = UdpHeader::new(source, destination, udp_len, [0; 2]);
    let sum = PayloadSum::Known(sum);
    let window = |acknowledgment| of_fragments(window(acknowledgment));
    write_headers(ctx, flow, ip, udp, sum, window, |_, tcp, _| Some(tcp))
}

/// Which part of its datagram the fragment is.
#[inline(always)]
pub(super) fn part<I: Ip>(ctx: &TcContext) -> Option<Part> {
    match I::VERSION {
        IpVersion::V4 => View(ctx).read::<Ipv4Header>(link_len())?.part(),
        IpVersion::V6 => {
            let header: FragmentHeader = View(ctx).read(link_len() + I::LEN)?;
            Some(header.part())
        }
    }
}
