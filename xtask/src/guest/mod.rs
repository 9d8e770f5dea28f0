//! An emulated machine with another kernel, which runs one job.
//!
//! A guest has Debian's kernel and this machine's programs: it sees the host's
//! file system, which it cannot change. What it runs is built before.

mod arch;
mod hypervisor;
mod initramfs;
mod job;
mod jool;
mod kernel;
mod machine;
mod programs;

pub use hypervisor::Hypervisor;
pub use job::Job;
pub use kernel::USER_MODE;
pub use machine::{Ended, Guest, option};
