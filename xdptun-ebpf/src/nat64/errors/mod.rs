//! ICMP errors: the message, and the packet inside it, become those of the other version.
//!
//! What stands behind the headers of the packet inside stays where it is. What is before it becomes
//! longer or shorter right behind the outer IP header, and is written anew. The checksum of the message
//! changes with it, so that damage still shows.
//!
//! A step is a subprogram, and the headers that are made are not on the stack: it has no room.

mod to_v4;
mod to_v6;

pub use to_v4::nat64_error_to_v4;
pub use to_v6::nat64_error_to_v6;

use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use aya_ebpf::programs::TcContext;
use xdptun_common::checksum::Sum;
use xdptun_common::parse::Bytes as _;
use xdptun_common::wire::{FragmentHeader, IcmpHeader, Ipv4Header, Ipv6Header, Protocol};

use crate::nat64::rewrite::checked;
use crate::packet::access::View;
use crate::packet::error::PacketError;
use crate::packet::payload;
use crate::packet::resize::store;

/// The headers of the message that is about to be written.
#[map]
pub static MESSAGES: PerCpuArray<Made> = PerCpuArray::with_max_entries(1, 0);

/// The headers of a message, of whichever version.
#[repr(C)]
pub struct Made {
    outer_v4: Ipv4Header,
    outer_v6: Ipv6Header,
    icmp: IcmpHeader,
    inner_v4: Ipv4Header,
    inner_v6: Ipv6Header,
    fragment: FragmentHeader,
}

/// The headers at hand. One such reference at a time is used: nothing else runs on this CPU before the
/// program ends.
#[inline(always)]
fn made() -> Result<&'static mut Made, PacketError> {
    let made = MESSAGES.get_ptr_mut(0).ok_or(PacketError::NoScratch)?;
    // SAFETY: a per-CPU value, which only this program run touches; any bytes are a value.
    Ok(unsafe { &mut *made })
}

/// Where the parts of a message are, in bytes from the start of the packet.
#[derive(Clone, Copy)]
struct Places {
    /// The header of the message.
    at: u32,
    /// What stands behind the headers of the packet inside.
    rest: u32,
    /// Where that ends.
    kept: u32,
    /// Where the message ends. What is cut off stands before it (RFC 4884).
    end: u32,
}

impl Places {
    /// Those of a message that quotes so many bytes, 0 if it does not say; `None` if it quotes less
    /// than the headers inside.
    #[inline(always)]
    fn of(at: u32, rest: u32, quoted: u32, end: u32) -> Option<Self> {
        let kept = end_of_quote(at, end, quoted);
        (kept >= rest).then_some(Self {
            at,
            rest,
            kept,
            end,
        })
    }

    /// The header of the message, and of what stands behind the headers inside.
    #[inline(always)]
    fn checked(self) -> Result<(usize, usize), PacketError> {
        Ok((checked(self.at as usize)?, checked(self.rest as usize)?))
    }
}

/// Where a message ends, once what stands behind the quoted packet is cut off; `quoted` is how many
/// bytes of that packet there are, 0 if the message does not say.
#[inline(always)]
const fn end_of_quote(at: u32, end: u32, quoted: u32) -> u32 {
    let cut = at + IcmpHeader::LEN as u32 + quoted;
    if quoted != 0 && cut < end { cut } else { end }
}

/// The sum of what is written anew or cut off.
#[inline(never)]
fn removed(ctx: &TcContext, places: Places) -> Result<Sum, PacketError> {
    let headers = sum(ctx, places.at, places.rest)?;
    Ok(headers.combine(sum(ctx, places.kept, places.end)?))
}

#[inline(always)]
fn sum(ctx: &TcContext, from: u32, to: u32) -> Result<Sum, PacketError> {
    match to.checked_sub(from) {
        None => Err(PacketError::OutOfBounds),
        Some(0) => Ok(Sum::new()),
        Some(len) => payload::sum(ctx, from as usize, len as usize),
    }
}

/// Changes the checksum of the transport inside by `change`, if it is there; by how much the sum of the
/// message changes.
#[inline(always)]
fn change_transport(
    ctx: &TcContext,
    places: Places,
    protocol: Protocol,
    change: Sum,
) -> Result<Sum, PacketError> {
    let (_, rest) = places.checked()?;
    let field = rest + protocol.checksum_offset();
    // Of TCP eight bytes may be all that is quoted.
    if field + size_of::<u16>() > places.kept as usize {
        return Ok(Sum::new());
    }
    let old: [u8; 2] = View(ctx).read(field).ok_or(PacketError::OutOfBounds)?;
    let new = protocol.changed_checksum(old, change);
    store(ctx, field, &new)?;
    Ok(Sum::new().word(new).without_word(old))
}

/// The header of an ICMP message inside. What stands behind the quoted packet is none of it, and not
/// yet cut off.
#[inline(always)]
fn echo_inside(ctx: &TcContext, places: Places) -> Result<IcmpHeader, PacketError> {
    let (_, rest) = places.checked()?;
    if rest + IcmpHeader::LEN > places.kept as usize {
        return Err(PacketError::OutOfBounds);
    }
    View(ctx).read(rest).ok_or(PacketError::OutOfBounds)
}

/// Writes the header of an echo message inside in the other version, with a checksum that changes by
/// `pseudo_header` besides; by how much the sum of the message changes.
#[inline(always)]
fn change_echo(
    ctx: &TcContext,
    offset: usize,
    (old, new): (IcmpHeader, IcmpHeader),
    pseudo_header: Sum,
) -> Result<Sum, PacketError> {
    let bare = |header: IcmpHeader| Sum::new().value(&header.with_checksum([0; 2]));
    let sum = Sum::of_checksum(old.checksum())
        .combine(pseudo_header)
        .combine(bare(new))
        .without(bare(old));
    let new = new.with_checksum(sum.checksum());
    store(ctx, offset, &new)?;
    Ok(Sum::new().value(&new).without(Sum::new().value(&old)))
}
