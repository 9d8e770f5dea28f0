//! What the programs ask of the daemon, through the `REQUESTS` ring buffer.

use crate::parse::FragmentKey;
use crate::report::frame;

/// A request. All but [`Kind::Release`] go on with `len` bytes of frame, from its link header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Request {
    /// A [`Kind`].
    pub kind: u32,
    /// Bytes that follow.
    pub len: u32,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub at: u64,
    /// The datagram that a fragment belongs to; zeros in other requests.
    pub datagram: FragmentKey,
    /// Index of the interface that the packet is met at.
    pub interface: u32,
    /// Zeros.
    pub reserved: u32,
}

crate::plain!(Request: 64);

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// To hold a fragment until the first one of its datagram has come.
    Hold = 0,
    /// To let those go on that are held: the first has come.
    Release = 1,
    /// To tell an inside host that its packet may begin no session.
    Prohibit = 2,
    /// To answer a segment that belongs to no connection with RST.
    Reset = 3,
}

crate::from_raw! {
    /// The kind stored as `value`.
    pub Kind: u32 { Hold, Release, Prohibit, Reset }
}

/// Frame bytes of the small size.
pub const SMALL_FRAME: usize = frame::small::<Request>();

/// Size of the ring buffer in bytes.
pub const RING_BYTES: u32 = 1 << 20;
