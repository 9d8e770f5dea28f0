//! ICMP errors become ICMPv6 errors (RFC 7915 sections 4.2 and 4.3).

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use xdptun_common::address::unmapped;
use xdptun_common::checksum::Sum;
use xdptun_common::nat64::outcome::Outcome;
use xdptun_common::nat64::{header, message};
use xdptun_common::parse::Bytes as _;
use xdptun_common::quote::quoted;
use xdptun_common::wire::{FragmentHeader, IcmpHeader, Ip as _, Ipv4Header, Ipv6Header, Protocol};

use super::{Places, change_echo, change_transport, echo_inside, made, removed};
use crate::nat64::leases::client;
use crate::nat64::rewrite::{address_change, checked, replace_header, trim};
use crate::nat64::step::{Step, number, refused_v4};
use crate::nat64::translator::{prefix, translator};
use crate::packet::access::View;
use crate::packet::error::PacketError;
use crate::packet::link::link_len;
use crate::packet::resize::{adjust_after_ip, store};

/// Handles an ICMP error; a number of [`Step`].
#[inline(never)]
pub fn nat64_error_to_v6(skb: *mut __sk_buff) -> u32 {
    let ctx = &TcContext::new(skb);
    let step = judge(ctx).and_then(|judged| match judged {
        Judged::Refused(outcome) => Ok(Step::Done(outcome)),
        Judged::About(places, has_fragment) => write(ctx, places, has_fragment),
    });
    number(step, refused_v4)
}

/// The most that is kept of what stands behind the headers of the packet inside, in bytes.
const LONGEST_REST: u32 = 1280 - 96;

/// What a message is.
enum Judged {
    /// An error about a packet of a client, whose headers are [`made`]; whether a fragment header is
    /// among them.
    About(Places, bool),
    /// It ends.
    Refused(Outcome),
}

const NONE: Result<Judged, PacketError> = Ok(Judged::Refused(Outcome::ToV6DropMessage));

/// Makes the headers, but for the checksum of the message and the length of its packet.
#[inline(never)]
fn judge(ctx: &TcContext) -> Result<Judged, PacketError> {
    let translator = translator()?;
    let ip: Ipv4Header = View(ctx).read(link_len()).ok_or(PacketError::OutOfBounds)?;
    let at = checked(link_len() + ip.header_len())?;
    let icmp: IcmpHeader = View(ctx).read(at).ok_or(PacketError::OutOfBounds)?;
    let Some(quote) = quoted::<Ipv4Header>(&View(ctx), at + IcmpHeader::LEN) else {
        return Err(PacketError::OutOfBounds);
    };
    // Who has sent the packet inside gets the message.
    let inner = quote.ip;
    if inner.source() != ip.destination() {
        return NONE;
    }
    let Some(to) = client(ctx, translator, unmapped(ip.destination())) else {
        return Ok(Judged::Refused(Outcome::ToV6DropUnknown));
    };
    let made = made()?;
    made.icmp = match message::to_v6(&icmp, quote.ip_len as u16, u32::MAX) {
        Some(icmp) => icmp,
        None => return NONE,
    };
    let prefix = prefix(translator);
    let about = [to, prefix.embed(unmapped(inner.destination()))];
    let has_fragment = match header::to_v6(&inner, about) {
        None => return NONE,
        Some((header, fragment)) => {
            made.inner_v6 = header;
            if let Some(fragment) = fragment {
                made.fragment = fragment;
            }
            fragment.is_some()
        }
    };
    // A router may have an address that may not stand behind the prefix: the other way round, RFC
    // 6791 has errors of a router without a usable address come from the translator.
    let router = match unmapped(ip.source()) {
        source if translator.may_reach(source) => source,
        _ => translator.own,
    };
    made.outer_v6 =
        Ipv6Header::bare(prefix.embed(router), to, Protocol::ICMPV6, 0).with_fields(ip.fields());
    let payload_len = ip.payload_len().ok_or(PacketError::OutOfBounds)?;
    let (at, end) = (at as u32, (at + payload_len) as u32);
    // RFC 4443 section 2.4 (c): 1,280 bytes in all, of which these headers are 96 at most.
    let longest = quote.offset as u32 + LONGEST_REST;
    let rest = quote.offset as u32;
    let Some(mut places) = Places::of(at, rest, message::quoted_v4(&icmp), end) else {
        return NONE;
    };
    places.kept = places.kept.min(longest);
    Ok(Judged::About(places, has_fragment))
}

#[inline(always)]
fn write(ctx: &TcContext, places: Places, has_fragment: bool) -> Result<Step, PacketError> {
    let removed = removed(ctx, places)?;
    let Some(transport) = transport(ctx, places)? else {
        return Ok(Step::Done(Outcome::ToV6DropMessage));
    };
    trim(ctx, places.kept as usize)?;
    write_headers(ctx, places, has_fragment, removed, transport)
}

/// Changes the transport of the packet inside; by how much the sum of the message changes. `None` if
/// the other version has no such packet.
#[inline(never)]
fn transport(ctx: &TcContext, places: Places) -> Result<Option<Sum>, PacketError> {
    let (at, rest) = places.checked()?;
    let inner: Ipv4Header = View(ctx)
        .read(at + IcmpHeader::LEN)
        .ok_or(PacketError::OutOfBounds)?;
    let made = &made()?.inner_v6;
    match inner.protocol() {
        _ if inner.part().is_some_and(|part| part.offset != 0) => Ok(Some(Sum::new())),
        protocol @ (Protocol::TCP | Protocol::UDP) => {
            let change = address_change(
                [inner.source(), inner.destination()],
                [made.source(), made.destination()],
            );
            change_transport(ctx, places, protocol, change).map(Some)
        }
        Protocol::ICMP => {
            let old = echo_inside(ctx, places)?;
            let new = message::to_v6(&old, 0, u32::MAX).filter(|_| old.echo().is_some());
            let Some(new) = new else {
                return Ok(None);
            };
            let len = inner.payload_len().unwrap_or(0);
            let pseudo_header = made.pseudo_header(Protocol::ICMPV6, len as u16);
            change_echo(ctx, rest, (old, new), pseudo_header).map(Some)
        }
        _ => Ok(None),
    }
}

#[inline(never)]
fn write_headers(
    ctx: &TcContext,
    places: Places,
    has_fragment: bool,
    removed: Sum,
    transport: Sum,
) -> Result<Step, PacketError> {
    let (at, rest) = places.checked()?;
    let icmp: IcmpHeader = View(ctx).read(at).ok_or(PacketError::OutOfBounds)?;
    let made = made()?;
    let extra = if has_fragment { FragmentHeader::LEN } else { 0 };
    let len = IcmpHeader::LEN + Ipv6Header::LEN + extra + (places.kept as usize - rest);
    let outer = made.outer_v6.with_payload(Protocol::ICMPV6, len as u16);
    let mut added = Sum::new().value(&made.icmp).value(&made.inner_v6);
    if has_fragment {
        added = added.value(&made.fragment);
    }
    let checksum = Sum::of_checksum(icmp.checksum())
        .without(removed.without_word(icmp.checksum()))
        .combine(added)
        .combine(transport)
        .combine(outer.pseudo_header(Protocol::ICMPV6, len as u16))
        .checksum();
    replace_header(ctx, &outer, at - link_len() - Ipv4Header::LEN, 0)?;
    // Both headers of ICMP have one length.
    let before = (rest - at - IcmpHeader::LEN) as i32;
    let longer = (Ipv6Header::LEN + extra) as i32 - before;
    if longer != 0 {
        adjust_after_ip(ctx, longer)?;
    }
    let at = link_len() + Ipv6Header::LEN;
    store(ctx, at, &made.icmp.with_checksum(checksum))?;
    store(ctx, at + IcmpHeader::LEN, &made.inner_v6)?;
    if has_fragment {
        let at = at + IcmpHeader::LEN + Ipv6Header::LEN;
        store(ctx, at, &made.fragment)?;
    }
    Ok(Step::Done(Outcome::ToV6Error))
}
