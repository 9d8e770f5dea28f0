//! What a TCP verifies of a segment before it looks at flags and numbers.
//!
//! tc ingress comes before the kernel's own IP and TCP, so all that goes to the state
//! machine is verified here: how the frame was addressed, the checksums of the IPv4 header
//! and of the segment with all its payload, and without a flow the addresses. A datagram of
//! an open flow is not: it is restored, and the kernel's IP and UDP verify it. The time to
//! live is not either, as Linux delivers to itself whatever it is.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use xdptun_common::counter::Outcome;
use xdptun_common::flow::FlowKey;
use xdptun_common::wire::{
    Ip, Protocol, TcpHeader, is_loopback, is_multicast_or_broadcast, is_unspecified,
};

use crate::maps::{ifindex, link_len};
use crate::opaque::bounded;
use crate::packet::{Packet as _, Skb as _, device_finishes_a_checksum};
use crate::payload;

/// Why the segment in the packet goes no further; `None` if nothing is wrong with it. The
/// caller has found that it is one, in the plain shape, of the flow `key`, and that it ends
/// in the packet.
///
/// A subprogram that reads the header again: its callers have no stack to spare.
#[inline(never)]
pub fn refusal<I: Ip>(skb: *mut __sk_buff, key: &FlowKey, has_flow: bool) -> Option<Outcome> {
    let ctx = &TcContext::new(skb);
    // `tcp_v4_rcv` and `tcp_v6_rcv` take nothing else either.
    if !ctx.is_for_this_host() {
        return Some(Outcome::RxDropAddress);
    }
    if !is_intact::<I>(ctx) {
        return Some(Outcome::RxDropChecksum);
    }
    // A flow has proven its addresses.
    if !has_flow && is_martian(key) {
        return Some(Outcome::RxDropAddress);
    }
    None
}

/// Whether the checksums are right. Of a segment that another network namespace or virtual
/// machine of the same hardware sent, only the sum of the pseudo-header may be there, which
/// the kernel believes: it has passed no wire that could damage it.
#[inline(always)]
fn is_intact<I: Ip>(ctx: &TcContext) -> bool {
    let Some(ip) = ctx.read::<I>(link_len()) else {
        return false;
    };
    // A bound that the verifier of 6.1 knows, which forgets that of a big-endian word. No
    // segment of xdptun is longer.
    let len = bounded::<{ payload::MAX_LEN }>(ip.payload_len().unwrap_or(0) as u32);
    let (true, Some(len)) = (ip.is_intact(), len) else {
        return false;
    };
    let at = link_len() + I::LEN;
    let pseudo_header = ip.pseudo_header(Protocol::TCP, len as u16);
    payload::sum(ctx, at, len as usize).is_ok_and(|sum| {
        pseudo_header.combine(sum).is_intact()
            || device_finishes_a_checksum(ctx, at + TcpHeader::CHECKSUM_OFFSET) == Some(true)
    })
}

/// Whether no packet with these addresses can have come from a network: the kernel calls
/// them martian (`ip_route_input_slow`, `ip6_rcv_core`).
#[inline(always)]
fn is_martian(key: &FlowKey) -> bool {
    /// `LOOPBACK_IFINDEX` of `net/net_namespace.h`.
    const LOOPBACK: u32 = 1;
    let is_none = |address| {
        is_multicast_or_broadcast(address)
            || is_unspecified(address)
            || ifindex() != LOOPBACK && is_loopback(address)
    };
    is_none(key.remote_address()) || is_none(key.local_address())
}
