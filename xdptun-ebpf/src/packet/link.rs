//! Whether packets have a link header.

use aya_ebpf::Global;
use xdptun_common::wire::LINK_ETHERNET;

#[unsafe(no_mangle)]
static LINK_LEN: Global<u32> = Global::new(LINK_ETHERNET);

/// Whether packets start with an Ethernet header.
#[inline(always)]
pub fn has_ethernet() -> bool {
    LINK_LEN.load() == LINK_ETHERNET
}

/// Where the IP header starts.
#[inline(always)]
pub fn link_len() -> usize {
    LINK_LEN.load() as usize
}
