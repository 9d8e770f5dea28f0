//! Which packets are ours.

use aya_ebpf::maps::lpm_trie::Key;
use xdptun_common::config::port_bit;

use crate::maps::{PEERS, PORTS, REMOTES, peers_only};

/// Whether a port is configured.
#[inline(always)]
pub fn owns_port(port: u16) -> bool {
    let (word, mask) = port_bit(port);
    match PORTS.get_ptr(word) {
        // SAFETY: a map value; user space writes whole words.
        Some(bits) => unsafe { bits.read_volatile() & mask != 0 },
        None => false,
    }
}

/// Whether either port of a packet is configured.
#[inline(always)]
pub fn owns_either((source, destination): (u16, u16)) -> bool {
    owns_port(source) || owns_port(destination)
}

/// Whether the remote address is one of the configured peers, or none are.
#[inline(always)]
pub fn is_peer(address: [u8; 16]) -> bool {
    !peers_only() || PEERS.get(Key::new(128, address)).is_some()
}

/// Whether the route to this address is to be kept from strangers: a flow was established
/// with it, and is there or was a moment ago, or it is one of the configured peers.
#[inline(always)]
pub fn is_remote(address: [u8; 16]) -> bool {
    REMOTES.get_ptr(address).is_some() || peers_only() && is_peer(address)
}
