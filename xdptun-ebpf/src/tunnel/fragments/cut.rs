//! A fragment that leaves, too long for a segment, is cut in two: for senders that do not listen when they
//! are told what fits, and for IPv6 links so narrow that nothing smaller may be told (RFC 8200 section 5).
//! So are some [whole datagrams](super::divide).

use aya_ebpf::helpers::generated::bpf_clone_redirect;
use aya_ebpf::programs::TcContext;
use xdptun_common::parse::locate;
use xdptun_common::tunnel::fragment::is_possible;
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::wire::{FragmentHeader, Ip, IpVersion, Part, Protocol};

use super::leaving::part;
use crate::host::again::{mark, unmark};
use crate::host::interface::interface;
use crate::packet::access::View;
use crate::packet::direction::Direction;
use crate::packet::error::PacketError;
use crate::packet::link::link_len;
use crate::packet::resize::{adjust_after_ip, store};
use crate::packet::skb::Skb as _;
use crate::packet::verifier::bounded;
use crate::tunnel::verdict::refused;

/// The most bytes that are cut off at once: `bpf_skb_adjust_room` removes no 4096. A multiple of eight,
/// as fragments are.
const MOST: usize = 4088;

/// What a queueing discipline says that took the packet, and dropped another (`NET_XMIT_CN`).
const CONGESTED: i64 = 2;

/// Why a packet cannot leave in two.
pub enum Uncut {
    /// It could not be read or changed.
    Packet(PacketError),
    /// The first half was dropped, by the hook or behind it.
    FirstDropped,
    /// A checksum of a packet inside is pending.
    PendingInside,
}

impl From<PacketError> for Uncut {
    #[inline(always)]
    fn from(error: PacketError) -> Self {
        Self::Packet(error)
    }
}

impl Uncut {
    /// What becomes of the packet.
    #[inline(always)]
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::Packet(error) => refused(error, Direction::Outbound),
            Self::FirstDropped => Outcome::TxDropFragment,
            Self::PendingInside => Outcome::TxDropPending,
        }
    }
}

/// Sends the first half of the fragment in the packet through the hook, as a fragment of its own, and
/// makes the packet the second. The caller has found that the fragment stands right behind its
/// headers, and ends where the packet ends.
#[inline(never)]
pub fn cut<I: Ip>(ctx: &TcContext) -> Result<(), Uncut> {
    let located = locate::<I>(&View(ctx), link_len()).ok_or(PacketError::OutOfBounds)?;
    let whole = part::<I>(ctx).ok_or(PacketError::OutOfBounds)?;
    // Half of what is no fragment could be one.
    if !is_possible(whole, located.len) {
        return Err(PacketError::OutOfBounds.into());
    }
    halve(ctx, located.ip, located.len, whole)
}

/// The same for `len` bytes, which are this part of a datagram, or all of it. They begin behind the IP
/// header and, over IPv6, room for a fragment header.
#[inline(always)]
pub(super) fn halve<I: Ip>(ctx: &TcContext, ip: I, len: usize, whole: Part) -> Result<(), Uncut> {
    let half = bounded::<MOST>((len as u32 / 2).next_multiple_of(8));
    let half = half.map_or(MOST, |half| half as usize);
    let rest = len.checked_sub(half).filter(|rest| *rest > 0);
    let rest = rest.ok_or(PacketError::OutOfBounds)?;
    let first = Part {
        more: true,
        ..whole
    };
    // What stands behind its end is cut off when the hook meets it.
    write::<I>(ctx, ip, first, half)?;
    // For other functions on the hook, which have met it.
    mark(ctx);
    // SAFETY: the context is valid. The clone is lost if the kernel has no memory for it.
    let sent = unsafe { bpf_clone_redirect(ctx.raw(), interface(ctx).index(), 0) };
    unmark(ctx);
    match sent {
        0 | CONGESTED => {}
        1.. => return Err(Uncut::FirstDropped),
        _ => return Err(PacketError::Access.into()),
    }
    let second = Part {
        offset: whole.offset.wrapping_add((half / 8) as u16),
        ..whole
    };
    adjust_after_ip(ctx, -(half as i32))?;
    write::<I>(ctx, ip, second, rest)?;
    Ok(())
}

/// Writes the headers of a fragment.
#[inline(always)]
fn write<I: Ip>(ctx: &TcContext, ip: I, part: Part, len: usize) -> Result<(), PacketError> {
    if I::VERSION == IpVersion::V6 {
        let header = FragmentHeader::new(Protocol::UDP, part);
        store(ctx, link_len() + I::LEN, &header)?;
    }
    store(
        ctx,
        link_len(),
        &ip.with_part(Protocol::UDP, part, len as u16),
    )
}
