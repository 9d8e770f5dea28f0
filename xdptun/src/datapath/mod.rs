//! The engine below any function: it attaches programs to hooks, pins them and removes
//! them.
//!
//! Programs stay attached through pinned links (or, before kernel 6.6, as
//! filters of the `clsact` qdisc). So the death of the daemon changes nothing
//! for established flows, and no datagram leaves undisguised.

pub(crate) mod batch;
pub(crate) mod clsact;
pub(crate) mod device;
pub mod engine_maps;
pub(crate) mod hook;
pub mod local;
pub(crate) mod lock;
pub mod map;
pub mod network;
pub(crate) mod order;
pub mod pins;
pub(crate) mod pod;
pub mod programs;
pub mod recorder;
pub(crate) mod remove;
pub(crate) mod splitter;
