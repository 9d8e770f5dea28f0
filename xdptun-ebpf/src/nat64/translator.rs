//! What is translated.

use aya_ebpf::Global;
use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::macros::map;
use aya_ebpf::maps::lpm_trie::Key;
use aya_ebpf::maps::{Array, LpmTrie};
use xdptun_common::nat64::address::Prefix;
use xdptun_common::nat64::translator::{MAX_INSIDE, Translator};

use crate::packet::error::PacketError;

/// What is translated.
#[map]
pub static TRANSLATOR: Array<Translator> = Array::with_max_entries(1, 0);

/// The networks of clients: twice as many as there may be, so that others fit beside those that they
/// replace, and the device's own address.
#[map]
pub static INSIDE: LpmTrie<[u8; 16], u32> =
    LpmTrie::with_max_entries(2 * MAX_INSIDE + 1, BPF_F_NO_PREALLOC);

#[unsafe(no_mangle)]
static PREFIX_LEN: Global<u32> = Global::new(96);

/// What is translated.
#[inline(always)]
pub fn translator() -> Result<&'static Translator, PacketError> {
    // There always is one; the verifier does not know.
    TRANSLATOR.get(0).ok_or(PacketError::NoScratch)
}

/// The prefix, with a length that the verifier knows.
#[inline(always)]
pub fn prefix(translator: &Translator) -> Prefix {
    translator.prefix.known_as(PREFIX_LEN.load())
}

/// Whether an address is a client's.
#[inline(always)]
pub fn is_inside(address: [u8; 16]) -> bool {
    INSIDE.get(Key::new(128, address)).is_some()
}
