//! The search for the patterns of a table in a payload.
//!
//! The payload is read in chunks of [`STEP`] bytes. A chunk lies in a [`Window`] with what stands
//! before it and behind it, so that each pattern that begins or ends elsewhere is whole there.

use super::table::{Entry, MAX_ENTRIES, MAX_PATTERN, MAX_STRIDE, Table};

/// How many bytes of payload a chunk has at most; a multiple of every stride.
pub const STEP: usize = 2048;

/// How many bytes before a chunk are in its window.
pub const LEAD: usize = MAX_PATTERN;

/// How many bytes of payload a window has at most.
pub const WINDOW: usize = LEAD + STEP + MAX_PATTERN;

/// The longest payload that is searched, in bytes: that of the longest IP packet.
pub const MAX_PAYLOAD: usize = 65_535;

/// How many chunks that has.
pub const MAX_CHUNKS: usize = MAX_PAYLOAD.div_ceil(STEP);

/// How many grams of patterns may be compared with a payload, and words of patterns after those,
/// before a search ends without a result. More than every second byte of the longest payload
/// can look like a part of a pattern.
pub const MAX_STEPS: u32 = 32_768;

const _: () = assert!(STEP.is_multiple_of(MAX_STRIDE));

/// A chunk of payload, read in little-endian words from any place of the window.
pub trait Window {
    /// The four bytes at a place.
    fn word(&self, at: usize) -> u32;
    /// The eight bytes at a place.
    fn long(&self, at: usize) -> u64;
}

/// Which part of a payload a window holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Chunk {
    /// Where in the payload the chunk begins, in bytes: a multiple of [`STEP`].
    pub base: u32,
    /// How long the payload is, in bytes.
    pub len: u32,
}

impl Chunk {
    /// The chunk with this number, of a payload that is so long; `None` behind the last.
    #[inline(always)]
    #[must_use]
    pub const fn nth(number: usize, len: u32) -> Option<Self> {
        let base = (number * STEP) as u32;
        match base < len {
            true => Some(Self { base, len }),
            false => None,
        }
    }

    /// How many bytes it has.
    #[inline(always)]
    const fn bytes(self) -> usize {
        let rest = self.len.wrapping_sub(self.base) as usize;
        if rest < STEP { rest } else { STEP }
    }

    /// Where the part of the payload begins that its window holds.
    #[inline(always)]
    #[must_use]
    pub const fn first(self) -> u32 {
        self.base.saturating_sub(LEAD as u32)
    }

    /// How long that part is, in bytes: at least one, and [`WINDOW`] at most.
    #[inline(always)]
    #[must_use]
    pub const fn loaded(self) -> u32 {
        let end = self.base + (STEP + MAX_PATTERN) as u32;
        let end = if end < self.len { end } else { self.len };
        end.wrapping_sub(self.first())
    }

    /// Where in the payload the pattern of an entry begins whose gram is at a place of the chunk;
    /// `None` if it is not all in the payload.
    #[inline(always)]
    #[must_use]
    pub const fn start(self, at: u32, entry: &Entry) -> Option<u32> {
        let place = self.base + at;
        if place < entry.offset as u32 {
            return None;
        }
        let start = place - entry.offset as u32;
        match start + entry.len as u32 <= self.len {
            true => Some(start),
            false => None,
        }
    }
}

/// How many places are looked at together: one branch for all.
pub const GROUP: usize = 4;

/// Looks at every `STRIDE`-th place of a chunk, so many together. Calls `meets` with the first place
/// of a group where a pattern may be, until that says to end.
#[inline(always)]
pub fn sample<const STRIDE: usize>(
    table: &Table,
    window: &impl Window,
    chunk: Chunk,
    mut meets: impl FnMut(u32) -> bool,
) {
    let bytes = chunk.bytes();
    for number in 0..STEP / (STRIDE * GROUP) {
        let at = number * STRIDE * GROUP;
        if at >= bytes {
            break;
        }
        let mut any = 0;
        // Behind the chunk as well: a pattern that begins there has no room in the payload, or
        // is found in the next chunk too.
        for place in 0..GROUP {
            any |= table.bucket(table.gram(window.word(LEAD + at + place * STRIDE)));
        }
        if any != 0 && meets(at as u32) {
            return;
        }
    }
}

/// Looks at each place of a group. Calls `meets` with those where a pattern may be and their
/// buckets, until that finds something.
#[inline(always)]
pub fn group(
    table: &Table,
    window: &impl Window,
    at: u32,
    mut meets: impl FnMut(u32, u8) -> Found,
) -> Found {
    let stride = table.stride() & (2 * MAX_STRIDE as u32 - 1);
    for number in 0..GROUP as u32 {
        let at = at + number * stride;
        let bucket = table.bucket(table.gram(window.word(LEAD + at as usize)));
        if bucket != 0 {
            let found = meets(at, bucket);
            if found != Found::Nothing {
                return found;
            }
        }
    }
    Found::Nothing
}

/// What comes of a look into a bucket, or of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No pattern is there.
    Nothing,
    /// A pattern begins at this byte of the payload.
    Match(u32),
    /// There were no steps left.
    Cut,
}

/// Looks for the patterns of a bucket whose gram is at a place of a chunk. `is_there` compares a
/// pattern with the window; `take` takes so many steps, if they are left.
#[inline(always)]
pub fn look(
    table: &Table,
    window: &impl Window,
    chunk: Chunk,
    (at, bucket): (u32, u8),
    mut take: impl FnMut(u32) -> bool,
    mut is_there: impl FnMut(&Entry, u32) -> bool,
) -> Found {
    let gram = table.gram(window.word(LEAD + at as usize));
    let (first, end) = table.entries_of(bucket);
    for number in 0..MAX_ENTRIES {
        let number = number + first as usize;
        if number >= end as usize {
            break;
        }
        if !take(1) {
            return Found::Cut;
        }
        let entry = table.entry(number);
        if entry.gram != gram {
            continue;
        }
        if let Some(start) = chunk.start(at, entry) {
            if !take(words(entry.len)) {
                return Found::Cut;
            }
            if is_there(entry, LEAD as u32 + at - u32::from(entry.offset)) {
                return Found::Match(start);
            }
        }
    }
    Found::Nothing
}

/// Whether a pattern is at a place of a window.
#[inline(always)]
pub fn is_at(table: &Table, window: &impl Window, at: usize, pattern: u8, len: u8) -> bool {
    let ignores_case = table.ignores_case();
    for number in 0..MAX_PATTERN / 8 {
        let rest = (len as usize).wrapping_sub(number * 8);
        if number * 8 >= len as usize {
            break;
        }
        let mut found = window.long(at + number * 8);
        if ignores_case {
            found = lowercase(found);
        }
        let mut differs = found ^ table.word(pattern, number);
        if rest < 8 {
            // The bytes behind the end of the pattern are in the upper half.
            differs <<= 8 * (8 - rest);
        }
        if differs != 0 {
            return false;
        }
    }
    true
}

/// How many words a pattern has.
#[inline(always)]
const fn words(len: u8) -> u32 {
    (len as u32 + 7) >> 3
}

/// Eight bytes with their ASCII capitals as small letters, all at once: the top bit of each byte is
/// a flag, which the sums of the seven others set from a letter on.
#[inline(always)]
#[must_use]
pub const fn lowercase(bytes: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const TOP: u64 = 0x80 * EACH;
    let low = bytes & !TOP;
    let from_a = low + (0x80 - b'A' as u64) * EACH;
    let behind_z = low + (0x7f - b'Z' as u64) * EACH;
    let capitals = (from_a ^ behind_z) & !bytes & TOP;
    // 0x80 becomes 0x20, by which the cases differ.
    bytes | (capitals >> 2)
}
