//! What the programs tell user space: copies of packets, counters.

pub mod copy;
pub mod outcome;
