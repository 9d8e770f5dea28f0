//! Threads on CPUs of their own.

use anyhow::{Context, Result};
use xdptun_lab::cpu;

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
    let allowed = cpu::allowed()?;
    let cpu = match end {
        End::Sender => allowed.first(),
        End::Receiver => allowed.last(),
    };
    cpu::pin(cpu::this_thread(), *cpu.context("no CPU is allowed")?)
}
