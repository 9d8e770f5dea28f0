//! Counting, on the CPU's own copy: no two CPUs share a line.

use xdptun_common::counter::{Outcome, Sent};

use crate::maps::COUNTERS;

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
