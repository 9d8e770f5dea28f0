//! A segment that carries a fragment becomes that fragment.

use aya_ebpf::programs::TcContext;
use xdptun_common::parse::Bytes as _;
use xdptun_common::tunnel::fragment::{arrived, is_possible};
use xdptun_common::tunnel::window::{carries_fragment, takes_fragments};
use xdptun_common::wire::{FragmentHeader, Ip, IpVersion, Part, Protocol, TcpHeader, UdpHeader};

use crate::packet::access::{Packet as _, View};
use crate::packet::error::PacketError;
use crate::packet::link::link_len;
use crate::packet::resize::{adjust_after_ip, store};
use crate::packet::verifier::bounded;
use crate::tunnel::table::Entry;

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
/// such part, or the IP header is damaged: its checksum is made anew, and would hide that.
#[inline(always)]
fn part<I: Ip>(ctx: &TcContext, header_len: usize) -> Option<(Part, usize)> {
    let ip: I = ctx.read(link_len())?;
    let at = link_len() + I::LEN + header_len;
    let part = View(ctx).read::<FragmentHeader>(at)?.part();
    let len = ip
        .payload_len()?
        .checked_sub(header_len + FragmentHeader::LEN)?;
    let len = bounded::<MAX_LEN>(len as u32)? as usize;
    (ip.is_intact() && is_possible(part, len)).then_some((part, len))
}

#[inline(always)]
fn tcp<I: Ip>(ctx: &TcContext) -> Option<TcpHeader> {
    ctx.read(link_len() + I::LEN)
}

/// The longest segment that carries a fragment: jumbo frames fit.
const MAX_LEN: usize = 16 * 1024;

/// Turns the segment in the packet into the fragment that it carries.
#[inline(never)]
pub fn restore<I: Ip>(ctx: &TcContext) -> Result<(), PacketError> {
    let at = link_len() + I::LEN;
    let ip: I = ctx.read(link_len()).ok_or(PacketError::OutOfBounds)?;
    let tcp = tcp::<I>(ctx).ok_or(PacketError::OutOfBounds)?;
    let header_len = tcp.header_len();
    let carried = at + header_len;
    let (part, len) = part::<I>(ctx, header_len).ok_or(PacketError::OutOfBounds)?;
    if part.offset == 0 {
        let at = carried + FragmentHeader::LEN;
        let udp: UdpHeader = View(ctx).read(at).ok_or(PacketError::OutOfBounds)?;
        let ports = (tcp.source(), tcp.destination());
        store(ctx, at, &arrived(&ip, ports, udp))?;
    }
    if I::VERSION == IpVersion::V6 {
        store(ctx, carried, &FragmentHeader::new(Protocol::UDP, part))?;
    }
    let cut = header_len + FragmentHeader::LEN - I::PART_LEN;
    adjust_after_ip(ctx, -(cut as i32))?;
    store(
        ctx,
        link_len(),
        &ip.with_part(Protocol::UDP, part, len as u16),
    )
}
