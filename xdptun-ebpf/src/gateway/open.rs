//! The first packet of a session.

use aya_ebpf::programs::TcContext;
use xdptun_common::address::{is_multicast_or_broadcast, is_unspecified};
use xdptun_common::gateway::outcome::{Count, Outcome};
use xdptun_common::gateway::session::Marks;
use xdptun_common::gateway::tuple::{End, Side, Tuple};
use xdptun_common::wire::{Flags, Protocol};

use crate::gateway::at_hand::{AtHand, at_hand};
use crate::gateway::cut::was_cut;
use crate::gateway::inside::{open_arriving, request_answer};
use crate::gateway::source::socket_for;
use crate::gateway::{rules, sessions, source};
use crate::host::counters::count;
use crate::host::interface::interface;
use crate::host::socket::Socket;
use crate::packet::skb::Skb as _;

/// What becomes of a packet that came in and belongs to no session.
#[derive(Clone, Copy)]
pub enum Opened {
    /// It is not the gateway's.
    NotOurs,
    /// No rule names it.
    Unruled,
    /// Its session is in the table now.
    Yes,
    /// It ends here.
    Refused(Outcome),
}

/// Opens a session for the packet at hand, which came in, if a rule says so. Called from the entry
/// point, where the stack is empty; its steps are subprograms.
#[inline(always)]
pub fn open(ctx: &TcContext) -> Opened {
    match decide(ctx) {
        Opened::Yes => {}
        cut @ Opened::Refused(Outcome::InDropCut) => return request_answer(ctx, cut),
        Opened::Unruled => {
            return match open_arriving(ctx) {
                Opened::NotOurs => beside(),
                other => other,
            };
        }
        other => return other,
    }
    match at_hand() {
        None => Opened::NotOurs,
        Some(at_hand) if at_hand.back_end.masquerades() && !source::choose(ctx, at_hand) => {
            Opened::Refused(Outcome::InDropPorts)
        }
        Some(_) => enter(ctx),
    }
}

/// Whether the packet at hand may begin a session; to where is at hand then.
#[inline(never)]
fn decide(ctx: &TcContext) -> Opened {
    let Some(at_hand) = at_hand() else {
        return Opened::NotOurs;
    };
    if !can_begin(at_hand) {
        return match was_cut(&at_hand.packet, at_hand.now) {
            true => Opened::Refused(Outcome::InDropCut),
            // This host's own TCP answers.
            false => Opened::NotOurs,
        };
    }
    let Some(rule) = rules::rule(interface(ctx).index(), &at_hand.packet) else {
        return match can_be_answered(&at_hand.packet) {
            true => Opened::Unruled,
            false => Opened::NotOurs,
        };
    };
    let is_datagram = at_hand.packet.protocol() == Protocol::UDP;
    if !can_be_answered(&at_hand.packet) || is_datagram && is_for_own_socket(ctx, &at_hand.packet) {
        return Opened::NotOurs;
    }
    let Some(back_end) = rules::back_end(rule.place(&at_hand.packet)) else {
        return Opened::NotOurs;
    };
    if back_end.unreachable != 0 {
        return Opened::Refused(Outcome::InDropUnreachable);
    }
    if !sessions::has_room() {
        return Opened::Refused(Outcome::InDropFull);
    }
    at_hand.back_end = back_end;
    at_hand.to = back_end.end(rule.offset);
    at_hand.answer = at_hand.packet.answer(at_hand.to);
    let listen = at_hand.packet.translated();
    if sessions::is_taken(&at_hand.answer, &listen, at_hand.now) {
        return Opened::Refused(Outcome::InDropClash);
    }
    at_hand.leaving = at_hand.packet.with_translated(at_hand.to).at(Side::Out);
    Opened::Yes
}

/// Enters the session at hand.
#[inline(never)]
fn enter(ctx: &TcContext) -> Opened {
    let Some(at_hand) = at_hand() else {
        return Opened::NotOurs;
    };
    let (marks, now) = (Marks::default(), at_hand.now);
    let of_call = match at_hand.back_end.masquerades() {
        true => marks.leaving(),
        false => marks,
    };
    let listen = at_hand.packet.translated();
    let entered = sessions::enter(&at_hand.answer, &listen, marks.in_answer(), now)
        && sessions::enter(&at_hand.packet, &at_hand.to, of_call, now);
    if !entered {
        return Opened::Refused(Outcome::InDropFull);
    }
    count(interface(ctx), Count::Began);
    Opened::Yes
}

/// Whether a packet comes from an end that a host can have.
#[inline(always)]
fn can_be_answered(packet: &Tuple) -> bool {
    let client = packet.source();
    !is_multicast_or_broadcast(client.address())
        && !is_unspecified(client.address())
        && client.port() != 0
}

/// Whether a packet may begin a session. Of TCP only a SYN does.
#[inline(always)]
pub fn can_begin(at_hand: &AtHand) -> bool {
    let flags = at_hand.flags;
    at_hand.packet.protocol() != Protocol::TCP
        || flags.contains(Flags::SYN) && !flags.intersects(Flags::ACK.with(Flags::RST))
}

/// Whether a packet belongs to a conversation of a socket of this host: it is connected to the
/// packet's sender.
#[inline(never)]
pub fn is_for_own_socket(ctx: &TcContext, packet: &Tuple) -> bool {
    socket_for(ctx.raw(), packet) == Socket::Connected
}

/// A connection that no rule names. Its answers may look like those of a session: the client
/// calls a back end by its own address, from the port from which it called the listen address.
#[inline(never)]
fn beside() -> Opened {
    let Some(at_hand) = at_hand() else {
        return Opened::NotOurs;
    };
    if at_hand.packet.protocol() != Protocol::TCP {
        return Opened::NotOurs;
    }
    at_hand.answer = at_hand.packet.reversed().at(Side::Out);
    // No session has an end like this.
    let own = End::default();
    match sessions::is_taken(&at_hand.answer, &own, at_hand.now) {
        true => Opened::Refused(Outcome::InDropClash),
        false => Opened::NotOurs,
    }
}
