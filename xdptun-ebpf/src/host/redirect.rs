//! Verdicts that send a packet elsewhere.

use aya_ebpf::bindings::BPF_F_INGRESS;
use aya_ebpf::helpers::generated::bpf_redirect;

/// The verdict that sends the packet out of an interface.
#[inline(always)]
pub fn send_out(ifindex: u32) -> i32 {
    // SAFETY: no pointers are involved.
    unsafe { bpf_redirect(ifindex, 0) as i32 }
}

/// The verdict that hands the packet to this host, as if it had come in by the
/// interface.
#[inline(always)]
pub fn send_up(ifindex: u32) -> i32 {
    // SAFETY: no pointers are involved.
    unsafe { bpf_redirect(ifindex, u64::from(BPF_F_INGRESS)) as i32 }
}

/// The verdict that ends a packet without an error for its sender. `TCX` has no
/// counterpart of `TC_ACT_STOLEN` (it would count as "next", and the datagram
/// would leave undisguised), but a redirect to no interface frees the packet
/// and reports success (`skb_do_redirect`). A drop would reach sockets with
/// `IP_RECVERR`, as QUIC stacks use, as ENOBUFS.
#[inline(always)]
pub fn swallow() -> i32 {
    // SAFETY: no pointers are involved.
    unsafe { bpf_redirect(0, 0) as i32 }
}
