//! Events that the programs tell the daemon through the `EVENTS` ring buffer.

use crate::flow::key::FlowKey;
use crate::report::frame;

/// An event. One of [`Kind::Queued`] goes on with `len` bytes of frame, from its link
/// header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Event {
    /// A [`Kind`].
    pub kind: u32,
    /// Bytes that follow.
    pub len: u32,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub at: u64,
    /// The flow it is about.
    pub flow: FlowKey,
    /// Index of the interface that a queued frame leaves by; zero in other events.
    pub interface: u32,
}

crate::plain!(Event: 56);

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A datagram waits for the handshake of its flow.
    Queued = 0,
    /// The handshake ended; data may pass.
    Established = 1,
    /// The peer ended the flow with FIN, or answered ours.
    Finished = 2,
    /// The peer reset the flow.
    Reset = 3,
    /// The flow sent its first fragment as a segment.
    Fragmented = 4,
}

crate::from_raw! {
    /// The kind stored as `value`.
    pub Kind: u32 { Queued, Established, Finished, Reset, Fragmented }
}

/// Frame bytes of the small size.
pub const SMALL_FRAME: usize = frame::small::<Event>();
/// Size of the ring buffer in bytes.
pub const RING_BYTES: u32 = 4 << 20;
