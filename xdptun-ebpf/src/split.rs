//! Packets that hold several datagrams or segments at once.
//!
//! A UDP GSO super-packet reaches the tc hook whole, and BPF cannot cut it. A
//! device without segmentation offload can: the kernel splits what is sent to
//! it, checksums included. So super-packets are redirected to the near end of a
//! veth pair that does no offload, and this program on the far end sends each
//! piece back: datagrams out of the interface, where `egress` meets them one by
//! one, and segments that GRO had merged into it again, for `ingress`.

use aya_ebpf::bindings::TC_ACT_SHOT;
use aya_ebpf::programs::TcContext;
use xdptun_common::parse::locate;
use xdptun_common::wire::{
    EtherType, EthernetHeader, Ip, IpVersion, Ipv4Header, Ipv6Header, Protocol, UdpHeader,
};

use crate::maps::{has_ethernet, ifindex, splitter};
use crate::packet::{View, send_out, send_up, skb_ip_version};
use crate::resize::{make_linear, push_link};
use crate::rules;

/// The verdict that sends a super-packet to the splitter. The pair is Ethernet,
/// so a packet without link header gets one; nobody looks at its addresses, and
/// it is taken off again where the pieces leave for such an interface.
#[inline(always)]
pub fn hand_over(ctx: &TcContext, ether_type: EtherType) -> i32 {
    let Some(near_end) = splitter() else {
        return TC_ACT_SHOT;
    };
    if !has_ethernet() && push_link(ctx, EthernetHeader::nameless(ether_type)).is_err() {
        return TC_ACT_SHOT;
    }
    send_out(near_end)
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
    match protocol {
        Some(Protocol::UDP) => send_out(ifindex()),
        Some(Protocol::TCP) => send_up(ifindex()),
        _ => TC_ACT_SHOT,
    }
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
