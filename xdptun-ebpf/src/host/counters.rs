//! Counting, on the CPU's own copy: no two CPUs share a line.

use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use xdptun_common::member::ROWS;
use xdptun_common::tunnel::outcome::{COUNTERS as IN_ROW, Outcome, Sent};

use crate::host::interface::Interface;

/// Outcomes and sent segments: a row for each interface, in it by `Outcome::index` and
/// `Sent::index`.
#[map]
pub static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(ROWS * IN_ROW, 0);

/// Counts how a packet ended.
#[inline(always)]
pub fn count(at: Interface, outcome: Outcome) {
    increment(at, outcome.index());
}

/// Counts a control segment.
#[inline(always)]
pub fn count_sent(at: Interface, sent: Sent) {
    increment(at, sent.index());
}

#[inline(always)]
fn increment(at: Interface, index: u32) {
    if let Some(counter) = COUNTERS.get_ptr_mut(at.row() * IN_ROW + index) {
        // SAFETY: a per-CPU value, which only this program run touches.
        unsafe { *counter += 1 }
    }
}
