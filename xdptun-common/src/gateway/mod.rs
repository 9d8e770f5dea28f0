//! The gateway: packets to this host go on to other hosts, and those of hosts behind it leave
//! with its address; their answers come back.
//!
//! A translation changes one end of a packet at each hook that it passes: the destination of
//! one that comes in, the source of one that leaves. So one record of an address and a port
//! says all of it, and routing, netfilter and neighbours stay the kernel's.

pub mod fragment;
pub mod nat;
pub mod outcome;
pub mod port;
pub mod request;
pub mod rule;
pub mod session;
pub mod timer;
pub mod tuple;

/// Names of the gateway's read-only variables, beside
/// [those of any function](crate::global).
pub mod global {
    /// `u32`: how many sessions may be open at once.
    pub const MAX_SESSIONS: &str = "MAX_SESSIONS";
}
