//! The clock of the programs.

use aya_ebpf::helpers::generated::{bpf_jiffies64, bpf_ktime_get_coarse_ns};

use crate::flow::word::Variable;

/// The last reading, which holds for a whole tick of the kernel.
struct Reading {
    ns: Variable,
    /// `ns`, exclusive or the tick (`jiffies`) that it was read in. So the two words prove each
    /// other: of two readings that CPUs store at once, in whatever order, a mix belongs to no
    /// tick, and the next packet reads anew.
    proof: Variable,
}

static LAST: Reading = Reading {
    ns: Variable::zero(),
    proof: Variable::zero(),
};

/// Nanoseconds of `CLOCK_MONOTONIC`, as of the last tick or the one before: exact to some
/// milliseconds. Two CPUs may read values that are a tick apart, whichever reads first. The kernel's
/// helper (5.11) takes 20 ns and its count of ticks next to nothing, so the helper is called once
/// a tick.
#[inline(always)]
pub fn now() -> u64 {
    let (ns, proof) = (LAST.ns.word(), LAST.proof.word());
    // SAFETY: no pointers are involved.
    let tick = unsafe { bpf_jiffies64() };
    let last = ns.load();
    if last ^ proof.load() == tick {
        return last;
    }
    // SAFETY: no pointers are involved.
    let read = unsafe { bpf_ktime_get_coarse_ns() };
    // The kernel counts a tick before it moves the clock (`tick_do_update_jiffies64`), and this may
    // be the moment between.
    if read != last {
        ns.store(read);
        proof.store(read ^ tick);
    }
    read
}
