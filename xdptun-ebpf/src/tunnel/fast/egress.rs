//! tc egress: a datagram of an established flow becomes a segment.

use aya_ebpf::programs::TcContext;
use xdptun_common::parse::{Bytes as _, Located, Shape, locate};
use xdptun_common::tunnel::config::Request;
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::state::State;
use xdptun_common::tunnel::translate::GROWTH;
use xdptun_common::tunnel::window::window;
use xdptun_common::wire::{Protocol, UdpHeader};

use crate::host::interface::interface;
use crate::packet::access::Linear;
use crate::packet::direction::Direction;
use crate::packet::link::link_len;
use crate::packet::mtu::fits;
use crate::packet::settle::Settle;
use crate::packet::skb::{Skb as _, is_linear};
use crate::packet::verifier::told;
use crate::tunnel::disguise::{
    Way, is_pending, lacks_room, make_room, make_room_behind, write_headers,
};
use crate::tunnel::table::find;
use crate::tunnel::verdict::{Step, Verdict, refused};
use crate::tunnel::{rules, shift};

/// What becomes of a packet of IP version `I`.
#[inline(always)]
pub fn process<I: Settle>(ctx: &TcContext) -> Step {
    let Some(located) = locate::<I>(&Linear(ctx), link_len()) else {
        return Step::Miss;
    };
    if located.shape != Shape::Plain || Request::from_mark(ctx.mark()).is_some() {
        return Step::Miss;
    }
    let Some(ports) = located.ports(&Linear(ctx)) else {
        return Step::Miss;
    };
    match located.protocol {
        Protocol::UDP if !rules::owns_either(ports) => Step::PASS,
        Protocol::TCP if !rules::owns_port(ports.0) => Step::PASS,
        Protocol::UDP => match datagram(ctx, &located, ports) {
            Some(outcome) => Verdict::Ended(outcome).carry_out::<I>(ctx),
            None => Step::Miss,
        },
        _ => Step::Miss,
    }
}

/// Disguises a datagram of an owned port; `None` if it is missed.
#[inline(always)]
fn datagram<I: Settle>(
    ctx: &TcContext,
    located: &Located<I>,
    ports: (u16, u16),
) -> Option<Outcome> {
    let at = located.offset;
    let udp: UdpHeader = Linear(ctx).read(at)?;
    let len = told(udp.length());
    let payload_len = len.checked_sub(UdpHeader::LEN)?;
    if ctx.is_super_packet()
        || ctx.has_tag()
        || len != located.len
        || ctx.len() as usize != at + len
    {
        return None;
    }
    let flow = find(&located.outbound(ports))?;
    if flow.state() != State::Established
        || flow.interface() != interface(ctx).index()
        || !flow.has_sent()
        || !fits(ctx, GROWTH)
    {
        return None;
    }
    let way = way(ctx, &located.ip, udp, payload_len)?;
    if way.is_behind {
        make_room_behind(ctx, at, payload_len).ok()?;
    }
    let end = make_room::<I>(ctx, at, payload_len, way, shift::here)
        .and_then(|payload| write_headers(ctx, &flow, located.ip, udp, payload, window));
    Some(match end {
        Ok(()) => Outcome::TxDisguised,
        Err(error) => refused(error, Direction::Outbound),
    })
}

/// The way for a datagram with a checksum, whose payload is no shorter than what is saved while
/// a pending one ends.
///
/// No checksum inside a datagram is pending here if the payload moves: a tunnel of the kernel
/// whose packets have one says so (`skb->encapsulation`), and then there is no room behind; and
/// the data that a socket sends from its own port have none.
#[inline(always)]
fn way<I: Settle>(ctx: &TcContext, ip: &I, udp: UdpHeader, payload_len: usize) -> Option<Way> {
    if udp.checksum() == [0, 0] {
        return None;
    }
    let is_linear = is_linear(ctx);
    let is_pending = is_pending(ip, udp);
    if is_pending && (!is_linear || payload_len < size_of::<I::Saved>()) {
        return None;
    }
    let lacks_room = is_linear && lacks_room(ctx);
    let is_behind = lacks_room && ctx.is_of_socket(udp.source()) && payload_len <= shift::LONGEST;
    if lacks_room && !is_behind {
        return None;
    }
    Some(Way {
        is_behind,
        is_pending,
        speaks: !is_pending,
    })
}
