//! Copies of packets for `xdptun capture`: as a program met them, and as it left
//! them.
//!
//! A copy is a [`Record`] and bytes of the packet. Both copies of a packet come from
//! one CPU and have the same timestamp. The two copies of an acknowledgement that it
//! caused may lie between them.

/// The head of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Record {
    /// Nanoseconds of `CLOCK_MONOTONIC` when the program met the packet.
    pub at: u64,
    /// A [`Hook`].
    pub hook: u32,
    /// How it ended: [`MET`] if it has only begun, else the index of
    /// its `Outcome` plus one, [`ANSWERED`] with it if the packet was turned into an
    /// answer, and above [`DETAIL`] what decided.
    pub end: u32,
    /// Length of the packet in bytes, from its link header.
    pub len: u32,
    /// Bytes of it that follow.
    pub copied: u32,
    /// Index of the interface.
    pub interface: u32,
    /// Zero.
    pub reserved: u32,
}

crate::plain!(Record: 32);

/// The copy was made before the program did anything. Most packets of which there
/// is only this copy were not ours.
pub const MET: u32 = 0;
/// The packet was turned into an answer, which leaves where it came in.
pub const ANSWERED: u32 = 1 << 16;
/// Above so many bits of [`Record::end`] is the number of what decided about the packet, if its
/// function notes one.
pub const DETAIL: u32 = 24;

/// The longest copy in bytes: the kernel's events end at 64 KiB, and
/// have heads of their own.
pub const MAX_COPIED: u32 = 65_000;

/// Which program met the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Hook {
    /// tc egress.
    Egress = 0,
    /// tc ingress.
    Ingress = 1,
    /// XDP.
    Xdp = 2,
}

crate::from_raw! {
    /// The hook stored as `value`.
    pub Hook: u32 { Egress, Ingress, Xdp }
}

impl Hook {
    /// How a person calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Egress => "egress",
            Self::Ingress => "ingress",
            Self::Xdp => "xdp",
        }
    }
}
