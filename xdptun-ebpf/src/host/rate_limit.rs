//! Token buckets of each CPU: how many answers to unauthenticated packets may leave, and how
//! many flows may be opened.

use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;

/// What may still be answered, by `Budget`.
#[map]
pub static BUDGETS: PerCpuArray<Bucket> = PerCpuArray::with_max_entries(BUDGETS_LEN, 0);

/// What is limited, each kind on each CPU by itself.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Budget {
    /// SYN-ACKs: anyone's SYN takes one.
    SynAcks = 0,
    /// Resets without a flow: anyone's segment takes one.
    Resets = 1,
    /// Resets of flows that wait for the answer to a SYN: those end what the peer still
    /// has of the flow before, and strangers must not use them up.
    Openings = 2,
    /// ICMP errors to senders behind us.
    Errors = 3,
    /// Flows that this host opens.
    Opens = 4,
}

/// How many budgets there are.
pub const BUDGETS_LEN: u32 = 5;

/// A token bucket.
#[repr(C)]
pub struct Bucket {
    /// Packets that may go now.
    tokens: u64,
    /// When it was last filled, in nanoseconds.
    filled_at: u64,
}

impl Budget {
    /// Tokens for 2^30 ns (1.07 s), and the most that are saved.
    #[inline(always)]
    const fn limits(self) -> (u64, u64) {
        match self {
            Self::SynAcks | Self::Resets | Self::Openings => (16384, 4096),
            // Twice what two CPUs open at their best.
            Self::Opens => (65536, 32768),
            Self::Errors => (1024, 256),
        }
    }

    /// Takes a token; `false` if there is none. So a sender of forged packets can make us
    /// answer only so fast.
    #[inline(always)]
    pub fn take(self) -> bool {
        let (per_second, burst) = self.limits();
        xdptun_take(self as u32, per_second, burst) != 0
    }
}

/// Takes a token of the bucket `budget`, which earns `per_second` of them and holds `burst`:
/// 1 if there was one, else 0. A global function (the verifier's word), which the verifier
/// walks once and not once for each way that leads to it.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn xdptun_take(budget: u32, per_second: u64, burst: u64) -> u32 {
    let Some(bucket) = BUDGETS.get_ptr_mut(budget) else {
        return 0;
    };
    // SAFETY: a per-CPU value, which only this program run touches; the clock
    // helper takes no pointers.
    unsafe {
        let now = bpf_ktime_get_ns();
        let elapsed = now.saturating_sub((*bucket).filled_at);
        // The shift stands for a division by 2^30.
        let earned = if elapsed >> 30 != 0 {
            burst
        } else {
            (elapsed * per_second) >> 30
        };
        if earned > 0 {
            let tokens = (*bucket).tokens + earned;
            (*bucket).tokens = if tokens > burst { burst } else { tokens };
            (*bucket).filled_at = now;
        }
        if (*bucket).tokens == 0 {
            return 0;
        }
        (*bucket).tokens -= 1;
    }
    1
}
