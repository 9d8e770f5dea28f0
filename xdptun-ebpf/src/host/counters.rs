//! Counting, on the CPU's own copy: no two CPUs share a line.

use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use xdptun_common::member::ROWS;
use xdptun_common::report::outcome::{Counter, CounterValue, Ending, IN_ROW};

use crate::host::interface::Interface;

/// The counters of a function: a row for each interface, in it by [`Counter::index`].
#[map]
pub static COUNTERS: PerCpuArray<CounterValue> = PerCpuArray::with_max_entries(ROWS * IN_ROW, 0);

/// Counts one more.
#[inline(always)]
pub fn count<C: Counter>(at: Interface, counter: C) {
    count_all(at, counter, 1);
}

/// Counts so many more.
#[inline(always)]
pub fn count_all<C: Counter>(at: Interface, counter: C, number: u32) {
    add(at, counter.index(), number, 0);
}

/// Counts a packet of `len` bytes, with its link header, that ends so.
#[inline(always)]
pub fn count_packet<E: Ending>(at: Interface, ending: E, len: u32) {
    add(at, ending.index(), 1, len);
}

/// Adds the bytes by which a packet grew after the counter with this index had counted it.
#[inline(always)]
pub fn add_bytes(at: Interface, index: u32, bytes: u32) {
    add(at, index, 0, bytes);
}

#[inline(always)]
fn add(at: Interface, index: u32, number: u32, bytes: u32) {
    if let Some(value) = COUNTERS.get_ptr_mut(at.row() * IN_ROW + index) {
        // SAFETY: a per-CPU value, which only this program run touches.
        unsafe {
            (*value).count += u64::from(number);
            (*value).bytes += u64::from(bytes);
        }
    }
}
