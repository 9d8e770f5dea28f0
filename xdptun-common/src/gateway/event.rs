//! Events that the programs tell the daemon through the `REQUESTS` ring buffer.

use crate::parse::FragmentKey;
use crate::report::frame;

/// An event. All but [`Kind::First`] go on with `len` bytes of frame, from its link header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Event {
    /// A [`Kind`].
    pub kind: u32,
    /// Bytes that follow.
    pub len: u32,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub at: u64,
    /// The datagram that a fragment belongs to; zeros in other events.
    pub datagram: FragmentKey,
    /// Index of the interface that the packet is met at.
    pub interface: u32,
    /// Zeros.
    pub reserved: u32,
}

crate::plain!(Event: 64);

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A fragment waits for the first one of its datagram.
    Fragment = 0,
    /// The first fragment has come that others wait for.
    First = 1,
    /// The packet, of an inside host, could begin no session.
    Refused = 2,
    /// The segment belongs to no connection.
    Stray = 3,
}

crate::from_raw! {
    /// The kind stored as `value`.
    pub Kind: u32 { Fragment, First, Refused, Stray }
}

/// Frame bytes of the small size.
pub const SMALL_FRAME: usize = frame::small::<Event>();

/// Size of the ring buffer in bytes.
pub const RING_BYTES: u32 = 1 << 20;
