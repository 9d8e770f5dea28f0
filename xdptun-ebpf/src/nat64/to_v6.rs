//! A packet of IPv4 becomes one of IPv6 (RFC 7915 section 4).

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use xdptun_common::address::unmapped;
use xdptun_common::checksum::Sum;
use xdptun_common::nat64::outcome::Outcome;
use xdptun_common::nat64::{header, message};
use xdptun_common::parse::Bytes as _;
use xdptun_common::wire::{
    FragmentHeader, Icmp as _, IcmpHeader, Ip as _, Ipv4Header, Ipv6Header, Protocol, UdpHeader,
};

use crate::nat64::leases::client;
use crate::nat64::rewrite::{address_change, change_checksum, checked, replace_header, trim};
use crate::nat64::step::{Step, number, refused_v4};
use crate::nat64::translator::{prefix, translator};
use crate::packet::access::View;
use crate::packet::error::PacketError;
use crate::packet::link::link_len;
use crate::packet::payload;
use crate::packet::resize::{make_linear, store};
use crate::packet::verifier::bounded;

/// Handles a packet of IPv4; a number of [`Step`].
#[inline(never)]
pub fn nat64_to_v6(skb: *mut __sk_buff) -> u32 {
    number(to_v6(&TcContext::new(skb)), refused_v4)
}

#[inline(always)]
fn to_v6(ctx: &TcContext) -> Result<Step, PacketError> {
    let translator = translator()?;
    let at = link_len();
    let ip: Ipv4Header = View(ctx).read(at).ok_or(PacketError::OutOfBounds)?;
    if !ip.is_valid() {
        return Err(PacketError::OutOfBounds);
    }
    let payload_len = ip.payload_len().ok_or(PacketError::OutOfBounds)?;
    trim(ctx, at + ip.header_len() + payload_len)?;
    let part = ip.part();
    let is_later = part.is_some_and(|part| part.offset != 0);
    let offset = checked(at + ip.header_len())?;
    let protocol = ip.protocol();
    let icmp = match protocol {
        Protocol::TCP | Protocol::UDP => None,
        Protocol::ICMP if part.is_some() => {
            return Ok(Step::Done(Outcome::ToV6DropFragment));
        }
        Protocol::ICMP => {
            let icmp: IcmpHeader = View(ctx).read(offset).ok_or(PacketError::OutOfBounds)?;
            if Ipv4Header::is_error(icmp) {
                return Ok(Step::Message);
            }
            if Ipv4Header::quotes(icmp) && Ipv4Header::changes_route(icmp) {
                return Ok(Step::Done(Outcome::ToV6DropRedirect));
            }
            let Some(made) = message::to_v6(&icmp, 0, u32::MAX) else {
                return Ok(Step::Done(Outcome::ToV6DropMessage));
            };
            Some((icmp, made))
        }
        _ => return Ok(Step::Done(Outcome::ToV6DropProtocol)),
    };
    let (source, destination) = (unmapped(ip.source()), unmapped(ip.destination()));
    if !translator.may_reach(source) {
        return Ok(Step::Done(Outcome::ToV6DropPrivate));
    }
    let field = protocol.checksum_offset() + size_of::<u16>();
    if !is_later {
        if payload_len < field {
            return Err(PacketError::OutOfBounds);
        }
        make_linear(ctx, offset + field)?;
    }
    let Some(to) = client(ctx, translator, destination) else {
        return Ok(Step::Done(Outcome::ToV6DropUnknown));
    };
    let addresses = [prefix(translator).embed(source), to];
    let has_checksum = is_later || protocol != Protocol::UDP || !lacks_checksum(ctx, offset)?;
    match (part, has_checksum) {
        (Some(_), false) => return Ok(Step::Done(Outcome::ToV6DropFragment)),
        (Some(_), true) if is_too_long(payload_len, translator.mtu_v4) => return Ok(Step::TooLong),
        (None, false) => {
            let len = datagram_len(ctx, offset, payload_len)?;
            let [source, destination] = addresses;
            let made = Ipv6Header::bare(source, destination, protocol, len);
            add_checksum(ctx, offset, made.pseudo_header(protocol, len), len.into())?;
        }
        _ => {}
    }
    let options = ip.header_len() - Ipv4Header::LEN;
    let (made, fragment) = header::to_v6(&ip, addresses).ok_or(PacketError::OutOfBounds)?;
    let inserted = match fragment {
        Some(_) => FragmentHeader::LEN,
        None => 0,
    };
    replace_header(ctx, &made, options, inserted)?;
    let offset = at + Ipv6Header::LEN;
    if let Some(fragment) = fragment {
        store(ctx, offset, &fragment)?;
    }
    if let Some((old, new)) = icmp {
        let sum = Sum::of_checksum(old.checksum())
            .combine(made.pseudo_header(Protocol::ICMPV6, payload_len as u16))
            .without(Sum::new().value(&old.with_checksum([0; 2])))
            .value(&new);
        store(ctx, offset, &new.with_checksum(sum.checksum()))?;
    } else if has_checksum && !is_later {
        let change = address_change([ip.source(), ip.destination()], addresses);
        change_checksum(ctx, offset + inserted, protocol, change)?;
    }
    Ok(Step::Done(Outcome::ToV6))
}

/// Whether a fragment of so many bytes would be too long with the headers of IPv6.
#[inline(always)]
pub const fn is_too_long(payload_len: usize, mtu_v4: u32) -> bool {
    (Ipv4Header::LEN + payload_len + FragmentHeader::LEN) as u32 > mtu_v4
}

#[inline(always)]
fn lacks_checksum(ctx: &TcContext, offset: usize) -> Result<bool, PacketError> {
    let udp: UdpHeader = View(ctx).read(offset).ok_or(PacketError::OutOfBounds)?;
    Ok(udp.checksum() == [0; 2])
}

/// The length of a datagram by its own header, over which its checksum goes (RFC 8200 section 8.1).
/// Bytes of the packet behind it are none of it: receivers cut them off (`__udp6_lib_rcv`).
#[inline(always)]
fn datagram_len(ctx: &TcContext, offset: usize, payload_len: usize) -> Result<u16, PacketError> {
    let udp: UdpHeader = View(ctx).read(offset).ok_or(PacketError::OutOfBounds)?;
    let len = udp.length() as usize;
    if len < UdpHeader::LEN || len > payload_len {
        return Err(PacketError::OutOfBounds);
    }
    Ok(len as u16)
}

/// Gives a datagram the checksum that it has in IPv6, where it must have one (RFC 8200 section 8.1).
#[inline(always)]
fn add_checksum(
    ctx: &TcContext,
    offset: usize,
    pseudo_header: Sum,
    len: usize,
) -> Result<(), PacketError> {
    let len = bounded::<{ payload::MAX_LEN }>(len as u32).ok_or(PacketError::TooLong)?;
    let sum = pseudo_header.combine(payload::sum(ctx, offset, len as usize)?);
    let field = offset + UdpHeader::CHECKSUM_OFFSET;
    store(ctx, field, &sum.udp_checksum())
}
