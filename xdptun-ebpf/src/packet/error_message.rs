//! Makes a packet an ICMP error, about itself or about another.

use aya_ebpf::programs::TcContext;
use xdptun_common::Plain;
use xdptun_common::wire::{Icmp, IcmpHeader};

use crate::packet::error::PacketError;
use crate::packet::link::link_len;
use crate::packet::resize::{replace_transport, store};

/// Bytes of the transport that an error quotes: what identifies the socket. More would be allowed; a
/// host needs no more (RFC 792, RFC 4443 section 2.4 (c)).
pub type Transport = [u32; 2];

/// Bytes of an error message behind its IP header: ICMP header, and of the packet it is about the
/// fixed IP header and [`Transport`].
pub const fn message_len<I: Icmp>() -> usize {
    IcmpHeader::LEN + I::LEN + size_of::<Transport>()
}

/// Replaces the packet by an ICMP error with the IP header `outer`, about a packet that has the header
/// `quoted` and begins like `transport` behind it.
#[inline(always)]
pub fn replace_by_error<I: Icmp, T: Plain>(
    ctx: &TcContext,
    outer: &I,
    icmp: IcmpHeader,
    quoted: &I,
    transport: &T,
) -> Result<(), PacketError> {
    const { assert!(size_of::<T>() == size_of::<Transport>()) };
    let at = link_len() + I::LEN;
    replace_transport::<I>(ctx, message_len::<I>())?;
    let sum = outer
        .icmp_pseudo_header(message_len::<I>() as u16)
        .value(&icmp)
        .value(quoted)
        .value(transport);
    store(ctx, link_len(), outer)?;
    store(ctx, at, &icmp.with_checksum(sum.checksum()))?;
    store(ctx, at + IcmpHeader::LEN, quoted)?;
    store(ctx, at + IcmpHeader::LEN + I::LEN, transport)
}
