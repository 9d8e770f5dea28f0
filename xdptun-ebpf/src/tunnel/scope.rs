//! Which packets a capture of the tunnel copies.

use aya_ebpf::programs::{TcContext, XdpContext};
use xdptun_common::parse::{Chains, Shape, is_extension, locate};
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::wire::{Icmp, IpVersion, Ipv4Header, Ipv6Header, Protocol};

use crate::host::capture::Scope;
use crate::packet::access::View;
use crate::packet::direction::Direction;
use crate::packet::link::link_len;
use crate::packet::version::{frame_ip_version, skb_ip_version};
use crate::tunnel::{rules, vlan};

/// The tunnel's packets.
pub struct Tunnel;

impl Scope for Tunnel {
    type Ending = Outcome;

    #[inline(always)]
    fn has_skb(ctx: &TcContext, direction: Direction) -> bool {
        match skb_ip_version(ctx) {
            Some(IpVersion::V4) => may_be_ours::<Ipv4Header>(&View(ctx)),
            Some(IpVersion::V6) => may_be_ours::<Ipv6Header>(&View(ctx)),
            // What it notes, the program itself notes again.
            None => vlan::refuses_datagram(ctx, direction),
        }
    }

    #[inline(always)]
    fn has_frame(ctx: &XdpContext) -> bool {
        match frame_ip_version(ctx) {
            Some(IpVersion::V4) => may_be_ours::<Ipv4Header>(&View(ctx)),
            Some(IpVersion::V6) => may_be_ours::<Ipv6Header>(&View(ctx)),
            None => false,
        }
    }
}

/// Whether a packet of IP version `I` can end in an outcome. `true` for more than those: a
/// later fragment names no ports.
#[inline(always)]
fn may_be_ours<I: Icmp>(packet: &impl Chains) -> bool {
    let Some(located) = locate::<I>(packet, link_len()) else {
        return false;
    };
    if located.shape == Shape::LaterFragment {
        return true;
    }
    match located.protocol {
        Protocol::TCP | Protocol::UDP => located.ports(packet).is_some_and(rules::owns_either),
        protocol => protocol == I::ICMP || is_extension(protocol),
    }
}
