//! Changes an address and a port in a packet, and the checksums with them.
//!
//! `bpf_l4_csum_replace` knows in which of three states the transport's checksum is: complete,
//! pending, when only the sum of the pseudo-header is in it, or none (UDP over IPv4). It
//! changes what is there by the difference.

use aya_ebpf::bindings::{BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR};
use aya_ebpf::helpers::generated::bpf_csum_update;
use aya_ebpf::programs::TcContext;
use xdptun_common::checksum::Sum;
use xdptun_common::gateway::tuple::{End, Side, Tuple};
use xdptun_common::wire::{IcmpHeader, Ip, IpVersion, Protocol};

use crate::packet::access::Packet as _;
use crate::packet::error::PacketError;
use crate::packet::link::link_len;
use crate::packet::resize::make_linear;
use crate::packet::skb::Skb as _;
use crate::packet::verifier::bounded;

/// Where a transport header may begin at most: behind an Ethernet header and as many
/// extension headers as anybody sends.
pub const MAX_OFFSET: usize = 512;

/// Translates the packet with this tuple, whose transport header begins at `offset`.
#[inline(always)]
pub fn rewrite<I: Ip>(
    ctx: &TcContext,
    offset: u32,
    tuple: &Tuple,
    to: End,
) -> Result<(), PacketError> {
    let offset = bounded::<MAX_OFFSET>(offset).ok_or(PacketError::OutOfBounds)? as usize;
    let field = offset + tuple.protocol().checksum_offset();
    make_linear(ctx, field + size_of::<u16>())?;
    let from = tuple.translated();
    let mangled = match tuple.protocol() {
        // Zero would say that there is none.
        Protocol::UDP => u64::from(BPF_F_MARK_MANGLED_0),
        _ => 0,
    };
    // That of ICMP has no pseudo-header; what is translated of ICMPv6 are errors alone.
    if tuple.protocol() != Protocol::ICMP {
        let change = address_change(from, to);
        change_pseudo_header::<I>(ctx, field, change.unfolded(), mangled)?;
    }
    if to.port() != from.port() {
        let [old, new] = [from, to].map(|end| u64::from(end.port().to_be()));
        ctx.l4_csum_replace(field, old, new, mangled | size_of::<u16>() as u64)
            .map_err(|_| PacketError::Access)?;
    }
    write_address::<I>(ctx, tuple.side(), to)?;
    let port = offset + port_offset(tuple.protocol(), tuple.side());
    ctx.write(port, to.port().to_be_bytes())
        .ok_or(PacketError::OutOfBounds)
}

/// Where in a transport header the port is that is translated on a side.
#[inline(always)]
pub const fn port_offset(protocol: Protocol, side: Side) -> usize {
    match (protocol, side) {
        (Protocol::ICMP, _) => IcmpHeader::IDENTIFIER_OFFSET,
        (_, Side::In) => size_of::<u16>(),
        (_, Side::Out) => 0,
    }
}

/// By how much a sum changes that the address is in.
#[inline(always)]
pub const fn address_change(from: End, to: End) -> Sum {
    Sum::new()
        .address(to.address())
        .without(Sum::new().address(from.address()))
}

/// Changes the transport's checksum by the difference of addresses.
#[inline(always)]
fn change_pseudo_header<I: Ip>(
    ctx: &TcContext,
    field: usize,
    change: u32,
    mangled: u64,
) -> Result<(), PacketError> {
    let flags = mangled | u64::from(BPF_F_PSEUDO_HDR);
    let replace = |flags| ctx.l4_csum_replace(field, 0, u64::from(change), flags);
    match I::VERSION {
        IpVersion::V4 => replace(flags),
        // The helper also changes what a device has added up, as is right for IPv4, whose
        // header checksum takes the addresses out of that sum again. It has to be told of IPv6
        // (6.16 and backports: ead7f9b8de65). Before, that change is taken back.
        IpVersion::V6 => replace(flags | BPF_F_IPV6).or_else(|_| {
            replace(flags)?;
            // SAFETY: the context is valid. It fails if no device has added anything up.
            let _ = unsafe { bpf_csum_update(ctx.raw(), change) };
            Ok(())
        }),
    }
    .map_err(|_| PacketError::Access)
}

/// `BPF_F_IPV6` of `linux/bpf.h`.
const BPF_F_IPV6: u64 = 1 << 7;

/// Writes the address into the IP header, whose checksum follows.
#[inline(always)]
pub fn write_address<I: Ip>(ctx: &TcContext, side: Side, to: End) -> Result<(), PacketError> {
    let at = link_len();
    let ip: I = ctx.read(at).ok_or(PacketError::OutOfBounds)?;
    let ip = match side {
        Side::In => ip.with_destination(to.address()),
        Side::Out => ip.with_source(to.address()),
    };
    ctx.write(at, ip).ok_or(PacketError::OutOfBounds)
}
