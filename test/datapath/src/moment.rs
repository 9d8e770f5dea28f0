//! The kernel's coarse clock.
//!
//! The programs take the time from `bpf_ktime_get_coarse_ns`, which stands still
//! between two ticks. So a row that starts and ends within one tick knows the
//! program's clock to the nanosecond, and with it the initial sequence number,
//! the window of a control segment and every time stamp of a flow.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use xdptun_common::flow::FlowKey;
use xdptun_common::isn::{EPOCH_NS, Secret};

/// The key that all tests load the programs with.
pub const SECRET: Secret = Secret([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);

/// One value of the coarse clock, in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(u64);

impl Moment {
    /// The present.
    ///
    /// # Panics
    ///
    /// If the kernel has no such clock.
    #[must_use]
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).expect("every Linux has it");
        let ns = Duration::from(time).as_nanos();
        Self(u64::try_from(ns).expect("584 years"))
    }

    /// In nanoseconds.
    #[must_use]
    pub const fn ns(self) -> u64 {
        self.0
    }

    /// Some nanoseconds ago; zero at the earliest.
    #[must_use]
    pub const fn before(self, ns: u64) -> u64 {
        self.0.saturating_sub(ns)
    }

    /// Some milliseconds ago; zero at the earliest.
    #[must_use]
    pub const fn before_ms(self, ms: u64) -> u64 {
        self.before(ms * 1_000_000)
    }

    /// The initial sequence number, and SYN cookie, of a flow.
    #[must_use]
    pub fn isn(self, flow: &FlowKey) -> u32 {
        SECRET.isn(flow, self.0)
    }

    /// The one that was given so many epochs ago.
    #[must_use]
    pub fn earlier_isn(self, flow: &FlowKey, epochs: u64) -> u32 {
        SECRET.isn_of_epoch(flow, (self.0 / EPOCH_NS).wrapping_sub(epochs))
    }

    /// The window of a control segment: its low byte counts milliseconds.
    #[must_use]
    pub const fn window(self) -> u16 {
        window(self.0 >> 20)
    }
}

/// The window of segment number `count`.
#[must_use]
pub const fn window(count: u64) -> u16 {
    let [low, ..] = count.to_le_bytes();
    u16::from_be_bytes([0xf0, low])
}
