//! A packet of IPv6 becomes one of IPv4 (RFC 7915 section 5).

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::helpers::generated::bpf_get_prandom_u32;
use aya_ebpf::programs::TcContext;
use xdptun_common::address::mapped;
use xdptun_common::checksum::Sum;
use xdptun_common::nat64::chain::{Chain, follow};
use xdptun_common::nat64::outcome::Outcome;
use xdptun_common::nat64::{header, message};
use xdptun_common::parse::{Bytes as _, is_extension};
use xdptun_common::wire::{
    FragmentHeader, Icmp as _, IcmpHeader, Ip as _, Ipv4Header, Ipv6Header, Part, Protocol,
    TcpHeader, UdpHeader,
};

use crate::nat64::leases::address_of_sender;
use crate::nat64::rewrite::{
    MAX_OFFSET, address_change, change_checksum, checked, replace_header, trim,
};
use crate::nat64::step::{Step, number, refused_v6};
use crate::nat64::translator::{prefix, translator};
use crate::packet::access::View;
use crate::packet::error::PacketError;
use crate::packet::link::link_len;
use crate::packet::resize::{make_linear, store};
use crate::packet::skb::Skb as _;

/// Handles a packet of IPv6; a number of [`Step`].
#[inline(never)]
pub fn nat64_to_v4(skb: *mut __sk_buff) -> u32 {
    number(to_v4(&TcContext::new(skb)), refused_v6)
}

/// See [`follow`]. A subprogram, whose stack is gone before the caller goes on.
#[inline(never)]
fn follow_apart(skb: *mut __sk_buff, start: u32, first: u32) -> u64 {
    if start as usize > MAX_OFFSET {
        return 0;
    }
    let ctx = &TcContext::new(skb);
    Chain::pack(follow(&View(ctx), start as usize, Protocol(first as u8)))
}

/// What stands behind the extension headers of a packet.
pub struct Behind {
    /// The transport.
    pub protocol: Protocol,
    /// Bytes of extension headers.
    pub extensions: usize,
    /// Which part of a datagram the packet is, if a fragment header says so.
    pub part: Option<Part>,
}

impl Behind {
    /// Looks behind the header of the packet at an offset. `None` if an extension header forbids that
    /// the packet is translated.
    #[inline(always)]
    pub fn of(ctx: &TcContext, at: usize, ip: &Ipv6Header) -> Result<Option<Self>, PacketError> {
        let first = ip.protocol();
        if !is_extension(first) {
            return Ok(Some(Self {
                protocol: first,
                extensions: 0,
                part: None,
            }));
        }
        let start = at + Ipv6Header::LEN;
        let chain = Chain::unpack(follow_apart(ctx.raw(), start as u32, first.0.into()));
        let Some(chain) = chain else {
            return Ok(None);
        };
        let part = match chain.fragment {
            Some(fragment) => {
                let at = checked(start + fragment)?;
                let header: FragmentHeader = View(ctx).read(at).ok_or(PacketError::OutOfBounds)?;
                Some(header.part())
            }
            None => None,
        };
        Ok(Some(Self {
            protocol: chain.protocol,
            extensions: chain.len,
            part,
        }))
    }

    /// Whether it is only a part of a datagram.
    #[inline(always)]
    pub fn is_fragment(&self) -> bool {
        self.part.is_some_and(|part| part.more || part.offset != 0)
    }

    /// Whether it has no transport header.
    #[inline(always)]
    pub fn is_later(&self) -> bool {
        self.part.is_some_and(|part| part.offset != 0)
    }
}

#[inline(always)]
fn to_v4(ctx: &TcContext) -> Result<Step, PacketError> {
    let translator = translator()?;
    let ip: Ipv6Header = View(ctx).read(link_len()).ok_or(PacketError::OutOfBounds)?;
    if !ip.is_valid() {
        return Err(PacketError::OutOfBounds);
    }
    let Some(to) = prefix(translator).extract(ip.destination()) else {
        return Ok(Step::Done(Outcome::ToV4DropDestination));
    };
    let Some(behind) = Behind::of(ctx, link_len(), &ip)? else {
        return Ok(Step::Done(Outcome::ToV4DropExtensions));
    };
    let payload_len = ip.payload_len().ok_or(PacketError::OutOfBounds)?;
    let transport_len = payload_len
        .checked_sub(behind.extensions)
        .ok_or(PacketError::OutOfBounds)?;
    trim(ctx, link_len() + Ipv6Header::LEN + payload_len)?;
    let offset = checked(link_len() + Ipv6Header::LEN + behind.extensions)?;
    let icmp = match behind.protocol {
        Protocol::TCP | Protocol::UDP => None,
        Protocol::ICMPV6 if behind.is_fragment() => {
            return Ok(Step::Done(Outcome::ToV4DropFragment));
        }
        Protocol::ICMPV6 => {
            let icmp: IcmpHeader = View(ctx).read(offset).ok_or(PacketError::OutOfBounds)?;
            if Ipv6Header::quotes(icmp) {
                return Ok(Step::Message);
            }
            let Some(made) = message::to_v4(&icmp, u32::MAX) else {
                return Ok(Step::Done(Outcome::ToV4DropMessage));
            };
            Some((icmp, made))
        }
        _ => return Ok(Step::Done(Outcome::ToV4DropProtocol)),
    };
    if !translator.may_reach(to) {
        return Ok(Step::Done(Outcome::ToV4DropPrivate));
    }
    let field = behind.protocol.checksum_offset() + size_of::<u16>();
    if !behind.is_later() {
        if transport_len < field {
            return Err(PacketError::OutOfBounds);
        }
        make_linear(ctx, offset + field)?;
    }
    let from = match address_of_sender(ctx, ip.source()) {
        Ok(from) => from,
        Err(outcome) => return Ok(Step::Done(outcome)),
    };
    // SAFETY: no pointers are involved.
    let identification = unsafe { bpf_get_prandom_u32() } as u16;
    let addresses = [mapped(from), mapped(to)];
    let made = header::to_v4(
        &ip,
        addresses,
        behind.protocol,
        transport_len as u16,
        behind.part,
        identification,
    )
    .ok_or(PacketError::TooLong)?;
    let made = match ctx.segment_len() {
        None => made,
        Some(payload) => {
            let transport = transport_header_len(ctx, behind.protocol, offset)?;
            let len = (Ipv4Header::LEN + transport) as u32 + payload;
            header::of_segments(made, len, identification)
        }
    };
    replace_header(ctx, &made, behind.extensions, 0)?;
    let offset = link_len() + Ipv4Header::LEN;
    if let Some((old, new)) = icmp {
        // ICMP has no pseudo-header.
        let sum = Sum::of_checksum(old.checksum())
            .without(ip.pseudo_header(Protocol::ICMPV6, transport_len as u16))
            .without(Sum::new().value(&old.with_checksum([0; 2])))
            .value(&new);
        store(ctx, offset, &new.with_checksum(sum.checksum()))?;
    } else if !behind.is_later() {
        let change = address_change([ip.source(), ip.destination()], addresses);
        change_checksum(ctx, offset, behind.protocol, change)?;
    }
    Ok(Step::Done(Outcome::ToV4))
}

/// The length of the transport header of a super-packet.
#[inline(always)]
fn transport_header_len(
    ctx: &TcContext,
    protocol: Protocol,
    offset: usize,
) -> Result<usize, PacketError> {
    if protocol != Protocol::TCP {
        return Ok(UdpHeader::LEN);
    }
    let [words]: [u8; 1] = View(ctx)
        .read(offset + TcpHeader::LENGTH_OFFSET)
        .ok_or(PacketError::OutOfBounds)?;
    Ok(usize::from(words >> 4) * 4)
}
