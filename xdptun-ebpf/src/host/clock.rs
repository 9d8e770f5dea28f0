//! The clock of the programs.

use aya_ebpf::helpers::generated::bpf_ktime_get_coarse_ns;

/// Nanoseconds of `CLOCK_MONOTONIC`, as of the last tick: a few nanoseconds to
/// read, exact to some milliseconds (kernel 5.11).
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: no pointers are involved.
    unsafe { bpf_ktime_get_coarse_ns() }
}
