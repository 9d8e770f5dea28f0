//! CPUs for threads.

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The calling thread.
pub fn this_thread() -> Pid {
    Pid::from_raw(0)
}

/// Those that the calling thread may run on, in ascending order.
pub fn allowed() -> Result<Vec<usize>> {
    let allowed = sched_getaffinity(this_thread()).context("cannot ask for CPUs")?;
    let all = 0..CpuSet::count();
    Ok(all.filter(|cpu| allowed.is_set(*cpu) == Ok(true)).collect())
}

/// Keeps a thread on a CPU.
pub fn pin(thread: Pid, cpu: usize) -> Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu)?;
    sched_setaffinity(thread, &only)
        .with_context(|| format!("cannot pin thread {thread} to CPU {cpu}"))
}
