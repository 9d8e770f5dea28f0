//! The window field of our segments: it tells the peer what a segment is.
//!
//! ```text
//!  15    12   11     10      9      8    7         0
//! +--------+------+------+------+------+-----------+
//! | 1 1 1 1|  P   |  C   |  D   |  F   |   room    |
//! +--------+------+------+------+------+-----------+
//! ```
//!
//! | bit | set in |
//! |---|---|
//! | P | a probe: its sender wants an answer |
//! | C | a challenge (RFC 5961); of data, a datagram that is [padded](super::veil) |
//! | D | a segment whose datagram had no DF (IPv4) |
//! | F | a segment that carries a [fragment](super::fragment); one without data whose sender takes such |
//!
//! An ordinary TCP reads it as a window, which is large in every case.

/// The window field of a segment with this acknowledgement number: about 62 MB after scaling by ten
/// bits. It differs from flow to flow, as initial numbers do, and grows by one whenever 16 MiB have
/// come: that of Linux hardly changes either while its programs read in time. So the window's right
/// edge moves back once in 4 GiB only, the bits above aside.
#[inline(always)]
#[must_use]
pub const fn window(acknowledgment: u32) -> u16 {
    BASE | (acknowledgment >> (u32::BITS - ROOM.count_ones())) as u16
}

/// What all have in common.
const BASE: u16 = 0xf000;
/// The bits that grow as data comes.
const ROOM: u16 = 0x00ff;

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

/// The bit of the window field that says that the datagram had no DF, as those of WireGuard
/// in the kernel. Its segment has DF, like all of Linux's TCP: the peer drops one that is cut.
const WITHOUT_DF: u16 = 0x0200;

/// The window field of a segment whose datagram had DF or not.
#[inline(always)]
#[must_use]
pub const fn with_df(window: u16, df: bool) -> u16 {
    if df {
        window & !WITHOUT_DF
    } else {
        window | WITHOUT_DF
    }
}

/// Whether a window field is that of a segment whose datagram had no DF. A window that a
/// middlebox changed says nothing of it.
#[inline(always)]
#[must_use]
pub const fn is_without_df(window: u16) -> bool {
    window & !(ROOM | PADDED) == BASE | WITHOUT_DF
}

/// The bit of the window field of a segment whose datagram is padded.
const PADDED: u16 = CHALLENGES;

/// The window field of a segment whose datagram is padded.
#[inline(always)]
#[must_use]
pub const fn of_padded(window: u16) -> u16 {
    window | PADDED
}

/// Whether a window field is that of a segment with data whose datagram is padded. A window that a
/// middlebox changed is not.
#[inline(always)]
#[must_use]
pub const fn is_padded(window: u16) -> bool {
    window & !(ROOM | WITHOUT_DF) == BASE | PADDED
}

/// The bit of the window field of a segment that carries a fragment, and of one without data
/// whose sender takes such.
const FRAGMENT: u16 = 0x0100;

/// The window field of a segment that carries a fragment, or of one without data whose sender
/// takes such.
#[inline(always)]
#[must_use]
pub const fn of_fragments(window: u16) -> u16 {
    window | FRAGMENT
}

/// Whether a window field is that of a segment that carries a fragment. A window that a middlebox
/// changed is not.
#[inline(always)]
#[must_use]
pub const fn carries_fragment(window: u16) -> bool {
    window & !ROOM == BASE | FRAGMENT
}

/// Whether a window field is that of a segment without data whose sender takes fragments.
#[inline(always)]
#[must_use]
pub const fn takes_fragments(window: u16) -> bool {
    window & !(ROOM | ASKS | CHALLENGES) == BASE | FRAGMENT
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
