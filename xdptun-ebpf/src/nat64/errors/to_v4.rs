//! ICMPv6 errors become ICMP errors (RFC 7915 sections 5.2 and 5.3).

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::helpers::generated::bpf_get_prandom_u32;
use aya_ebpf::programs::TcContext;
use xdptun_common::address::mapped;
use xdptun_common::checksum::Sum;
use xdptun_common::nat64::outcome::Outcome;
use xdptun_common::nat64::{header, message};
use xdptun_common::parse::Bytes as _;
use xdptun_common::wire::{IcmpHeader, Ip as _, Ipv4Header, Ipv6Header, Protocol};

use super::{Places, change_echo, change_transport, echo_inside, made, removed};
use crate::nat64::leases::address;
use crate::nat64::rewrite::{address_change, checked, replace_header, trim};
use crate::nat64::step::{Step, number, refused_v6};
use crate::nat64::to_v4::Behind;
use crate::nat64::translator::{prefix, translator};
use crate::packet::access::View;
use crate::packet::error::PacketError;
use crate::packet::link::link_len;
use crate::packet::resize::store;

/// Handles an ICMPv6 error; a number of [`Step`].
#[inline(never)]
pub fn nat64_error_to_v4(skb: *mut __sk_buff) -> u32 {
    let ctx = &TcContext::new(skb);
    let step = judge(ctx).and_then(|places| match places {
        None => Ok(Step::Done(Outcome::ToV4DropMessage)),
        Some(places) => write(ctx, places),
    });
    number(step, refused_v6)
}

/// Makes the headers of an error about a packet to a client, but for the checksum of the message and the
/// length of its packet; `None` if it is none.
#[inline(never)]
fn judge(ctx: &TcContext) -> Result<Option<Places>, PacketError> {
    let translator = translator()?;
    let ip: Ipv6Header = View(ctx).read(link_len()).ok_or(PacketError::OutOfBounds)?;
    let Some(behind) = Behind::of(ctx, link_len(), &ip)? else {
        return Ok(None);
    };
    let at = checked(link_len() + Ipv6Header::LEN + behind.extensions)?;
    let icmp: IcmpHeader = View(ctx).read(at).ok_or(PacketError::OutOfBounds)?;
    let inner_at = at + IcmpHeader::LEN;
    let inner: Ipv6Header = View(ctx).read(inner_at).ok_or(PacketError::OutOfBounds)?;
    // Who has sent the packet inside gets the message.
    if inner.source() != ip.destination() {
        return Ok(None);
    }
    let to = prefix(translator).extract(inner.source());
    let to = to.filter(|to| translator.may_reach(*to));
    let (Some(to), Some(client)) = (to, address(inner.destination())) else {
        return Ok(None);
    };
    let Some(quoted) = Behind::of(ctx, inner_at, &inner)? else {
        return Ok(None);
    };
    let made = made()?;
    made.icmp = match message::to_v4(&icmp, u32::MAX) {
        Some(icmp) => icmp,
        None => return Ok(None),
    };
    let about = [mapped(to), mapped(client)];
    let transport_len = inner.payload_len().unwrap_or(0);
    let transport_len = transport_len.saturating_sub(quoted.extensions) as u16;
    let header = header::to_v4(
        &inner,
        about,
        quoted.protocol,
        transport_len,
        quoted.part,
        0,
    );
    made.inner_v4 = match header {
        Some(header) => header,
        None => return Ok(None),
    };
    // A router has no address of the pool, and needs none (RFC 6791).
    let router = address(ip.source()).unwrap_or(translator.own);
    let outer = Ipv4Header::bare(mapped(router), mapped(to), Protocol::ICMP, 0);
    // SAFETY: no pointers are involved.
    let identification = unsafe { bpf_get_prandom_u32() } as u16;
    // No error is longer than the smallest packet of IPv6 (RFC 4443 section 2.4 (c)).
    made.outer_v4 = header::fragmentable(outer.with_fields(ip.fields()), identification);
    let payload_len = ip.payload_len().ok_or(PacketError::OutOfBounds)?;
    let (at, end) = (
        at as u32,
        (link_len() + Ipv6Header::LEN + payload_len) as u32,
    );
    let rest = (inner_at + Ipv6Header::LEN + quoted.extensions) as u32;
    Ok(Places::of(at, rest, message::quoted_v6(&icmp), end))
}

#[inline(always)]
fn write(ctx: &TcContext, places: Places) -> Result<Step, PacketError> {
    let removed = removed(ctx, places)?;
    let Some(transport) = transport(ctx, places)? else {
        return Ok(Step::Done(Outcome::ToV4DropMessage));
    };
    trim(ctx, places.kept as usize)?;
    write_headers(ctx, places, removed, transport)
}

/// Changes the transport of the packet inside; by how much the sum of the message changes. `None` if
/// the other version has no such packet.
#[inline(never)]
fn transport(ctx: &TcContext, places: Places) -> Result<Option<Sum>, PacketError> {
    let (at, rest) = places.checked()?;
    let inner: Ipv6Header = View(ctx)
        .read(at + IcmpHeader::LEN)
        .ok_or(PacketError::OutOfBounds)?;
    let made = &made()?.inner_v4;
    match made.protocol() {
        _ if made.part().is_some_and(|part| part.offset != 0) => Ok(Some(Sum::new())),
        protocol @ (Protocol::TCP | Protocol::UDP) => {
            let change = address_change(
                [inner.source(), inner.destination()],
                [made.source(), made.destination()],
            );
            change_transport(ctx, places, protocol, change).map(Some)
        }
        Protocol::ICMP => {
            let old = echo_inside(ctx, places)?;
            let new = message::to_v4(&old, u32::MAX).filter(|new| new.echo().is_some());
            let Some(new) = new else {
                return Ok(None);
            };
            let len = made.payload_len().unwrap_or(0);
            let pseudo_header = inner.pseudo_header(Protocol::ICMPV6, len as u16);
            change_echo(ctx, rest, (old, new), Sum::new().without(pseudo_header)).map(Some)
        }
        _ => Ok(None),
    }
}

#[inline(never)]
fn write_headers(
    ctx: &TcContext,
    places: Places,
    removed: Sum,
    transport: Sum,
) -> Result<Step, PacketError> {
    let (at, rest) = places.checked()?;
    let ip: Ipv6Header = View(ctx).read(link_len()).ok_or(PacketError::OutOfBounds)?;
    let icmp: IcmpHeader = View(ctx).read(at).ok_or(PacketError::OutOfBounds)?;
    let made = made()?;
    let len = IcmpHeader::LEN + Ipv4Header::LEN + (places.kept as usize - rest);
    let outer = made.outer_v4.with_payload(Protocol::ICMP, len as u16);
    let message_len = (places.end - places.at) as u16;
    let checksum = Sum::of_checksum(icmp.checksum())
        .without(removed.without_word(icmp.checksum()))
        .without(ip.pseudo_header(Protocol::ICMPV6, message_len))
        .combine(Sum::new().value(&made.icmp).value(&made.inner_v4))
        .combine(transport)
        .checksum();
    // All that is before the transport inside, but the room that the headers need.
    let removed = rest - (link_len() + Ipv6Header::LEN) - IcmpHeader::LEN - Ipv4Header::LEN;
    replace_header(ctx, &outer, removed, 0)?;
    let at = link_len() + Ipv4Header::LEN;
    store(ctx, at, &made.icmp.with_checksum(checksum))?;
    store(ctx, at + IcmpHeader::LEN, &made.inner_v4).map(|()| Step::Done(Outcome::ToV4Error))
}
