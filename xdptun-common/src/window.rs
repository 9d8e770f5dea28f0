//! The window field of our segments: it keeps them apart in a receiver's GRO, and tells the
//! peer what a segment is.
//!
//! ```text
//!  15    12   11     10      9     8   7         0
//! +--------+------+------+------+---+-----------+
//! | 1 1 1 1| asks | chal | frag | 0 |   count   |
//! +--------+------+------+------+---+-----------+
//! ```
//!
//! A TCP of another make takes it for a window, which is large whatever the bits are.

/// The window field of a segment: about 62 MB after scaling by ten bits, with low bits that
/// differ from one segment to the next. A receiver's GRO merges segments only
/// when flags and window are equal (`tcp_gro_receive`), and a merged segment
/// would be several datagrams in one.
#[inline(always)]
#[must_use]
pub const fn window(segment: u64) -> u16 {
    const BASE: u16 = 0xf000;
    BASE | (segment as u16 & 0xff)
}

/// How far a segment may lie from what is expected, in bytes: what the window
/// above offers, rounded up.
pub const MAX_WINDOW: u32 = 1 << 26;

/// The bit of the window field that makes an ACK a probe: its sender wants an
/// answer, whatever the numbers say.
const ASKS: u16 = 0x0800;

/// The window field of a probe.
#[inline(always)]
#[must_use]
pub const fn asking(window: u16) -> u16 {
    window | ASKS
}

/// The bit of the window field that makes an ACK a challenge.
const CHALLENGES: u16 = 0x0400;

/// The window field of a challenge (RFC 5961).
#[inline(always)]
#[must_use]
pub const fn challenging(window: u16) -> u16 {
    window | CHALLENGES
}

/// The bit of the window field that says of a segment's datagram that it may be fragmented,
/// as those of WireGuard in the kernel. The segment itself may not, as those of TCP, and
/// its peer would drop the fragments.
const FRAGMENTABLE: u16 = 0x0200;

/// The window field of a segment whose datagram may be fragmented, or may not.
#[inline(always)]
#[must_use]
pub const fn fragmentable(window: u16, fragmentable: bool) -> u16 {
    if fragmentable {
        window | FRAGMENTABLE
    } else {
        window & !FRAGMENTABLE
    }
}

/// Whether a window field is that of a segment whose datagram may be fragmented.
#[inline(always)]
#[must_use]
pub const fn is_fragmentable(window: u16) -> bool {
    window & FRAGMENTABLE != 0
}

/// Whether a window field is that of a probe or a challenge: such a segment names
/// its sender's latest numbers, any other one those of the moment it left.
#[inline(always)]
#[must_use]
pub const fn is_exact(window: u16) -> bool {
    window & (ASKS | CHALLENGES) != 0
}

/// Whether a window field is that of a probe.
#[inline(always)]
#[must_use]
pub const fn asks(window: u16) -> bool {
    window & ASKS != 0
}
