//! Packets that hold several datagrams or segments at once.
//!
//! A UDP GSO super-packet reaches the tc hook whole, and BPF cannot cut it. A
//! device without segmentation offload can: the kernel splits what is sent to
//! it, checksums included. So super-packets are redirected to the near end of a
//! veth pair that does no offload, and this program on the far end sends each
//! piece back: datagrams out of the interface, where `egress` meets them one by
//! one, and segments that GRO had merged into it again, for `ingress`.

use aya_ebpf::bindings::{BPF_F_INGRESS, TC_ACT_SHOT};
use aya_ebpf::helpers::generated::bpf_redirect;
use aya_ebpf::programs::TcContext;
use xdptun_common::parse::locate;
use xdptun_common::wire::{
    EthernetHeader, Ip, IpVersion, Ipv4Header, Ipv6Header, Protocol, UdpHeader,
};

use crate::maps::{ifindex, splitter};
use crate::packet::{View, make_linear, skb_ip_version};
use crate::rules;

/// The verdict that sends a super-packet to the splitter.
#[inline(always)]
pub fn hand_over() -> i32 {
    match splitter() {
        // SAFETY: no pointers are involved.
        Some(near_end) => unsafe { bpf_redirect(near_end, 0) as i32 },
        None => TC_ACT_SHOT,
    }
}

/// The verdict that sends a piece back. Only datagrams on the way out and
/// segments on the way in are ever handed over; whatever else is sent through
/// the pair (a service announcing itself on every interface) ends here.
#[inline(always)]
pub fn send_home(ctx: &TcContext) -> i32 {
    let protocol = match skb_ip_version(ctx) {
        Some(IpVersion::V4) => owned_protocol::<Ipv4Header>(ctx),
        Some(IpVersion::V6) => owned_protocol::<Ipv6Header>(ctx),
        None => None,
    };
    let flags = match protocol {
        Some(Protocol::UDP) => 0,
        Some(Protocol::TCP) => u64::from(BPF_F_INGRESS),
        _ => return TC_ACT_SHOT,
    };
    // SAFETY: no pointers are involved.
    unsafe { bpf_redirect(ifindex(), flags) as i32 }
}

/// The protocol of a piece, if one of its ports is ours.
#[inline(always)]
fn owned_protocol<I: Ip>(ctx: &TcContext) -> Option<Protocol> {
    // The pair is Ethernet, whatever the interface is.
    make_linear(ctx, EthernetHeader::LEN + I::LEN + UdpHeader::LEN).ok()?;
    let located = locate::<I>(&View(ctx), EthernetHeader::LEN)?;
    let ports = located.ports(&View(ctx))?;
    rules::owns_either(ports).then_some(located.protocol)
}
