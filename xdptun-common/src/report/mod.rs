//! What the programs tell user space: events as they happen, copies of packets, counters.

pub mod copy;
pub mod event;
pub mod outcome;
