//! Acknowledgements: when one is due, and how old one of the peer may be.

use crate::flow::tick::Tick;

/// After how many unacknowledged bytes a pure ACK is due, and after how long
/// (nanoseconds) if there are fewer. Middleboxes that follow the window need
/// them when data flows one way only; 40 ms is Linux's delayed ACK.
pub const ACK_BYTES: u32 = 64 * 1024;
/// See [`ACK_BYTES`].
pub const ACK_DELAY_NS: u64 = 40_000_000;

/// Earlier values of `snd_una`: how old an acknowledgement may be. One that is up to 0.54 s
/// late is always taken, one that is more than 1.07 s late never. On an idle flow only the
/// latest number is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct AckMarks {
    /// `snd_una` when the period before the present one began, and when the present
    /// one did.
    pub numbers: [u32; 2],
    /// The [`Tick`] at which the present period began.
    pub since: u32,
}

crate::plain!(AckMarks: 12);

impl AckMarks {
    /// The length of a period in ticks.
    pub const PERIOD: u32 = 512;

    /// Of a flow that begins with this number.
    #[inline(always)]
    #[must_use]
    pub const fn new(snd_una: u32, now: Tick) -> Self {
        Self {
            numbers: [snd_una; 2],
            since: now.0,
        }
    }

    /// The oldest acknowledgement number that is taken now.
    #[inline(always)]
    #[must_use]
    pub const fn oldest(&self, snd_una: u32, now: Tick) -> u32 {
        match now.since(self.since) / Self::PERIOD {
            0 => self.numbers[0],
            1 => self.numbers[1],
            _ => snd_una,
        }
    }

    /// The marks after `snd_una` has moved on from `before`; `None` if they stay.
    #[inline(always)]
    #[must_use]
    pub const fn moved(&self, before: u32, now: Tick) -> Option<Self> {
        match now.since(self.since) / Self::PERIOD {
            0 => None,
            1 => Some(Self {
                numbers: [self.numbers[1], before],
                since: now.0,
            }),
            _ => Some(Self::new(before, now)),
        }
    }
}
