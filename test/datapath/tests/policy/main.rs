//! Packets whose payload rules search.

mod ended;
mod hostile;
mod matched;
mod stack;
mod told;

use std::net::SocketAddr;

use xdptun_test_datapath::{Family, Packet, flags};

/// The sender's port, and the receiver's.
pub const PORTS: (u16, u16) = (40_000, 80);

/// A datagram from the peer to this host.
pub fn datagram(family: Family, payload: &[u8]) -> Packet {
    let from = SocketAddr::new(family.peer(), PORTS.0);
    let to = SocketAddr::new(family.host(), PORTS.1);
    // The link address of this host: the kernel takes no other frame for it.
    let packet = Packet::datagram(from, to).link_to([0; 6]);
    packet.payload(payload)
}

/// The same as a TCP segment.
pub fn segment(family: Family, payload: &[u8]) -> Packet {
    datagram(family, payload).segment(flags::DATA, 1000, 5000)
}
