//! Packets that hold several datagrams or segments at once.
//!
//! A UDP GSO super-packet reaches the tc hook whole, and BPF cannot cut it. A
//! device without segmentation offload can: the kernel splits what is sent to
//! it, checksums included. So super-packets are redirected to the near end of a
//! veth pair that does no offload, and `xdptun_splitter` on the far end sends each
//! piece back: datagrams out of the interface, marked ([`again`]), where `egress` meets
//! them one by one, and segments that GRO had merged into it again, for `ingress`.

use aya_ebpf::bindings::TC_ACT_SHOT;
use aya_ebpf::programs::TcContext;
use xdptun_common::parse::locate;
use xdptun_common::wire::{
    EtherType, EthernetHeader, Ip, IpVersion, Ipv4Header, Ipv6Header, Protocol, UdpHeader,
};

use crate::host::again;
use crate::host::interface::{device, interface};
use crate::host::redirect::{send_out, send_up};
use crate::packet::access::View;
use crate::packet::error::PacketError;
use crate::packet::link::has_ethernet;
use crate::packet::resize::{make_linear, pop_tag, push_link, push_tag};
use crate::packet::skb::{Skb as _, device_finishes_a_checksum};
use crate::packet::version::skb_ip_version;

/// The verdict that sends a super-packet to the splitter. The pair is Ethernet,
/// so a packet without link header gets one; the splitter ignores its addresses, and
/// it is taken off again where the pieces leave for such an interface.
#[inline(always)]
pub fn hand_over(ctx: &TcContext, ether_type: EtherType) -> i32 {
    let Some(near_end) = interface(ctx).near_end() else {
        return TC_ACT_SHOT;
    };
    if !has_ethernet() && push_link(ctx, EthernetHeader::nameless(ether_type)).is_err() {
        return TC_ACT_SHOT;
    }
    send_out(near_end)
}

/// Makes room before the headers of a super-packet whose checksum field is at
/// `field`: its pieces get as much. What a socket of this host sends has hardly any, and
/// the kernel would copy each piece when `egress` makes it longer. A packet without
/// link header gets enough with the one that [`hand_over`] gives it.
///
/// Most helpers that shorten a super-packet make the kernel forget how many pieces it
/// holds, which the near end needs. VLAN tags do not. Each tag moves the one before into the
/// packet; when its four bytes find no room before the headers, the kernel makes 64
/// (`skb_cow_head`). As many pops restore the packet, and the room stays.
///
/// Not if the device computes no checksums: from 6.11 on such super-packets say where
/// theirs starts, but not that it is pending, and so that place does not move with
/// the headers (`skb_headers_offset_update`). Some kernels then refuse to cut them.
#[inline(always)]
pub fn make_headroom<I: Ip>(ctx: &TcContext, field: usize) -> Result<(), PacketError> {
    if !has_ethernet() || ctx.has_tag() || device_finishes_a_checksum(ctx, field) != Some(true) {
        return Ok(());
    }
    // Sockets leave two bytes (`LL_RESERVED_SPACE`), and eight more for a fragment header of IPv6
    // (`__ip6_append_data`).
    let tags = match I::VERSION {
        IpVersion::V4 => 2,
        IpVersion::V6 => 4,
    };
    let mut pushed = 0;
    // Out of memory: it goes on without the room.
    while pushed < tags && push_tag(ctx).is_ok() {
        pushed += 1;
    }
    for _ in 0..pushed {
        pop_tag(ctx)?;
    }
    Ok(())
}

/// The verdict that sends a piece back, if one of its ports is ours, as `owns` tells. Only
/// datagrams on the way out and segments on the way in are ever handed over; whatever else
/// is sent through the pair (a service announcing itself on every interface) ends here.
#[inline(always)]
pub fn send_home(ctx: &TcContext, owns: impl Fn((u16, u16)) -> bool) -> i32 {
    let protocol = match skb_ip_version(ctx) {
        Some(IpVersion::V4) => owned_protocol::<Ipv4Header>(ctx, owns),
        Some(IpVersion::V6) => owned_protocol::<Ipv6Header>(ctx, owns),
        None => None,
    };
    let home = interface(ctx).index();
    // Not in the match: the verifier would walk a fifth more.
    if protocol == Some(Protocol::UDP) {
        again::mark(ctx);
    }
    match protocol {
        // An unknown device counts as its own interface: it would send to itself without end.
        _ if home == device(ctx) => TC_ACT_SHOT,
        Some(Protocol::UDP) => send_out(home),
        Some(Protocol::TCP) => send_up(home),
        _ => TC_ACT_SHOT,
    }
}

/// The protocol of a piece, if one of its ports is ours.
#[inline(always)]
fn owned_protocol<I: Ip>(ctx: &TcContext, owns: impl Fn((u16, u16)) -> bool) -> Option<Protocol> {
    // The pair is Ethernet, whatever the interface is.
    make_linear(ctx, EthernetHeader::LEN + I::LEN + UdpHeader::LEN).ok()?;
    let located = locate::<I>(&View(ctx), EthernetHeader::LEN)?;
    let ports = located.ports(&View(ctx))?;
    owns(ports).then_some(located.protocol)
}
