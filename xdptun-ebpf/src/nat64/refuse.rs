//! Tells a client that its packet was refused: the packet becomes the message.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use aya_ebpf::programs::TcContext;
use xdptun_common::address::{is_multicast_or_broadcast, is_unspecified};
use xdptun_common::nat64::outcome::Outcome;
use xdptun_common::parse::Bytes as _;
use xdptun_common::wire::{Icmp as _, IcmpHeader, Ip as _, Ipv6Header, Protocol};

use crate::host::clock::now;
use crate::host::rate_limit::{Bucket, Rate};
use crate::nat64::rewrite::checked;
use crate::nat64::to_v4::Behind;
use crate::nat64::translator::translator;
use crate::packet::access::View;
use crate::packet::error::PacketError;
use crate::packet::error_message::{Transport, message_len, replace_by_error};
use crate::packet::link::link_len;

/// How many messages may still be sent, per CPU (RFC 4443 section 2.4 (f)).
#[map]
pub static REFUSALS: PerCpuArray<Bucket> = PerCpuArray::with_max_entries(1, 0);

/// How often, on each CPU.
const RATE: Rate = Rate {
    per_second: 1024,
    burst: 256,
};

/// The code of "destination unreachable" (RFC 4443 section 3.1) that tells a client of an outcome, if
/// it is told.
#[inline(always)]
pub const fn code(outcome: Outcome) -> Option<u8> {
    const PROHIBITED: u8 = 1;
    const ADDRESS_UNREACHABLE: u8 = 3;
    const SOURCE_POLICY: u8 = 5;
    match outcome {
        Outcome::ToV4DropOutside => Some(SOURCE_POLICY),
        Outcome::ToV4DropPrivate => Some(PROHIBITED),
        // RFC 6146 section 3.5.1.1.
        Outcome::ToV4DropFull | Outcome::ToV4DropShare | Outcome::ToV4DropNetwork => {
            Some(ADDRESS_UNREACHABLE)
        }
        _ => None,
    }
}

/// Makes the packet a message with a code to its sender; 0 if it is one.
#[inline(never)]
pub fn nat64_refuse(skb: *mut __sk_buff, code: u32) -> u32 {
    match refuse(&TcContext::new(skb), code as u8) {
        Ok(true) => 0,
        Ok(false) | Err(_) => 1,
    }
}

#[inline(always)]
fn refuse(ctx: &TcContext, code: u8) -> Result<bool, PacketError> {
    const UNREACHABLE: u8 = 1;
    let translator = translator()?;
    let ip: Ipv6Header = View(ctx).read(link_len()).ok_or(PacketError::OutOfBounds)?;
    if is_multicast_or_broadcast(ip.source()) || is_unspecified(ip.source()) || is_error(ctx, &ip)?
    {
        return Ok(false);
    }
    let transport: Transport = View(ctx)
        .read(link_len() + Ipv6Header::LEN)
        .ok_or(PacketError::OutOfBounds)?;
    let bucket = REFUSALS.get_ptr_mut(0);
    // SAFETY: a per-CPU value, which only this program run touches.
    if !bucket.is_some_and(|bucket| unsafe { (*bucket).take(RATE, now()) }) {
        return Ok(false);
    }
    let outer = Ipv6Header::bare(
        translator.own_v6,
        ip.source(),
        Ipv6Header::ICMP,
        message_len::<Ipv6Header>() as u16,
    );
    let icmp = IcmpHeader::new(UNREACHABLE, code, 0);
    replace_by_error(ctx, &outer, icmp, &ip, &transport)?;
    Ok(true)
}

/// Whether a packet is an ICMPv6 error, or what cannot be told from one: nothing is sent about these
/// (RFC 4443 section 2.4 (e)).
#[inline(always)]
fn is_error(ctx: &TcContext, ip: &Ipv6Header) -> Result<bool, PacketError> {
    let Some(behind) = Behind::of(ctx, link_len(), ip)? else {
        return Ok(true);
    };
    if behind.protocol != Protocol::ICMPV6 {
        return Ok(false);
    }
    let at = checked(link_len() + Ipv6Header::LEN + behind.extensions)?;
    let icmp: Option<IcmpHeader> = View(ctx).read(at);
    Ok(icmp.is_none_or(Ipv6Header::quotes))
}
