//! What the programs tell user space: copies of packets, counters, frames for the daemon.

pub mod copy;
pub mod frame;
pub mod outcome;
