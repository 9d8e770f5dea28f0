//! Chains of IPv6 extension headers.

use aya_ebpf::bindings::xdp_md;
use aya_ebpf::programs::{TcContext, XdpContext};
use xdptun_common::parse::{Chain, Chains, follow};
use xdptun_common::wire::Protocol;

use crate::packet::access::View;
use crate::packet::copied::{Copied, MAX_LEN, copy};
use crate::packet::skb::Skb as _;

/// Where a chain can start at most: behind two VLAN tags, or in an ICMP message.
const MAX_START: usize = 256;

impl Chains for View<'_, TcContext> {
    #[inline(always)]
    fn follow(&self, start: usize, first: Protocol) -> Option<Chain> {
        if start > MAX_START {
            return None;
        }
        let behind = (self.0.len() as usize).checked_sub(start)?;
        let len = copy(self.0.raw(), start, behind.min(MAX_LEN))?;
        Chain::unpack(xdptun_follow(len, first.0.into()))
    }
}

impl Chains for View<'_, XdpContext> {
    #[inline(always)]
    fn follow(&self, start: usize, first: Protocol) -> Option<Chain> {
        Chain::unpack(follow_xdp(self.0.ctx, start, first))
    }
}

/// Follows the chain in bytes that were copied. A global function (the verifier's word), which the
/// verifier walks once and not once for each caller.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn xdptun_follow(len: u32, first: u32) -> u64 {
    let copied = Copied::first(len);
    Chain::pack(copied.and_then(|copied| follow(&copied, 0, Protocol(first as u8))))
}

#[inline(never)]
fn follow_xdp(xdp: *mut xdp_md, start: usize, first: Protocol) -> u64 {
    if start > MAX_START {
        return 0;
    }
    Chain::pack(follow(&View(&XdpContext::new(xdp)), start, first))
}
