//! A segment that carries a fragment becomes that fragment.

use aya_ebpf::programs::TcContext;
use xdptun_common::flow::key::received_flow;
use xdptun_common::parse::{Bytes as _, FragmentKey};
use xdptun_common::tunnel::fragment::{First, arrived, is_possible, renumbered};
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::window::{carries_fragment, takes_fragments};
use xdptun_common::wire::{FragmentHeader, Ip, IpVersion, Part, Protocol, TcpHeader, UdpHeader};

use super::{followed, note};
use crate::host::clock::now;
use crate::packet::access::{Packet as _, View};
use crate::packet::direction::Direction;
use crate::packet::error::PacketError;
use crate::packet::link::link_len;
use crate::packet::resize::{adjust_after_ip, store};
use crate::packet::verifier::bounded;
use crate::tunnel::table::{Entry, find};
use crate::tunnel::verdict::refused;

/// Notes that the peer of a flow takes fragments, if its segment without data says so.
#[inline(never)]
pub fn learn<I: Ip>(ctx: &TcContext, flow: &Entry) {
    if tcp::<I>(ctx).is_some_and(|tcp| takes_fragments(tcp.window())) {
        flow.note_takes_fragments();
    }
}

/// What a segment with data carries.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Carried {
    /// A datagram.
    Datagram = 0,
    /// A fragment.
    Fragment = 1,
    /// What says that it is a fragment, and cannot be one.
    Nothing = 2,
}

/// What the segment in the packet carries, before its flow notes it.
#[inline(never)]
pub fn carried<I: Ip>(ctx: &TcContext) -> Carried {
    match tcp::<I>(ctx) {
        Some(tcp) if carries_fragment(tcp.window()) => match part::<I>(ctx, tcp.header_len()) {
            Some(_) => Carried::Fragment,
            None => Carried::Nothing,
        },
        _ => Carried::Datagram,
    }
}

/// The part in a segment whose header has `header_len` bytes, and its length; `None` if there is no
/// such part.
#[inline(always)]
fn part<I: Ip>(ctx: &TcContext, header_len: usize) -> Option<(Part, usize)> {
    let ip: I = ctx.read(link_len())?;
    let at = link_len() + I::LEN + header_len;
    let part = View(ctx).read::<FragmentHeader>(at)?.part();
    let len = ip
        .payload_len()?
        .checked_sub(header_len + FragmentHeader::LEN)?;
    let len = bounded::<MAX_LEN>(len as u32)? as usize;
    is_possible(part, len).then_some((part, len))
}

#[inline(always)]
fn tcp<I: Ip>(ctx: &TcContext) -> Option<TcpHeader> {
    ctx.read(link_len() + I::LEN)
}

/// The longest segment that carries a fragment: jumbo frames fit.
const MAX_LEN: usize = 16 * 1024;

/// Turns the segment in the packet, which its flow has noted, into the fragment that it carries. Called
/// from the entry point, where the stack is empty.
#[inline(never)]
pub fn restore<I: Ip>(ctx: &TcContext) -> Outcome {
    match try_restore::<I>(ctx) {
        Ok(true) => Outcome::RxFragment,
        Ok(false) => Outcome::RxDropFragment,
        Err(error) => refused(error, Direction::Inbound),
    }
}

/// `false` if its first did not come before it.
#[inline(always)]
fn try_restore<I: Ip>(ctx: &TcContext) -> Result<bool, PacketError> {
    let at = link_len() + I::LEN;
    let ip: I = ctx.read(link_len()).ok_or(PacketError::OutOfBounds)?;
    let tcp = tcp::<I>(ctx).ok_or(PacketError::OutOfBounds)?;
    let header_len = tcp.header_len();
    let carried = at + header_len;
    let (part, len) = part::<I>(ctx, header_len).ok_or(PacketError::OutOfBounds)?;
    let ports = (tcp.source(), tcp.destination());
    let Some(flow) = find(&received_flow(&ip, ports)) else {
        return Ok(false);
    };
    let part = renumbered::<I>(part, flow.iss());
    let datagram = FragmentKey::new(&ip, Protocol::UDP, part.identification, false);
    if part.offset == 0 {
        let at = carried + FragmentHeader::LEN;
        let udp: UdpHeader = View(ctx).read(at).ok_or(PacketError::OutOfBounds)?;
        store(ctx, at, &arrived(&ip, ports, udp))?;
        note(&datagram, First::carried(now(), ports));
    } else if followed(&datagram).is_none_or(|first| first.ports() != Some(ports)) {
        return Ok(false);
    }
    if I::VERSION == IpVersion::V6 {
        store(ctx, carried, &FragmentHeader::new(Protocol::UDP, part))?;
    }
    let cut = header_len + FragmentHeader::LEN - I::PART_LEN;
    adjust_after_ip(ctx, -(cut as i32))?;
    let ip = ip.with_part(Protocol::UDP, part, len as u16);
    store(ctx, link_len(), &ip)?;
    Ok(true)
}
