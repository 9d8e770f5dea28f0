//! The addresses of this host.

use aya_ebpf::macros::map;
use aya_ebpf::maps::LpmTrie;
use aya_ebpf::maps::lpm_trie::Key;
use xdptun_common::address::MAX_LOCAL;

/// Networks of this host's own addresses, 16-byte addresses, and what they are
/// (`xdptun_common::address::Local`). User space fills it before programs run.
#[map]
pub static LOCAL: LpmTrie<[u8; 16], u32> = LpmTrie::with_max_entries(MAX_LOCAL, 0);

/// What an address is of this host, if it is one of its own.
#[inline(always)]
pub fn local(address: [u8; 16]) -> Option<u32> {
    LOCAL.get(Key::new(128, address)).copied()
}
