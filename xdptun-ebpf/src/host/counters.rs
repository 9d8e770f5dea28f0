//! Counting, on the CPU's own copy: no two CPUs share a line.

use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use xdptun_common::member::ROWS;
use xdptun_common::report::outcome::{Counter, IN_ROW};

use crate::host::interface::Interface;

/// The counters of a function: a row for each interface, in it by [`Counter::index`].
#[map]
pub static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(ROWS * IN_ROW, 0);

/// Counts one more.
#[inline(always)]
pub fn count<C: Counter>(at: Interface, counter: C) {
    count_all(at, counter, 1);
}

/// Counts so many more.
#[inline(always)]
pub fn count_all<C: Counter>(at: Interface, counter: C, number: u32) {
    if let Some(count) = COUNTERS.get_ptr_mut(at.row() * IN_ROW + counter.index()) {
        // SAFETY: a per-CPU value, which only this program run touches.
        unsafe { *count += u64::from(number) }
    }
}
