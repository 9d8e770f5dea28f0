//! Sums and moves payload bytes.

use aya_ebpf::programs::TcContext;
use xdptun_common::Plain;
use xdptun_common::checksum::{LongSum, Sum};

use crate::machine::{load, opaque, store};
use crate::packet::access::Packet;
pub use crate::packet::copied::MAX_LEN;
use crate::packet::copied::{BLOCK, Copied, copy};
use crate::packet::error::PacketError;
use crate::packet::skb::Skb as _;

/// Adds up `len` bytes from `offset`, of which the first begins a word.
#[inline(always)]
pub fn sum(ctx: &TcContext, offset: usize, len: usize) -> Result<Sum, PacketError> {
    if len > MAX_LEN {
        return Err(PacketError::TooLong);
    }
    if len == 0 {
        return Ok(Sum::new());
    }
    let len = copy(ctx.raw(), offset, len).ok_or(PacketError::OutOfBounds)?;
    Ok(Sum::new().words(xdptun_sum(len).to_ne_bytes()))
}

/// See [`sum`]. A global function (the verifier's word).
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn xdptun_sum(len: u32) -> u32 {
    Copied::first(len).map_or(0, |copied| copied.sum().unfolded())
}

/// Whether `len` bytes from `offset` can be moved `by` bytes towards the end of the packet,
/// before any are.
#[inline(always)]
pub fn has_room(ctx: &TcContext, offset: usize, len: usize, by: usize) -> Result<(), PacketError> {
    let end = offset + len + by;
    if len > MAX_LEN {
        return Err(PacketError::TooLong);
    }
    if ctx.start() + end > ctx.end() {
        return Err(PacketError::OutOfBounds);
    }
    Ok(())
}

/// Moves `len` bytes from `offset` `BY` bytes towards the end, and adds them up if
/// `SUM` says so; otherwise the sum is of some of them and means nothing. Neither number
/// may be more than `MAX`.
///
/// From the end to the start, as old and new place overlap; in pieces that start
/// at multiples of their length, as the words of the sum must be even. Each
/// piece starts from an offset that is computed from `len` anew: had it come out
/// of the steps before, the verifier would follow what comes after once for each
/// way through these.
#[inline(always)]
pub fn walk<const BY: usize, const SUM: bool, const MAX: usize>(
    packet: &impl Packet,
    offset: usize,
    len: usize,
) -> u32 {
    if offset > MAX || len > MAX {
        return 0;
    }
    let mut rest = Sum::new();
    if len & 1 != 0 {
        let byte = piece::<u8, BY>(packet, offset + within(len, !1));
        rest = rest.word([byte.unwrap_or(0), 0]);
    }
    if len & 2 != 0 {
        let word = piece::<u16, BY>(packet, offset + within(len, !3));
        rest = rest.word(word.unwrap_or(0).to_ne_bytes());
    }
    if len & 4 != 0 {
        let words = piece::<u32, BY>(packet, offset + within(len, !7));
        rest = rest.words(words.unwrap_or(0).to_ne_bytes());
    }
    let mut sum = LongSum::new();
    if len & 8 != 0 {
        run::<1, BY, SUM>(packet, offset + within(len, !15), &mut sum);
    }
    if len & 16 != 0 {
        run::<2, BY, SUM>(packet, offset + within(len, !31), &mut sum);
    }
    if len & 32 != 0 {
        run::<4, BY, SUM>(packet, offset + within(len, !63), &mut sum);
    }
    // Of which the compiler must not know that there are no more than the loop has
    // rounds: it would count to this number alone, and kernel 6.1 forgets its bound.
    let blocks = within(len, !(BLOCK - 1)) / BLOCK;
    for block in 0..MAX / BLOCK {
        if block >= blocks {
            break;
        }
        let start = within(len - block * BLOCK - BLOCK, !(BLOCK - 1));
        run::<{ BLOCK / 8 }, BY, SUM>(packet, offset + start, &mut sum);
    }
    rest.combine(sum.sum()).unfolded()
}

/// Moves one value, and tells what it is; `None` if it or its new place lies
/// beyond the packet.
#[inline(always)]
fn piece<T: Plain, const BY: usize>(packet: &impl Packet, offset: usize) -> Option<T> {
    let value = packet.read::<T>(offset)?;
    packet.write(offset + BY, value)?;
    Some(value)
}

/// Moves a run of 64-bit words, and adds them up if `SUM` says so.
#[inline(always)]
fn run<const WORDS: usize, const BY: usize, const SUM: bool>(
    packet: &impl Packet,
    offset: usize,
    sum: &mut LongSum,
) {
    let at = packet.start() + offset;
    if at + WORDS * 8 + BY > packet.end() {
        return;
    }
    for word in (0..WORDS).rev() {
        let at = at + word * 8;
        // SAFETY: inside the packet by the check above.
        unsafe {
            let value: u64 = load(at);
            store(at + BY, value);
            if SUM {
                *sum = sum.long(value);
            }
        }
    }
}

/// The bits `mask` of a length, as a number of which nothing but its bounds is
/// known.
#[inline(always)]
fn within(len: usize, mask: usize) -> usize {
    opaque(len as u64) as usize & (2 * MAX_LEN - 1) & mask
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::packet::buffer::Buffer;

    /// Behind Ethernet, IPv4 and UDP.
    const OFFSET: usize = 14 + 20 + 8;
    const GROWTH: usize = 12;

    /// Every length up to some blocks, and those around the longest.
    fn lengths() -> impl Iterator<Item = usize> {
        (0..4 * BLOCK).chain(MAX_LEN - BLOCK..=MAX_LEN)
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len)
            .map(|index| (index * 37 + index / 256) as u8)
            .collect()
    }

    fn folded(sum: u32) -> u16 {
        Sum::new().words(sum.to_ne_bytes()).folded()
    }

    #[test]
    fn a_payload_is_moved_whole_and_added_up_on_the_way() {
        for len in lengths() {
            let before = bytes(OFFSET + len + GROWTH + 9);
            let packet = Buffer::new(&before);
            let sum = walk::<GROWTH, true, MAX_LEN>(&packet, OFFSET, len);
            let payload = &before[OFFSET..OFFSET + len];
            let after = packet.bytes();
            let moved = OFFSET + GROWTH..OFFSET + GROWTH + len;
            assert!(after[moved.clone()] == *payload, "{len} bytes");
            assert_eq!(after[moved.end..], before[moved.end..], "{len} bytes");
            assert_eq!(after[..OFFSET], before[..OFFSET], "{len} bytes");
            assert_eq!(
                folded(sum),
                Sum::new().bytes(payload).folded(),
                "{len} bytes"
            );
        }
    }

    #[test]
    fn nothing_behind_the_packet_is_written() {
        for len in 0..4 * BLOCK {
            for missing in 1..=GROWTH {
                let before = bytes(OFFSET + len + GROWTH - missing);
                let packet = Buffer::new(&before);
                walk::<GROWTH, true, MAX_LEN>(&packet, OFFSET, len);
                assert_eq!(packet.bytes()[..OFFSET], before[..OFFSET]);
            }
        }
    }
}
