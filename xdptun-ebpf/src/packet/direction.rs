//! Which way a packet goes, and how it is turned round.

use aya_ebpf::programs::TcContext;
use xdptun_common::wire::EthernetHeader;

use crate::packet::access::Packet as _;
use crate::packet::error::PacketError;
use crate::packet::link::has_ethernet;

/// Which way a packet goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// It leaves: its link header names the peer.
    Outbound,
    /// It arrives: its link header names this host, and an answer needs it reversed.
    Inbound,
}

/// Turns the packet round: it goes to the station that it came from.
#[inline(always)]
pub fn reverse_link(ctx: &TcContext) -> Result<(), PacketError> {
    if !has_ethernet() {
        return Ok(());
    }
    let link: EthernetHeader = ctx.read(0).ok_or(PacketError::OutOfBounds)?;
    ctx.write(0, link.reversed())
        .ok_or(PacketError::OutOfBounds)
}

/// The link header of a packet as it must be to reach the peer.
#[inline(always)]
pub fn link_to_peer(ctx: &TcContext, direction: Direction) -> [u8; 14] {
    let link: Option<EthernetHeader> = if has_ethernet() { ctx.read(0) } else { None };
    match (link, direction) {
        (None, _) => [0; 14],
        (Some(link), Direction::Outbound) => link.to_bytes(),
        (Some(link), Direction::Inbound) => link.reversed().to_bytes(),
    }
}
