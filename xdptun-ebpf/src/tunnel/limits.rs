//! Rate limits for answers to unauthenticated packets and for new flows.

use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;

use crate::host::rate_limit::{Bucket, Rate};

/// What may still be answered and opened, by [`Limit`].
#[map]
pub static RATE_LIMITS: PerCpuArray<Bucket> = PerCpuArray::with_max_entries(LIMITS, 0);

/// What is limited, each kind on each CPU by itself.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Limit {
    /// SYN-ACKs: any sender's SYN takes one.
    SynAcks = 0,
    /// Resets without a flow: any sender's segment takes one.
    Resets = 1,
    /// Resets of flows that wait for the answer to a SYN: those end what the peer still
    /// has of the flow before, and strangers must not use them up.
    Openings = 2,
    /// ICMP errors to senders behind us.
    Errors = 3,
    /// Flows that this host opens.
    Opens = 4,
}

/// How many limits there are.
const LIMITS: u32 = 5;

impl Limit {
    #[inline(always)]
    const fn rate(self) -> Rate {
        let (per_second, burst) = match self {
            Self::SynAcks | Self::Resets | Self::Openings => (16384, 4096),
            // Twice what two CPUs open at their best.
            Self::Opens => (65536, 32768),
            Self::Errors => (1024, 256),
        };
        Rate { per_second, burst }
    }

    /// Takes a token; `false` if there is none. So a sender of forged packets can make us
    /// answer only so fast.
    #[inline(always)]
    pub fn take(self) -> bool {
        let Rate { per_second, burst } = self.rate();
        xdptun_take(self as u32, per_second, burst) != 0
    }
}

/// Takes a token of the bucket of `limit`, which earns `per_second` of them and holds `burst`:
/// 1 if there was one, else 0. A global function (the verifier's word), which the verifier
/// walks once and not once for each way that leads to it.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn xdptun_take(limit: u32, per_second: u64, burst: u64) -> u32 {
    let Some(bucket) = RATE_LIMITS.get_ptr_mut(limit) else {
        return 0;
    };
    // SAFETY: the clock helper takes no pointers.
    let now = unsafe { bpf_ktime_get_ns() };
    // SAFETY: a per-CPU value, which only this program run touches.
    let bucket = unsafe { &mut *bucket };
    bucket.take(Rate { per_second, burst }, now).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_earns_without_overflow() {
        for limit in [
            Limit::SynAcks,
            Limit::Resets,
            Limit::Openings,
            Limit::Errors,
            Limit::Opens,
        ] {
            let Rate { per_second, burst } = limit.rate();
            assert!((limit as u32) < LIMITS);
            assert!(((1_u64 << 30) - 1).checked_mul(per_second).is_some());
            assert!(burst <= per_second);
        }
    }
}
