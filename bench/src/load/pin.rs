//! Threads on CPUs of their own.

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The ends of the traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// On the first CPU.
    Sender,
    /// On the last: another one, where there is more than one.
    Receiver,
}

/// Keeps the calling thread on the CPU of its end, among those that the process
/// may use.
pub fn pin(end: End) -> Result<()> {
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this).context("cannot ask for CPUs")?;
    let mut cpus = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false));
    let cpu = match end {
        End::Sender => cpus.next(),
        End::Receiver => cpus.next_back(),
    };
    let mut one = CpuSet::new();
    one.set(cpu.context("no CPU is allowed")?)?;
    sched_setaffinity(this, &one).context("cannot pin a thread")
}
