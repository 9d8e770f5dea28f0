//! Checks that the kernel's IP and TCP would make: frame type, checksums and, without a flow,
//! addresses.
//!
//! tc ingress comes before the kernel's IP and TCP, so a segment is checked here before the
//! state machine sees its flags and numbers. A datagram of an open flow is not checked here;
//! the kernel's IP and UDP check it after restoring. TTL is checked only if this host
//! forwards the segment, because Linux checks it only then.

use core::mem::MaybeUninit;

use aya_ebpf::bindings::{
    __sk_buff, BPF_FIB_LKUP_RET_FRAG_NEEDED, BPF_FIB_LKUP_RET_NO_NEIGH, BPF_FIB_LKUP_RET_SUCCESS,
    BPF_FIB_LKUP_RET_UNSUPP_LWT, bpf_fib_lookup,
};
use aya_ebpf::helpers::generated::bpf_fib_lookup as look_up;
use aya_ebpf::programs::TcContext;
use xdptun_common::address::Local;
use xdptun_common::address::{
    address_words, is_link_local, is_loopback, is_multicast_or_broadcast, is_unspecified,
};
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::wire::{Ip, Protocol, TcpHeader};

use crate::host::interface::interface;
use crate::host::local::local;
use crate::packet::access::Packet as _;
use crate::packet::link::link_len;
use crate::packet::payload;
use crate::packet::skb::{Skb as _, device_finishes_a_checksum};
use crate::packet::verifier::bounded;

/// Why the segment in the packet goes no further; `None` if nothing is wrong with it. The
/// caller has found that it is one, in the plain shape, of the flow `key`, and that it ends
/// in the packet.
#[inline(always)]
pub fn refusal<I: Ip>(ctx: &TcContext, key: &FlowKey, has_flow: bool) -> Option<Outcome> {
    // `tcp_v4_rcv` and `tcp_v6_rcv` take no other frame either. A flow has proven its
    // addresses.
    if !ctx.is_for_this_host() {
        Some(Outcome::RxDropAddress)
    } else if !is_intact::<I>(ctx.raw()) {
        Some(Outcome::RxDropChecksum)
    } else if !has_flow && !has_right_addresses::<I>(ctx.raw(), key) {
        Some(Outcome::RxDropAddress)
    } else {
        None
    }
}

// Subprograms, each of which reads the header again: their caller has no stack to spare,
// and one of both would not leave enough for what they call.

/// Whether the checksums are right. Of a segment that another network namespace or virtual
/// machine of the same hardware sent, only the sum of the pseudo-header may be there, which
/// the kernel believes: it has passed no wire that could damage it.
#[inline(never)]
pub fn is_intact<I: Ip>(skb: *mut __sk_buff) -> bool {
    let ctx = &TcContext::new(skb);
    let Some(ip) = ctx.read::<I>(link_len()) else {
        return false;
    };
    // A new bound: the verifier forgets that of a big-endian word when it is swapped. No
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

/// Whether a connection can have the addresses of the segment.
#[inline(never)]
fn has_right_addresses<I: Ip>(skb: *mut __sk_buff, key: &FlowKey) -> bool {
    let ctx = &TcContext::new(skb);
    !is_martian(ctx, key) && is_ours::<I>(ctx, key)
}

/// Whether no packet with these addresses can have come from a network: the kernel calls
/// them martian (`ip_route_input_slow`, `ip6_rcv_core`).
#[inline(always)]
fn is_martian(ctx: &TcContext, key: &FlowKey) -> bool {
    let is_none = |address| {
        is_multicast_or_broadcast(address)
            || is_unspecified(address)
            || !on_loopback(ctx) && is_loopback(address)
    };
    is_none(key.remote_address()) || is_none(key.local_address())
}

/// Whether the packet is on the loopback device.
#[inline(always)]
fn on_loopback(ctx: &TcContext) -> bool {
    /// `LOOPBACK_IFINDEX` of `net/net_namespace.h`.
    const INDEX: u32 = 1;
    interface(ctx).index() == INDEX
}

/// Whether the segment goes to an address of this host, or to one that it forwards to, and
/// comes from another host.
#[inline(always)]
fn is_ours<I: Ip>(ctx: &TcContext, key: &FlowKey) -> bool {
    // `fib_validate_source` refuses such a source as well. A neighbour may have the same
    // link-local address as this host has on another link.
    if !on_loopback(ctx)
        && !is_link_local(key.remote_address())
        && local(key.remote_address()).is_some_and(Local::is_own)
    {
        return false;
    }
    match local(key.local_address()) {
        Some(kind) => Local::is_end(kind),
        None => {
            let lives_on = |ip: I| ip.fields().hop_limit > 1;
            ctx.read::<I>(link_len()).is_some_and(lives_on) && is_forwarded(ctx.raw(), key)
        }
    }
}

/// Whether this host forwards what comes for the flow by its interface. A neighbour that
/// has not been asked for its address yet, a way into a tunnel of the kernel and one that is
/// too narrow are no obstacles.
///
/// A subprogram, as its stack would be in the way of all others.
#[inline(never)]
fn is_forwarded(skb: *mut __sk_buff, key: &FlowKey) -> bool {
    const AF_INET: u8 = 2;
    const AF_INET6: u8 = 10;
    // SAFETY: numbers, of which zero is one.
    let mut way: bpf_fib_lookup = unsafe { MaybeUninit::zeroed().assume_init() };
    way.ifindex = interface(&TcContext::new(skb)).index();
    // By then it is a datagram.
    way.l4_protocol = Protocol::UDP.0;
    way.sport = key.remote_port().to_be();
    way.dport = key.local_port().to_be();
    let [source, destination] = [key.remote_address(), key.local_address()].map(address_words);
    if key.is_ipv4() {
        way.family = AF_INET;
        way.__bindgen_anon_3.ipv4_src = source[3];
        way.__bindgen_anon_4.ipv4_dst = destination[3];
    } else {
        way.family = AF_INET6;
        way.__bindgen_anon_3.ipv6_src = source;
        way.__bindgen_anon_4.ipv6_dst = destination;
    }
    let len = size_of::<bpf_fib_lookup>() as i32;
    // SAFETY: the context is valid for the whole program run, and the helper reads and
    // writes the value, whose length it is told.
    let found = unsafe { look_up(skb.cast(), &raw mut way, len, 0) };
    u32::try_from(found).is_ok_and(|found| {
        matches!(
            found,
            BPF_FIB_LKUP_RET_SUCCESS
                | BPF_FIB_LKUP_RET_UNSUPP_LWT
                | BPF_FIB_LKUP_RET_NO_NEIGH
                | BPF_FIB_LKUP_RET_FRAG_NEEDED
        )
    })
}
