//! Frames that the programs hand to the daemon through a ring buffer, behind an event.

/// An event of a function with room for a frame of up to `N` bytes. The kernel reserves fixed
/// sizes only, so there is one for common frames and one for any.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Framed<E, const N: usize> {
    /// What it is about, and how many bytes of the frame follow.
    pub event: E,
    /// The frame, from its link header.
    pub frame: [u8; N],
}

/// Frame bytes of the small size behind an event of this type: an Ethernet MTU of 1500 with tags
/// and to spare.
#[must_use]
pub const fn small<E>() -> usize {
    2048 - size_of::<E>()
}

/// Frame bytes of the large size: any IP packet with its link header.
pub const LARGE_FRAME: usize = 65536 + 64;
