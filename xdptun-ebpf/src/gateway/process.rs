//! A packet at a hook: finds its session and translates it.

use aya_ebpf::programs::TcContext;
use xdptun_common::flow::tick::Tick;
use xdptun_common::gateway::outcome::{Count, Outcome};
use xdptun_common::gateway::session::Noted;
use xdptun_common::gateway::tuple::{Side, Tuple, echo_ports};
use xdptun_common::parse::{Bytes as _, Located, Shape, locate};
use xdptun_common::wire::{
    Echo, Flags, Icmp, IcmpHeader, IpVersion, Protocol, TcpHeader, UdpHeader,
};

use crate::gateway::at_hand::{AtHand, at_hand};
use crate::gateway::fragments::{self, Follow};
use crate::gateway::nat::is_current;
use crate::gateway::rewrite::{MAX_OFFSET, rewrite};
use crate::gateway::sessions::{Found, can_leave, find, tell_binding};
use crate::host::clock::now;
use crate::host::counters::count;
use crate::host::interface::interface;
use crate::packet::access::View;
use crate::packet::error::PacketError;
use crate::packet::link::link_len;
use crate::packet::skb::Skb as _;
use crate::packet::verifier::bounded;

/// What comes of a packet.
#[derive(Clone, Copy)]
pub enum Step {
    /// It is not the gateway's.
    Pass,
    /// It ended.
    Done(Outcome),
    /// It belongs to no session, and may begin one. It is [at hand](at_hand).
    Begin,
    /// It is an ICMP message, and may be an error about a packet of a session.
    Message,
    /// It is a later fragment, and its first has not come.
    Hold,
}

/// A [`Step`] as a number, which global functions return: the index of its outcome, or one of these.
pub const PASS: u32 = 0x100;
/// See [`PASS`].
pub const BEGIN: u32 = 0x101;
/// See [`PASS`].
pub const MESSAGE: u32 = 0x102;
/// See [`PASS`].
pub const HOLD: u32 = 0x103;
/// Added to a number if the packet is the first fragment of a datagram.
pub const IS_FIRST: u32 = 0x1000;

/// What [`process`] returned, as a number.
#[inline(always)]
pub fn number((step, is_first): (Step, bool)) -> u32 {
    let number = match step {
        Step::Pass => PASS,
        Step::Begin => BEGIN,
        Step::Message => MESSAGE,
        Step::Hold => HOLD,
        Step::Done(outcome) => outcome.index(),
    };
    match is_first {
        true => number | IS_FIRST,
        false => number,
    }
}

/// Handles a packet. Also tells whether it is the first fragment of a datagram.
#[inline(always)]
pub fn process<I: Icmp>(ctx: &TcContext, side: Side) -> (Step, bool) {
    let located = match ctx.is_in_vlan() {
        true => None,
        false => locate::<I>(&View(ctx), link_len()),
    };
    let Some(located) = located else {
        return (Step::Pass, false);
    };
    let is_first = located.shape == Shape::FirstFragment;
    let step = step(ctx, &located, side).unwrap_or(Step::Pass);
    (step, is_first)
}

/// What comes of a packet; `None` if it is not the gateway's.
#[inline(always)]
fn step<I: Icmp>(ctx: &TcContext, located: &Located<I>, side: Side) -> Option<Step> {
    if matches!(located.shape, Shape::FirstFragment | Shape::LaterFragment) {
        let at_hand = at_hand()?;
        at_hand.datagram = located.fragmented(side == Side::Out);
        at_hand.is_noted = 0;
        if located.shape == Shape::LaterFragment {
            return Some(follow::<I>(ctx, at_hand, side));
        }
    }
    let ports = match located.protocol {
        Protocol::TCP | Protocol::UDP => located.ports(&View(ctx))?,
        protocol if protocol == I::ICMP => match query::<I>(ctx, located, side) {
            Some(ports) => ports,
            None => return Some(Step::Message),
        },
        _ => return None,
    };
    let at_hand = at_hand()?;
    at_hand.packet = Tuple::of(&located.ip, located.protocol, ports, side);
    at_hand.now = Tick::at(now());
    let is_whole = look(ctx, located, at_hand).is_some();
    let found = find(&at_hand.packet, at_hand.now)
        .filter(|found| can_leave(*found) && is_current(ctx, side, *found));
    Some(match (found, is_whole) {
        (Some(_), false) => Step::Done(malformed(side)),
        (Some(found), true) => Step::Done(translate(ctx, located, at_hand, found)?),
        (None, true) if can_open::<I>(located, side) => Step::Begin,
        (None, _) => return None,
    })
}

/// Handles the later fragment at hand.
#[inline(always)]
fn follow<I: Icmp>(ctx: &TcContext, at_hand: &AtHand, side: Side) -> Step {
    match fragments::follow::<I>(ctx, at_hand, side) {
        Follow::AsItIs => Step::Pass,
        Follow::Translated(Ok(outcome)) => Step::Done(outcome),
        Follow::Translated(Err(error)) => Step::Done(refused(error, side)),
        Follow::Unknown => Step::Hold,
    }
}

/// Whether a packet of no session may begin one, or be one of a session that was cut. Inside hosts
/// begin by IPv4 alone, and a reply to a query begins none.
#[inline(always)]
fn can_open<I: Icmp>(located: &Located<I>, side: Side) -> bool {
    match side {
        Side::In => located.shape != Shape::Extensions && located.protocol != I::ICMP,
        Side::Out => located.shape != Shape::Extensions || matches!(I::VERSION, IpVersion::V4),
    }
}

/// The ports of a query of an inside host, or of the reply to one; `None` for any other message.
#[inline(always)]
fn query<I: Icmp>(ctx: &TcContext, located: &Located<I>, side: Side) -> Option<(u16, u16)> {
    if !matches!(I::VERSION, IpVersion::V4) {
        return None;
    }
    let at = bounded::<MAX_OFFSET>(located.offset as u32)? as usize;
    let icmp: IcmpHeader = View(ctx).read(at)?;
    match (icmp.echo()?, side) {
        ((Echo::Request, identifier), Side::Out) => Some(echo_ports(Echo::Request, identifier)),
        ((Echo::Reply, identifier), Side::In) => Some(echo_ports(Echo::Reply, identifier)),
        _ => None,
    }
}

/// Notes what a session has to know of the packet; `None` if its header does not fit into it.
#[inline(always)]
fn look<I: Icmp>(ctx: &TcContext, located: &Located<I>, at_hand: &mut AtHand) -> Option<()> {
    at_hand.len = (located.ip.header_len() + located.ip.payload_len()?) as u32;
    at_hand.flags = Flags(0);
    if located.protocol != Protocol::TCP {
        return (located.len >= UdpHeader::LEN).then_some(());
    }
    if located.len < TcpHeader::LEN {
        return None;
    }
    let at = bounded::<MAX_OFFSET>(located.offset as u32)? as usize;
    // Behind the ports: both numbers, and with the flags the data offset and the window.
    let [sequence, acknowledgement, flags]: [u32; 3] = View(ctx).read(at + 4)?;
    at_hand.sequence = u32::from_be(sequence);
    at_hand.acknowledgement = u32::from_be(acknowledgement);
    at_hand.flags = Flags((u32::from_be(flags) >> 16) as u8);
    Some(())
}

#[inline(always)]
fn translate<I: Icmp>(
    ctx: &TcContext,
    located: &Located<I>,
    at_hand: &mut AtHand,
    found: Found,
) -> Option<Outcome> {
    let side = at_hand.packet.side();
    if located.shape == Shape::Extensions {
        return Some(match side {
            Side::In => Outcome::InDropExtensions,
            Side::Out => Outcome::OutDropExtensions,
        });
    }
    let (to, marks) = (found.to(), found.marks());
    let tells = found.tells_binding(at_hand);
    let noted = found.note(at_hand);
    match noted {
        Noted::GoesOn => {}
        Noted::Proven => count(interface(ctx), Count::Proven),
        Noted::Reopened => count(interface(ctx), Count::Reopened),
        Noted::NotOurs => return None,
        Noted::Full => {
            return Some(match side {
                Side::In => Outcome::InDropFull,
                Side::Out => Outcome::OutDropFull,
            });
        }
    }
    let is_proof = noted == Noted::Proven;
    if tells || is_proof && marks.is_bound() {
        tell_binding(is_proof);
    }
    let outcome = match (side, marks.is_masquerade()) {
        (Side::In, _) if marks.is_bound() => Outcome::InTranslated,
        (Side::Out, _) if marks.is_bound() => Outcome::OutTranslated,
        (Side::In, false) => Outcome::InForwarded,
        (Side::In, true) => Outcome::InReturned,
        (Side::Out, false) => Outcome::OutReturned,
        (Side::Out, true) => Outcome::OutMasqueraded,
    };
    if located.shape == Shape::FirstFragment {
        fragments::note(at_hand, to, outcome);
    }
    Some(
        match rewrite::<I>(ctx, located.offset as u32, &at_hand.packet, to) {
            Ok(()) => outcome,
            Err(error) => refused(error, side),
        },
    )
}

#[inline(always)]
const fn malformed(side: Side) -> Outcome {
    match side {
        Side::In => Outcome::InDropMalformed,
        Side::Out => Outcome::OutDropMalformed,
    }
}

/// The outcome of a packet that could not be changed.
#[inline(always)]
pub const fn refused(error: PacketError, side: Side) -> Outcome {
    match (error, side) {
        (PacketError::OutOfBounds | PacketError::TooLong, side) => malformed(side),
        (PacketError::Access | PacketError::Resize | PacketError::NoScratch, Side::In) => {
            Outcome::InDropAccess
        }
        (PacketError::Access | PacketError::Resize | PacketError::NoScratch, Side::Out) => {
            Outcome::OutDropAccess
        }
    }
}
