//! The IP version of a packet.

use aya_ebpf::programs::{TcContext, XdpContext};
use xdptun_common::wire::{EtherType, EthernetHeader, IpVersion};

use crate::packet::access::Packet as _;
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
