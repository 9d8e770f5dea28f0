//! Events that the programs tell the daemon through the `EVENTS` ring buffer.

use crate::flow::key::FlowKey;

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
}

crate::from_raw! {
    /// The kind stored as `value`.
    pub Kind: u32 { Queued, Established, Finished, Reset }
}

/// An event with room for a frame of up to `N` bytes. The kernel reserves fixed
/// sizes only, so there is one for common frames and one for any.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct QueuedFrame<const N: usize> {
    /// Kind, length and flow.
    pub event: Event,
    /// The frame, `event.len` bytes of it.
    pub frame: [u8; N],
}

/// Frame bytes of the small size: an Ethernet MTU of 1500 with tags and to spare.
pub const SMALL_FRAME: usize = 2048 - size_of::<Event>();
/// Frame bytes of the large size: any IP packet with its link header.
pub const LARGE_FRAME: usize = 65536 + 64;
/// Size of the ring buffer in bytes.
pub const RING_BYTES: u32 = 4 << 20;
