//! Counting, on the CPU's own copy: no two CPUs share a line.

use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use xdptun_common::tunnel::outcome::{COUNTERS as COUNTERS_LEN, Outcome, Sent};

/// Outcomes and sent segments, by `Outcome::index` and `Sent::index`.
#[map]
pub static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(COUNTERS_LEN, 0);

/// Counts how a packet ended.
#[inline(always)]
pub fn count(outcome: Outcome) {
    increment(outcome.index());
}

/// Counts a control segment.
#[inline(always)]
pub fn count_sent(sent: Sent) {
    increment(sent.index());
}

#[inline(always)]
fn increment(index: u32) {
    if let Some(counter) = COUNTERS.get_ptr_mut(index) {
        // SAFETY: a per-CPU value, which only this program run touches.
        unsafe { *counter += 1 }
    }
}
