//! ICMP errors about translated packets. A router, or an end, saw the packet as it was behind
//! this host; the end that sent it knows it as it was before.
//!
//! The headers are changed one after the other, each in a subprogram: those of IPv6 do not fit
//! on the stack together.

use aya_ebpf::programs::TcContext;
use xdptun_common::checksum::Sum;
use xdptun_common::flow::tick::Tick;
use xdptun_common::gateway::outcome::Outcome;
use xdptun_common::gateway::tuple::{End, Side, Tuple, echo_ports};
use xdptun_common::parse::{Bytes as _, Shape, locate, ports_at};
use xdptun_common::quote::{quoted, redirected};
use xdptun_common::wire::{Icmp, IcmpHeader, Protocol};

use crate::gateway::at_hand::at_hand;
use crate::gateway::nat::is_current;
use crate::gateway::process::refused;
use crate::gateway::rewrite::{address_change, port_offset};
use crate::gateway::sessions::find;
use crate::host::clock::now;
use crate::packet::access::View;
use crate::packet::error::PacketError;
use crate::packet::link::link_len;
use crate::packet::resize::store;
use crate::packet::verifier::bounded;

/// Where an error message may begin at most.
const MAX_OFFSET: usize = 128;

/// Where the transport header of a quoted packet may begin at most.
const MAX_QUOTED: usize = 512;

/// An error that is about a session.
struct About {
    /// Where the message begins.
    at: u32,
    /// Where it ends.
    end: u32,
    /// Where the transport header of the quoted packet begins.
    quoted: u32,
    /// What that packet is.
    protocol: Protocol,
    /// The end as the quoted packet has it.
    from: End,
    /// What it becomes.
    to: End,
}

/// Translates an error; `None` if it is about no session.
#[inline(never)]
pub fn translate<I: Icmp>(ctx: &TcContext, side: Side) -> Option<Outcome> {
    let about = match judge::<I>(ctx, side)? {
        Judged::About(about) => about,
        Judged::Redirect => return Some(Outcome::OutDropRedirect),
    };
    Some(match (write::<I>(ctx, side, &about), side) {
        (Ok(()), Side::In) => Outcome::InError,
        (Ok(()), Side::Out) => Outcome::OutError,
        (Err(error), side) => refused(error, side),
    })
}

/// What a message is.
enum Judged {
    /// An error about a packet of a session.
    About(About),
    /// The kernel's own redirect: the sender is to send on to the listen address.
    Redirect,
}

#[inline(never)]
fn judge<I: Icmp>(ctx: &TcContext, side: Side) -> Option<Judged> {
    let located = locate::<I>(&View(ctx), link_len())?;
    // No error is so long that it has to be fragmented (RFC 1812 section 4.3.2.3).
    if located.shape == Shape::FirstFragment {
        return None;
    }
    let at = bounded::<MAX_OFFSET>(located.offset as u32)?;
    let icmp: IcmpHeader = View(ctx).read(at as usize)?;
    let quote_at = if I::quotes_in_option(icmp) {
        redirected(&View(ctx), at as usize)?
    } else if I::quotes(icmp) {
        at as usize + IcmpHeader::LEN
    } else {
        return None;
    };
    let quote = quoted::<I>(&View(ctx), quote_at)?;
    if located.ip.destination() != quote.ip.source() {
        return None;
    }
    let ports = match quote.protocol {
        Protocol::TCP | Protocol::UDP => ports_at(&View(ctx), quote.offset)?,
        Protocol::ICMP => echo_at(ctx, quote.offset)?,
        _ => return None,
    };
    // The packet that would answer the quoted one has passed this hook, or would.
    let at_hand = at_hand()?;
    at_hand.packet = Tuple::of(&quote.ip, quote.protocol, ports, side).reversed();
    let found = find(&at_hand.packet, Tick::at(now()))?;
    if !is_current(ctx, side, found) {
        return None;
    }
    let to = found.to();
    if !I::is_error(icmp) {
        return (side == Side::Out).then_some(Judged::Redirect);
    }
    Some(Judged::About(About {
        at,
        end: (located.offset + located.len) as u32,
        quoted: quote.offset as u32,
        protocol: quote.protocol,
        from: at_hand.packet.translated(),
        to,
    }))
}

/// The ends of an echo message at an offset, as ports.
#[inline(always)]
fn echo_at(ctx: &TcContext, offset: usize) -> Option<(u16, u16)> {
    let icmp: IcmpHeader = View(ctx).read(offset)?;
    let (echo, identifier) = icmp.echo()?;
    Some(echo_ports(echo, identifier))
}

#[inline(always)]
fn write<I: Icmp>(ctx: &TcContext, side: Side, about: &About) -> Result<(), PacketError> {
    let transport = change_transport(ctx, side, about)?;
    let network = change_network::<I>(ctx, side, about)?;
    change_message::<I>(ctx, side, about, transport.combine(network))
}

/// Changes the port in the quoted packet, and its checksum; by how much the sum of the
/// message changes.
#[inline(never)]
fn change_transport(ctx: &TcContext, side: Side, about: &About) -> Result<Sum, PacketError> {
    let offset = bounded::<MAX_QUOTED>(about.quoted).ok_or(PacketError::OutOfBounds)? as usize;
    let (from, to) = (about.from, about.to);
    // The quoted packet goes the other way, so that the end is on its other side.
    let port = offset + port_offset(about.protocol, side.opposite());
    let change = Sum::new().number(to.port()).without_number(from.port());
    store(ctx, port, &to.port().to_be_bytes())?;
    let field = offset + about.protocol.checksum_offset();
    // Of TCP eight bytes may be all that is quoted.
    if field + size_of::<u16>() > about.end as usize {
        return Ok(change);
    }
    let Some(old) = View(ctx).read::<[u8; 2]>(field) else {
        return Ok(change);
    };
    let addresses = match about.protocol {
        Protocol::ICMP => Sum::new(),
        _ => address_change(from, to),
    };
    let new = about
        .protocol
        .changed_checksum(old, change.combine(addresses));
    store(ctx, field, &new)?;
    Ok(change.word(new).without_word(old))
}

/// Changes the address in the quoted packet; by how much the sum of the message changes.
#[inline(never)]
fn change_network<I: Icmp>(ctx: &TcContext, side: Side, about: &About) -> Result<Sum, PacketError> {
    let at = bounded::<MAX_OFFSET>(about.at).ok_or(PacketError::OutOfBounds)? as usize;
    let at = at + IcmpHeader::LEN;
    let old: I = View(ctx).read(at).ok_or(PacketError::OutOfBounds)?;
    let new = match side {
        Side::In => old.with_source(about.to.address()),
        Side::Out => old.with_destination(about.to.address()),
    };
    store(ctx, at, &new)?;
    Ok(Sum::new().value(&new).without(Sum::new().value(&old)))
}

/// Changes the address of the message itself, and its checksum.
#[inline(never)]
fn change_message<I: Icmp>(
    ctx: &TcContext,
    side: Side,
    about: &About,
    change: Sum,
) -> Result<(), PacketError> {
    let at = bounded::<MAX_OFFSET>(about.at).ok_or(PacketError::OutOfBounds)? as usize;
    let icmp: IcmpHeader = View(ctx).read(at).ok_or(PacketError::OutOfBounds)?;
    let old: I = View(ctx).read(link_len()).ok_or(PacketError::OutOfBounds)?;
    let new = match side {
        Side::In => old.with_destination(about.to.address()),
        Side::Out => old.with_source(about.to.address()),
    };
    let sum = Sum::of_checksum(icmp.checksum())
        .combine(change)
        .combine(new.icmp_pseudo_header(0))
        .without(old.icmp_pseudo_header(0));
    store(ctx, link_len(), &new)?;
    store(ctx, at, &icmp.with_checksum(sum.checksum()))
}
