//! Frames with a VLAN tag among their bytes: a second tag, one that a packet
//! socket wrote, or one that the device leaves in place. xdptun disguises no
//! tagged frame, so these programs drop tagged datagrams of owned ports.

use aya_ebpf::programs::TcContext;
use xdptun_common::parse::{Bytes as _, Shape, locate};
use xdptun_common::tunnel::fragment::First;
use xdptun_common::wire::{EtherType, EthernetHeader, Ip, Ipv4Header, Ipv6Header, Protocol};

use crate::host::clock::now;
use crate::packet::access::View;
use crate::packet::direction::Direction;
use crate::packet::link::has_ethernet;
use crate::tunnel::table::find;
use crate::tunnel::{fragments, rules};

/// Length of a tag in bytes (IEEE 802.1Q section 9.3).
const TAG: usize = 4;
/// Tags that are looked behind: 802.1ad has two.
const MAX_TAGS: usize = 2;

/// Whether a frame that is not plain IP holds a datagram of an owned port, to or
/// from a peer, or a fragment of one. The first is noted, so that the others follow it.
#[inline(never)]
pub fn refuses_datagram(ctx: &TcContext, direction: Direction) -> bool {
    if !has_ethernet() {
        return false;
    }
    // The type stands in front of what it announces.
    let mut l3 = EthernetHeader::LEN;
    for _ in 0..=MAX_TAGS {
        let Some(ether_type) = View(ctx).read::<u16>(l3 - size_of::<u16>()) else {
            return false;
        };
        match EtherType(u16::from_be(ether_type)) {
            EtherType::VLAN | EtherType::SERVICE_VLAN => l3 += TAG,
            EtherType::IPV4 => return refuses::<Ipv4Header>(ctx, l3, direction),
            EtherType::IPV6 => return refuses::<Ipv6Header>(ctx, l3, direction),
            _ => return false,
        }
    }
    false
}

#[inline(always)]
fn refuses<I: Ip>(ctx: &TcContext, l3: usize, direction: Direction) -> bool {
    let Some(located) = locate::<I>(&View(ctx), l3) else {
        return false;
    };
    let datagram = located.fragmented(matches!(direction, Direction::Outbound));
    if located.shape == Shape::LaterFragment {
        return fragments::followed(&datagram).is_some_and(|first| first.ports().is_none());
    }
    if located.protocol != Protocol::UDP {
        return false;
    }
    let Some(ports) = located.ports(&View(ctx)) else {
        return false;
    };
    let key = match direction {
        Direction::Outbound => located.outbound(ports),
        Direction::Inbound => located.inbound(ports),
    };
    let is_owned =
        rules::owns_either(ports) && (rules::is_peer(key.remote_address()) || find(&key).is_some());
    if is_owned && located.shape == Shape::FirstFragment {
        fragments::note(&datagram, First::dropped(now()));
    }
    is_owned
}
