//! Which packets are ours.

use aya_ebpf::Global;
use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::macros::map;
use aya_ebpf::maps::lpm_trie::Key;
use aya_ebpf::maps::{Array, HashMap, LpmTrie};
use xdptun_common::ports::{PORT_WORDS, port_bit};
use xdptun_common::tunnel::config::{MAX_PEERS, Phantuns, peer};

/// A bit for each port: set if it is ours.
#[map]
pub static PORTS: Array<u64> = Array::with_max_entries(PORT_WORDS, 0);

/// Networks of peers, 16-byte addresses, and [what they run](peer); used if `PEERS_ONLY` is set.
#[map]
pub static PEERS: LpmTrie<[u8; 16], u32> = LpmTrie::with_max_entries(MAX_PEERS, 0);

/// Addresses that flows were established with; the daemon removes those without flows.
/// Not preallocated; user space sets the capacity.
#[map]
pub static REMOTES: HashMap<[u8; 16], u32> = HashMap::with_max_entries(65536, BPF_F_NO_PREALLOC);

#[unsafe(no_mangle)]
static PEERS_ONLY: Global<u32> = Global::new(0);

/// Whether only configured peers are ours.
#[inline(always)]
fn peers_only() -> bool {
    PEERS_ONLY.load() != 0
}

#[unsafe(no_mangle)]
static PHANTUNS: Global<u32> = Global::new(Phantuns::None as u32);

/// Whether any peer may be a phantun.
#[inline(always)]
pub fn has_phantuns() -> bool {
    PHANTUNS.load() != Phantuns::None as u32
}

/// Whether the remote address is that of a phantun.
#[inline(always)]
pub fn is_phantun(address: [u8; 16]) -> bool {
    match Phantuns::from_raw(PHANTUNS.load()) {
        Phantuns::None => false,
        Phantuns::All => true,
        Phantuns::Some => PEERS.get(Key::new(128, address)) == Some(&peer::PHANTUN),
    }
}

/// The only number with which a SYN opens a connection to phantun.
pub const PHANTUN_ISS: u32 = 0;

#[unsafe(no_mangle)]
static HIDDEN: Global<u32> = Global::new(0);

/// Whether there is a secret, and a caller must prove that it knows it.
#[inline(always)]
pub fn has_secret() -> bool {
    HIDDEN.load() != 0
}

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
