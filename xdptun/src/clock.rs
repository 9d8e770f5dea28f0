//! The clock that the kernel side stamps flows with.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[must_use]
pub fn monotonic_ns() -> u64 {
    // The clock always exists on Linux; zero would only make every flow look
    // young, so nothing is lost by it.
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map(|time| Duration::from(time).as_nanos() as u64)
        .unwrap_or_default()
}

/// How long ago a kernel time stamp was. The kernel's coarse clock may be a
/// tick ahead of a reading made just before.
#[must_use]
pub const fn since(now_ns: u64, then_ns: u64) -> Duration {
    Duration::from_nanos(now_ns.saturating_sub(then_ns))
}
