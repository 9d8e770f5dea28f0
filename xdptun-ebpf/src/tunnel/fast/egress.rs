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
use crate::packet::skb::{Skb as _, device_finishes_a_checksum, is_linear};
use crate::packet::verifier::told;
use crate::tunnel::disguise::{
    Way, is_pending, lacks_room, make_room, make_room_behind, write_headers,
};
use crate::tunnel::table::find;
use crate::tunnel::veil::pad::pads;
use crate::tunnel::veil::{cover_and_sum, stream, veils};
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
    // That needs the stack of the full path.
    if veils() && pads(payload_len) {
        return None;
    }
    let way = way(ctx, &located.ip, udp, payload_len)?;
    // A device would write the checksum of a packet inside into covered bytes. There is none if the
    // payload moves, see `way`.
    if veils() && !way.is_behind && !way.is_pending && finishes_one_inside(ctx, at)? {
        return None;
    }
    if way.is_behind {
        make_room_behind(ctx, at, payload_len).ok()?;
    }
    let cover = |ip: &I, tcp, len| match veils() {
        true => cover_and_sum(ctx, ip, tcp, len, stream::here),
        false => Some(tcp),
    };
    let end = make_room::<I>(ctx, at, payload_len, way, shift::here)
        .and_then(|payload| write_headers(ctx, &flow, located.ip, udp, payload, window, cover));
    Some(match end {
        Ok(()) => Outcome::TxDisguised,
        Err(error) => refused(error, Direction::Outbound),
    })
}

/// Whether a device is to write the checksum of a packet inside the datagram at `at`, whose own is
/// complete.
#[inline(always)]
fn finishes_one_inside(ctx: &TcContext, at: usize) -> Option<bool> {
    device_finishes_a_checksum(ctx, at + UdpHeader::CHECKSUM_OFFSET)
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
