//! TCP sequence numbers: modulo 2^32, compared by distance (RFC 9293 section 3.4).

/// How far `a` lies ahead of `b`; negative if it lies behind.
#[inline(always)]
#[must_use]
pub const fn distance(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}

/// Whether `a` comes after `b`.
#[inline(always)]
#[must_use]
pub const fn after(a: u32, b: u32) -> bool {
    distance(a, b) > 0
}

/// Whether `a` lies no further than `window` from `b`, on either side.
#[inline(always)]
#[must_use]
pub const fn near(a: u32, b: u32, window: u32) -> bool {
    distance(a, b).unsigned_abs() <= window
}
