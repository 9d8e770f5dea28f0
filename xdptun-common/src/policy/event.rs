//! What the programs tell the daemon, through the `POLICY_EVENTS` ring buffer.

use super::rule::NAME;
use crate::report::frame;

/// An event, and `len` bytes of a frame from its link header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Event {
    /// A [`Kind`].
    pub kind: u32,
    /// Bytes that follow.
    pub len: u32,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub at: u64,
    /// Index of the interface that the packet is met at.
    pub interface: u32,
    /// Where in the payload the pattern begins, in bytes.
    pub offset: u32,
    /// Source address, 16 bytes.
    pub source: [u8; 16],
    /// Destination address, 16 bytes.
    pub destination: [u8; 16],
    /// Source port, big-endian; zeros for a later fragment.
    pub source_port: [u8; 2],
    /// Destination port, likewise.
    pub destination_port: [u8; 2],
    /// Its transport protocol.
    pub protocol: u8,
    /// A [`Direction`](super::rule::Direction).
    pub direction: u8,
    /// Zeros.
    pub reserved: [u8; 2],
    /// The name of the rule, padded with zeros.
    pub rule: [u8; NAME],
}

crate::plain!(Event: 96);

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A rule that logs has matched.
    Log = 0,
    /// A packet was dropped, and its ends are to be told.
    Reset = 1,
}

crate::from_raw! {
    /// The kind stored as `value`.
    pub Kind: u32 { Log, Reset }
}

/// Frame bytes of an event.
pub const FRAME: usize = frame::small::<Event>();

/// Size of the ring buffer in bytes.
pub const RING_BYTES: u32 = 1 << 18;
