//! How often the daemon is asked for something, so that nobody can keep it busy.

use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;

use crate::host::clock::now;
use crate::host::rate_limit::{Bucket, Rate};

/// What may still be asked for, by [`Limit`].
#[map]
pub static REQUEST_LIMITS: PerCpuArray<Bucket> = PerCpuArray::with_max_entries(LIMITS, 0);

/// What is limited, each kind on each CPU by itself.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Limit {
    /// Fragments that wait for their first: any sender's takes one.
    Fragments = 0,
    /// Messages to senders of refused packets (RFC 1812 section 4.3.2.8).
    Answers = 1,
}

/// How many limits there are.
const LIMITS: u32 = 2;

impl Limit {
    #[inline(always)]
    const fn rate(self) -> Rate {
        let (per_second, burst) = match self {
            Self::Fragments => (4096, 1024),
            Self::Answers => (1024, 256),
        };
        Rate { per_second, burst }
    }

    /// Takes a token; `false` if there is none.
    #[inline(always)]
    pub fn take(self) -> bool {
        // SAFETY: a per-CPU value, which only this program run touches.
        let bucket = REQUEST_LIMITS
            .get_ptr_mut(self as u32)
            .map(|bucket| unsafe { &mut *bucket });
        bucket.is_some_and(|bucket| bucket.take(self.rate(), now()))
    }
}
