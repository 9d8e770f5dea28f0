//! Sets of ports, a bit for each port in words of 64.

/// Words of a set.
pub const PORT_WORDS: u32 = 65536 / 64;

/// Where a port's bit is: word and mask.
#[inline(always)]
#[must_use]
pub const fn port_bit(port: u16) -> (u32, u64) {
    ((port >> 6) as u32, 1 << (port & 63))
}
