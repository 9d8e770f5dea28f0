//! Token buckets: how often something may be done.

/// How many tokens a bucket earns, and the most that it holds.
#[derive(Clone, Copy)]
pub struct Rate {
    /// Tokens for 2^30 ns (1.07 s).
    pub per_second: u64,
    /// The most that are saved.
    pub burst: u64,
}

/// A token bucket.
#[repr(C)]
pub struct Bucket {
    /// What may be done now, so many times.
    tokens: u64,
    /// When it was last filled, in nanoseconds.
    filled_at: u64,
}

impl Bucket {
    /// Takes a token; `false` if there is none.
    #[inline(always)]
    pub fn take(&mut self, rate: Rate, now: u64) -> bool {
        let Rate { per_second, burst } = rate;
        let elapsed = now.saturating_sub(self.filled_at);
        // The shift stands for a division by 2^30.
        let earned = if elapsed >> 30 != 0 {
            burst
        } else {
            (elapsed * per_second) >> 30
        };
        if earned > 0 {
            let tokens = self.tokens + earned;
            self.tokens = if tokens > burst { burst } else { tokens };
            self.filled_at = now;
        }
        if self.tokens == 0 {
            return false;
        }
        self.tokens -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1 << 30;
    const RATE: Rate = Rate {
        per_second: 1024,
        burst: 256,
    };

    /// How many tokens of the bucket are taken at `now`.
    fn taken(bucket: &mut Bucket, now: u64) -> u64 {
        (0..).find(|_| !bucket.take(RATE, now)).unwrap()
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        // As the kernel makes it: empty, and filled when the host booted.
        let mut bucket = Bucket {
            tokens: 0,
            filled_at: 0,
        };
        let now = 100 * SECOND;
        assert_eq!(taken(&mut bucket, now), 256);
        assert_eq!(taken(&mut bucket, now), 0);
        assert_eq!(taken(&mut bucket, now + SECOND / 16), 64);
        assert_eq!(taken(&mut bucket, now + 2 * SECOND), 256);
    }

    #[test]
    fn packets_that_come_faster_than_tokens_do_not_keep_it_empty() {
        let mut bucket = Bucket {
            tokens: 0,
            filled_at: SECOND,
        };
        let step = SECOND / 1024 / 4;
        let given = (1..=4096).filter(|count| bucket.take(RATE, SECOND + count * step));
        assert_eq!(given.count(), 1024);
    }

    #[test]
    fn a_clock_that_goes_back_earns_nothing() {
        let mut bucket = Bucket {
            tokens: 1,
            filled_at: 2 * SECOND,
        };
        assert_eq!(taken(&mut bucket, SECOND), 1);
        assert_eq!(bucket.filled_at, 2 * SECOND);
    }
}
