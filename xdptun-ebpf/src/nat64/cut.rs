//! A fragment of IPv4 that IPv6's headers make too long.
//!
//! The kernel fragments what has no DF to the MTU of the pool's route. With the longer header, and the
//! header of a fragment, which only fragments get, that is eight bytes too many. IPv6 routers fragment
//! nothing, so the program does.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::helpers::generated::bpf_clone_redirect;
use aya_ebpf::programs::TcContext;
use xdptun_common::checksum::Sum;
use xdptun_common::nat64::outcome::Count;
use xdptun_common::parse::Bytes as _;
use xdptun_common::wire::{Ip as _, Ipv4Header, Part};

use crate::host::again::{mark, unmark};
use crate::host::counters::count;
use crate::host::interface::interface;
use crate::nat64::step::refused_v4;
use crate::nat64::to_v6::is_too_long;
use crate::nat64::translator::translator;
use crate::packet::access::View;
use crate::packet::error::PacketError;
use crate::packet::link::link_len;
use crate::packet::resize::{adjust_after_ip, store};
use crate::packet::skb::Skb as _;
use crate::packet::verifier::bounded;

/// The most bytes that are cut off at once: the kernel removes no 4096. A multiple of eight, as
/// fragments are.
const MOST: usize = 4088;

/// The largest offset that a fragment can name, in units of eight bytes. A fragment that goes on
/// behind it is of no datagram: the second half would start at its beginning again.
const LAST_OFFSET: u16 = 0x1fff;

/// Sends the first half of a fragment through the hook, as a packet of its own, and makes the packet
/// at hand the second: [`DONE`], or the index of an outcome.
#[inline(never)]
pub fn nat64_cut(skb: *mut __sk_buff) -> u32 {
    match cut(&TcContext::new(skb)) {
        Ok(()) => DONE,
        Err(error) => refused_v4(error).index(),
    }
}

/// What [`nat64_cut`] returns if the packet was cut.
pub const DONE: u32 = 0x100;

#[inline(always)]
fn cut(ctx: &TcContext) -> Result<(), PacketError> {
    let ip: Ipv4Header = View(ctx).read(link_len()).ok_or(PacketError::OutOfBounds)?;
    let payload_len = ip.payload_len().ok_or(PacketError::OutOfBounds)?;
    let part = ip.part().ok_or(PacketError::OutOfBounds)?;
    let half = bounded::<MOST>((payload_len as u32 / 2).next_multiple_of(8));
    let half = half.map_or(MOST, |half| half as usize);
    let offset = part.offset + (half / 8) as u16;
    if offset > LAST_OFFSET {
        return Err(PacketError::OutOfBounds);
    }
    let rest = payload_len
        .checked_sub(half)
        .ok_or(PacketError::OutOfBounds)?;
    if is_too_long(half.max(rest), translator()?.mtu_v4) {
        return Err(PacketError::TooLong);
    }
    let options = ip.header_len() - Ipv4Header::LEN;
    if options > 0 {
        adjust_after_ip(ctx, -(options as i32))?;
    }
    let header = |len: usize, part| {
        let whole = ip.with_options(ip.protocol(), 0, Sum::new(), len as u16);
        whole.with_part(ip.protocol(), part, len as u16)
    };
    // What stands behind its end is cut off when the hook meets it.
    let first = header(half, Part { more: true, ..part });
    store(ctx, link_len(), &first)?;
    let at = interface(ctx);
    count(at, Count::Cut);
    // For other functions on the hook, which have met it.
    mark(ctx);
    // SAFETY: the context is valid. The clone is lost if the kernel has no memory for it.
    let sent = unsafe { bpf_clone_redirect(ctx.raw(), at.index(), 0) };
    unmark(ctx);
    if sent != 0 {
        return Err(PacketError::Access);
    }
    let second = header(rest, Part { offset, ..part });
    adjust_after_ip(ctx, -(half as i32))?;
    store(ctx, link_len(), &second)
}
