//! Times of 32 bits.

/// 2^20 ns, a little more than a millisecond, as short times are kept; the count of
/// them since boot wraps after 52 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick(pub u32);

impl Tick {
    /// The clock of one CPU is ahead of another's by fewer ticks: about a second.
    pub const AHEAD: u32 = 1 << 10;

    /// The present, from nanoseconds.
    #[inline(always)]
    #[must_use]
    pub const fn at(now_ns: u64) -> Self {
        Self((now_ns >> 20) as u32)
    }

    /// How many ticks have passed since `then`. Readings of two CPUs may be out of
    /// order; a time to come counts as now.
    #[inline(always)]
    #[must_use]
    pub const fn since(self, then: u32) -> u32 {
        let passed = self.0.wrapping_sub(then);
        if passed.cast_signed() < 0 && passed.wrapping_neg() < Self::AHEAD {
            0
        } else {
            passed
        }
    }
}
