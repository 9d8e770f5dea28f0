//! The IP version of a packet.

use aya_ebpf::programs::{TcContext, XdpContext};
use xdptun_common::parse::Bytes as _;
use xdptun_common::wire::{EtherType, EthernetHeader, IpVersion};

use crate::machine::opaque;
use crate::packet::access::{Packet as _, View};
use crate::packet::link::has_ethernet;
use crate::packet::skb::Skb as _;

/// The IP version of a packet; `None` if it is not IP.
#[inline(always)]
pub fn skb_ip_version(ctx: &TcContext) -> Option<IpVersion> {
    // The stack has taken a VLAN tag off by now, so this is the inner type.
    // SAFETY: the context is valid for the whole program run.
    ip_version(EtherType(u16::from_be(
        unsafe { (*ctx.raw()).protocol } as u16
    )))
}

/// Whether tags that name no VLAN stand between the Ethernet header and the packet, as the kernel
/// leaves them there at tc ingress: it has taken off one tag.
#[inline(always)]
pub fn is_tagged_again(ctx: &TcContext) -> bool {
    const NUMBER: u64 = 0x0fff;
    // SAFETY: the context is valid for the whole program run.
    let ether_type = EtherType(u16::from_be(unsafe { (*ctx.raw()).protocol } as u16));
    if !matches!(ether_type, EtherType::VLAN | EtherType::SERVICE_VLAN)
        || !has_ethernet()
        || ctx.is_in_vlan()
    {
        return false;
    }
    let Some(tag) = View(ctx).read::<u16>(EthernetHeader::LEN) else {
        return false;
    };
    // Of which the compiler knows nothing: it would compute with a tag that was not read.
    opaque(u16::from_be(tag).into()) & NUMBER == 0
}

/// The IP version of a frame, if it is an untagged IP packet.
#[inline(always)]
pub fn frame_ip_version(ctx: &XdpContext) -> Option<IpVersion> {
    if has_ethernet() {
        return ip_version(ctx.read::<EthernetHeader>(0)?.ether_type());
    }
    match ctx.read::<[u8; 1]>(0)?[0] >> 4 {
        4 => Some(IpVersion::V4),
        6 => Some(IpVersion::V6),
        _ => None,
    }
}

#[inline(always)]
fn ip_version(ether_type: EtherType) -> Option<IpVersion> {
    match ether_type {
        EtherType::IPV4 => Some(IpVersion::V4),
        EtherType::IPV6 => Some(IpVersion::V6),
        _ => None,
    }
}
