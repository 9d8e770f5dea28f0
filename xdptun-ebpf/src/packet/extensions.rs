//! Chains of IPv6 extension headers, followed in one place for each kind of
//! packet: global functions (the verifier's word), which the verifier walks once
//! and not once for each caller.

use aya_ebpf::bindings::{__sk_buff, xdp_md};
use aya_ebpf::programs::{TcContext, XdpContext};
use xdptun_common::parse::{Bytes, Chain, Chains, follow};
use xdptun_common::wire::Protocol;

use crate::packet::access::View;
use crate::packet::skb::Skb as _;

/// Where a chain can start at most: behind two VLAN tags, or in an ICMP message.
const MAX_START: u32 = 256;

impl Chains for View<'_, TcContext> {
    #[inline(always)]
    fn follow(&self, start: usize, first: Protocol) -> Option<Chain> {
        Chain::unpack(xdptun_follow_skb(
            self.0.raw(),
            start as u32,
            first.0.into(),
        ))
    }
}

impl Chains for View<'_, XdpContext> {
    #[inline(always)]
    fn follow(&self, start: usize, first: Protocol) -> Option<Chain> {
        Chain::unpack(xdptun_follow_xdp(self.0.ctx, start as u32, first.0.into()))
    }
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn xdptun_follow_skb(skb: *mut __sk_buff, start: u32, first: u32) -> u64 {
    walk(&TcContext::new(skb), start, first)
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn xdptun_follow_xdp(xdp: *mut xdp_md, start: u32, first: u32) -> u64 {
    walk(&XdpContext::new(xdp), start, first)
}

#[inline(always)]
fn walk<P>(packet: &P, start: u32, first: u32) -> u64
where
    for<'a> View<'a, P>: Bytes,
{
    if start > MAX_START {
        return 0;
    }
    Chain::pack(follow(&View(packet), start as usize, Protocol(first as u8)))
}
