//! Sessions of inside hosts: what they send, and what comes to an outside end that is bound.

use aya_ebpf::programs::TcContext;
use xdptun_common::address::is_multicast_or_broadcast;
use xdptun_common::gateway::nat::{Filtering, Nat};
use xdptun_common::gateway::outcome::{Count, Outcome};
use xdptun_common::gateway::request::Kind;
use xdptun_common::gateway::session::Marks;
use xdptun_common::gateway::tuple::Side;

use crate::gateway::at_hand::{AtHand, at_hand};
use crate::gateway::bindings::{Bind, bind, binding};
use crate::gateway::cut::was_cut;
use crate::gateway::nat::nat_of;
use crate::gateway::open::{Opened, can_begin, is_for_own_socket};
use crate::gateway::requests::gateway_request_answer;
use crate::gateway::sessions;
use crate::gateway::source::has_socket;
use crate::host::counters::count;
use crate::host::interface::interface;
use crate::packet::skb::Skb as _;

/// Opens a session for the packet at hand, which leaves, if an inside host has sent it. Called
/// from the entry point, where the stack is empty; its steps are subprograms.
#[inline(always)]
pub fn open_leaving(ctx: &TcContext) -> Opened {
    request_answer(ctx, begin_leaving(ctx))
}

/// Asks the daemon to answer a packet that was refused, if its sender should know.
#[inline(always)]
pub fn request_answer(ctx: &TcContext, opened: Opened) -> Opened {
    let kind = match opened {
        Opened::Refused(Outcome::OutDropStray | Outcome::OutDropCut | Outcome::InDropCut) => {
            Kind::Reset
        }
        Opened::Refused(
            Outcome::OutDropPorts
            | Outcome::OutDropHost
            | Outcome::OutDropFull
            | Outcome::OutDropAddress
            | Outcome::InDropPorts
            | Outcome::InDropFull,
        ) => Kind::Prohibit,
        _ => return opened,
    };
    gateway_request_answer(ctx.raw(), kind as u32);
    opened
}

#[inline(always)]
fn begin_leaving(ctx: &TcContext) -> Opened {
    match decide_leaving(ctx) {
        Opened::Yes => {}
        other => return other,
    }
    match bind(ctx) {
        Bind::Done => {}
        Bind::NoPort => return Opened::Refused(Outcome::OutDropPorts),
        Bind::Full => return Opened::Refused(Outcome::OutDropFull),
        Bind::HostFull => return Opened::Refused(Outcome::OutDropHost),
    }
    match enter_leaving(Marks::default().bound()) {
        Entered::Yes => count(interface(ctx), Count::Began),
        Entered::Clash => return Opened::Refused(Outcome::OutDropClash),
        Entered::Full => return Opened::Refused(Outcome::OutDropFull),
    }
    Opened::Yes
}

/// Whether the packet at hand, which leaves and belongs to no session, begins one of an inside
/// host.
#[inline(never)]
fn decide_leaving(ctx: &TcContext) -> Opened {
    let Some(at_hand) = at_hand() else {
        return Opened::NotOurs;
    };
    if was_cut(&at_hand.packet, at_hand.now) {
        return Opened::Refused(Outcome::OutDropCut);
    }
    let at = interface(ctx).index();
    let Some(nat) = nat_of(at) else {
        return Opened::NotOurs;
    };
    let (inside, remote) = (at_hand.packet.source(), at_hand.packet.destination());
    if !nat.is_inside(inside.address()) {
        return Opened::NotOurs;
    }
    if is_multicast_or_broadcast(remote.address()) {
        return Opened::Refused(Outcome::OutDropUntranslated);
    }
    // First: the address may come back, and open connections go on.
    if !nat.has_outside() {
        return Opened::Refused(Outcome::OutDropAddress);
    }
    if !can_begin(at_hand) {
        return Opened::Refused(Outcome::OutDropStray);
    }
    if !sessions::has_room() {
        return Opened::Refused(Outcome::OutDropFull);
    }
    // It may be there with an outside address of before.
    sessions::forget(&at_hand.packet);
    at_hand.interface = at;
    at_hand.leaving = at_hand.packet;
    Opened::Yes
}

/// What came of the entries of a session.
enum Entered {
    Yes,
    Clash,
    Full,
}

/// Enters the session that translates the source of the packet that leaves, to the outside end at
/// hand.
#[inline(never)]
fn enter_leaving(marks: Marks) -> Entered {
    let Some(at_hand) = at_hand() else {
        return Entered::Full;
    };
    let (inside, now) = (at_hand.leaving.source(), at_hand.now);
    at_hand.returning = at_hand.leaving.answer(at_hand.outside);
    if sessions::is_taken(&at_hand.returning, &inside, now) {
        return Entered::Clash;
    }
    let entered = sessions::enter(&at_hand.returning, &inside, marks.in_answer(), now)
        && sessions::enter(&at_hand.leaving, &at_hand.outside, marks, now);
    match entered {
        true => Entered::Yes,
        false => Entered::Full,
    }
}

/// Opens a session for the packet at hand, which came in, if its destination is bound to an
/// inside end. Called as [`open_leaving`].
#[inline(always)]
pub fn open_arriving(ctx: &TcContext) -> Opened {
    match decide_arriving(ctx) {
        Arriving::NotOurs => Opened::NotOurs,
        Arriving::Refused(outcome) => Opened::Refused(outcome),
        Arriving::FromOutside => begin_arriving(ctx, false),
        // Only of inside hosts is known who is there to be told.
        Arriving::FromInside => request_answer(ctx, begin_arriving(ctx, true)),
    }
}

#[inline(always)]
fn begin_arriving(ctx: &TcContext, is_from_inside: bool) -> Opened {
    if !sessions::has_room() {
        return Opened::Refused(Outcome::InDropFull);
    }
    if is_from_inside {
        // Both ends see each other's outside ends (RFC 4787 REQ-9).
        match bind_arriving(ctx) {
            Opened::Yes => {}
            other => return other,
        }
    }
    if !enter_arriving(is_from_inside) {
        return Opened::Refused(Outcome::InDropFull);
    }
    count(interface(ctx), Count::Began);
    Opened::Yes
}

/// Gives the inside host that sent the packet at hand, which came in, an outside end.
#[inline(always)]
fn bind_arriving(ctx: &TcContext) -> Opened {
    let entered = match bind(ctx) {
        Bind::Done => enter_leaving(Marks::default().bound().masquerading()),
        Bind::NoPort => return Opened::Refused(Outcome::InDropPorts),
        Bind::Full | Bind::HostFull => return Opened::Refused(Outcome::InDropFull),
    };
    match entered {
        Entered::Yes => Opened::Yes,
        Entered::Clash => Opened::Refused(Outcome::InDropClash),
        Entered::Full => Opened::Refused(Outcome::InDropFull),
    }
}

/// What becomes of a packet that came in, belongs to no session, and that no rule names.
#[derive(Clone, Copy)]
enum Arriving {
    NotOurs,
    Refused(Outcome),
    FromOutside,
    FromInside,
}

/// Whether the packet at hand goes to an outside end that is bound, and may.
#[inline(never)]
fn decide_arriving(ctx: &TcContext) -> Arriving {
    let Some(at_hand) = at_hand() else {
        return Arriving::NotOurs;
    };
    let at = interface(ctx).index();
    let (end, protocol) = (at_hand.packet.destination(), at_hand.packet.protocol());
    let binding = binding(end, protocol, at_hand.now);
    at_hand.interface = binding.map_or(at, |binding| binding.interface);
    if nat_of(at_hand.interface).is_none() {
        // It was made anew since, with another index.
        at_hand.interface = at;
    }
    let Some(nat) = nat_of(at_hand.interface) else {
        return Arriving::NotOurs;
    };
    let is_from_inside = nat.is_inside(at_hand.packet.source().address());
    // By its own interface come packets of outside hosts, by all others those of inside hosts.
    if nat.outside != end.address() || (at_hand.interface == at) == is_from_inside {
        return Arriving::NotOurs;
    }
    let Some(binding) = binding else {
        return unbound(ctx, at_hand, nat);
    };
    if is_for_own_socket(ctx, &at_hand.packet) {
        return Arriving::NotOurs;
    }
    // Inside hosts may call each other: none of them can be asked before another has called it.
    if nat.filtering() != Filtering::EndpointIndependent && !is_from_inside {
        return Arriving::Refused(Outcome::InDropFiltered);
    }
    at_hand.to = binding.inside;
    at_hand.answer = at_hand.packet.answer(at_hand.to);
    if sessions::is_taken(&at_hand.answer, &end, at_hand.now) {
        return Arriving::Refused(Outcome::InDropClash);
    }
    at_hand.leaving = at_hand.packet.with_translated(at_hand.to).at(Side::Out);
    match is_from_inside {
        true => Arriving::FromInside,
        false => Arriving::FromOutside,
    }
}

/// A packet to an outside end that is not bound. Ports that are lent belong to nobody else but
/// this host's own servers.
#[inline(always)]
fn unbound(ctx: &TcContext, at_hand: &AtHand, nat: &Nat) -> Arriving {
    let to = &at_hand.packet;
    if nat.lends(to.destination().port()) && !has_socket(ctx.raw(), to) {
        Arriving::Refused(Outcome::InDropFiltered)
    } else {
        Arriving::NotOurs
    }
}

/// Enters the session of the packet at hand to an inside end.
#[inline(never)]
fn enter_arriving(is_from_inside: bool) -> bool {
    let Some(at_hand) = at_hand() else {
        return false;
    };
    let (marks, now) = (Marks::default().bound(), at_hand.now);
    let of_call = match is_from_inside {
        true => marks.leaving(),
        false => marks,
    };
    let outside = at_hand.packet.translated();
    sessions::enter(&at_hand.answer, &outside, marks.in_answer(), now)
        && sessions::enter(&at_hand.packet, &at_hand.to, of_call, now)
}
