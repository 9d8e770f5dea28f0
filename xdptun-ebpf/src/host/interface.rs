//! The interface that the programs are attached to.

use aya_ebpf::Global;

#[unsafe(no_mangle)]
static IFINDEX: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
static MTU: Global<u32> = Global::new(1500);

/// The interface the programs are attached to.
#[inline(always)]
pub fn ifindex() -> u32 {
    IFINDEX.load()
}

/// The interface's MTU at attach.
#[inline(always)]
pub fn mtu() -> u32 {
    MTU.load()
}
