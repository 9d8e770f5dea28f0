//! The clock of the time stamps that the programs give to flows.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use serde::Serializer;

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[must_use]
pub fn monotonic_ns() -> u64 {
    // The clock always exists on Linux. Zero would be harmless: every flow would look
    // young.
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map(|time| Duration::from(time).as_nanos() as u64)
        .unwrap_or_default()
}

/// How far the time since the epoch is ahead of [`monotonic_ns`] now.
#[must_use]
pub fn realtime_ahead() -> Duration {
    let realtime = SystemTime::now().duration_since(UNIX_EPOCH);
    // A clock before the epoch is wrong anyway.
    realtime
        .unwrap_or_default()
        .saturating_sub(Duration::from_nanos(monotonic_ns()))
}

/// How long ago a kernel time stamp was. The kernel's coarse clock may be a
/// tick ahead of a reading made just before.
#[must_use]
pub const fn since(now_ns: u64, then_ns: u64) -> Duration {
    Duration::from_nanos(now_ns.saturating_sub(then_ns))
}

/// A time as a number of seconds, to the millisecond: how JSON output shows it.
pub(crate) fn as_seconds<S: Serializer>(
    duration: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((duration.as_secs_f64() * 1000.0).round() / 1000.0)
}
