//! The Internet checksum as algebra.
//!
//! Three facts carry everything here (RFC 1071 section 2):
//!
//! 1. Addition is one's-complement: 2^16 = 1 modulo 65535, so words of any even
//!    width may be added in one wide accumulator and folded once at the end.
//! 2. Byte order does not matter as long as it is the same throughout: the sum
//!    of swapped words is the swapped sum. Words are therefore taken *as they
//!    lie in memory*, and the result is written back the same way.
//! 3. A word is subtracted by adding its complement (RFC 1624, equation 3).
//!
//! One's-complement zero has two forms. A sum over real data is never 0x0000
//! (headers are not all zero), it is 0xffff, so a checksum computed here is
//! never 0xffff but may be 0x0000. For UDP that value means "no checksum" and
//! is sent as 0xffff (RFC 768); [`Sum::udp_checksum`] does so. Both forms verify.

use crate::Plain;

/// A running one's-complement sum of 16-bit words in memory order.
///
/// The accumulator holds 64 bits and is folded only at the end: what a packet
/// adds up to stays below 2^47 (see [`Sum::without`]), so thousands of sums can
/// be added to each other or taken away before it could overflow.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct Sum(u64);

impl Sum {
    /// The empty sum.
    pub const fn new() -> Self {
        Self(0)
    }

    /// The sum that a transmitted checksum field stands for.
    #[inline(always)]
    pub const fn of_checksum(checksum: [u8; 2]) -> Self {
        Self((!u16::from_ne_bytes(checksum)) as u64)
    }

    /// Adds one 16-bit word as it lies in memory.
    #[inline(always)]
    pub const fn word(self, word: [u8; 2]) -> Self {
        Self(self.0 + u16::from_ne_bytes(word) as u64)
    }

    /// Adds two adjacent 16-bit words as they lie in memory.
    #[inline(always)]
    pub const fn words(self, words: [u8; 4]) -> Self {
        Self(self.0 + u32::from_ne_bytes(words) as u64)
    }

    /// Adds a number that stands in the packet in network byte order.
    #[inline(always)]
    pub const fn number(self, value: u16) -> Self {
        self.word(value.to_be_bytes())
    }

    /// Takes one 16-bit word away.
    #[inline(always)]
    pub const fn without_word(self, word: [u8; 2]) -> Self {
        Self(self.0 + (!u16::from_ne_bytes(word)) as u64)
    }

    /// Takes a number in network byte order away.
    #[inline(always)]
    pub const fn without_number(self, value: u16) -> Self {
        self.without_word(value.to_be_bytes())
    }

    /// Adds another sum. Both must have started at an even offset.
    #[inline(always)]
    pub const fn combine(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// Takes another sum away, which must be below 2^48: one over less than
    /// 256 KiB, from which nothing was taken away itself. Both must have started
    /// at an even offset.
    #[inline(always)]
    pub const fn without(self, other: Self) -> Self {
        /// A multiple of 65535, so that adding it changes nothing.
        const ZERO: u64 = (1 << 48) - 1;
        Self(self.0 + (ZERO - other.0))
    }

    /// Adds a 16-byte address.
    #[inline(always)]
    pub const fn address(self, address: [u8; 16]) -> Self {
        let [a, b, c, d] = crate::address::address_words(address);
        Self(self.0 + a as u64 + b as u64 + c as u64 + d as u64)
    }

    /// Adds a value, whose length must be a multiple of four bytes.
    #[inline(always)]
    pub const fn value<T: Plain>(mut self, value: &T) -> Self {
        const { assert!(size_of::<T>().is_multiple_of(4)) };
        let words = core::ptr::from_ref(value).cast::<[u8; 4]>();
        let mut index = 0;
        while index < size_of::<T>() / 4 {
            // SAFETY: inside the value, whose bytes are all initialised.
            self = self.words(unsafe { *words.add(index) });
            index += 1;
        }
        self
    }

    /// Adds a run of bytes; an odd last byte is the high half of its word
    /// (RFC 1071 section 4.1), so only the last run may be odd.
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<2>();
        for word in words {
            self = self.word(*word);
        }
        match rest {
            [last] => self.word([*last, 0]),
            _ => self,
        }
    }

    /// The sum of the same bytes at `offset`: at an odd one, the two bytes of each word are swapped
    /// (fact 2 above).
    #[inline(always)]
    pub const fn at(self, offset: usize) -> Self {
        match offset.is_multiple_of(2) {
            true => self,
            false => Self(self.folded().swap_bytes() as u64),
        }
    }

    /// The sum folded to 16 bits, in memory order.
    #[inline(always)]
    #[must_use]
    pub const fn folded(self) -> u16 {
        // 64 bits fold to at most 33, those to at most 18, those to 17, those
        // to 16: each step adds the carry back in (2^16 = 1).
        let sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        sum as u16
    }

    /// The sum as the kernel keeps it: 32 bits in memory order (`__wsum`).
    #[inline(always)]
    #[must_use]
    pub const fn unfolded(self) -> u32 {
        self.folded() as u32
    }

    /// The checksum field for TCP, IPv4 and ICMP: the complement of the sum.
    #[inline(always)]
    #[must_use]
    pub const fn checksum(self) -> [u8; 2] {
        (!self.folded()).to_ne_bytes()
    }

    /// The checksum field for UDP: as [`Sum::checksum`], but zero, which would
    /// say "none", is sent in its other form (RFC 768).
    #[inline(always)]
    #[must_use]
    pub const fn udp_checksum(self) -> [u8; 2] {
        match self.checksum() {
            [0, 0] => [0xff, 0xff],
            checksum => checksum,
        }
    }

    /// The checksum field while only the pseudo-header, of which this is the
    /// sum, is in it and a device shall add the rest (`CHECKSUM_PARTIAL`).
    #[inline(always)]
    #[must_use]
    pub const fn pending(self) -> [u8; 2] {
        self.folded().to_ne_bytes()
    }

    /// Whether a sum over a whole segment, its checksum field and its
    /// pseudo-header is the one of intact data.
    #[must_use]
    pub const fn is_intact(self) -> bool {
        self.folded() == 0xffff
    }
}

/// A running sum of 64-bit words in memory order, for long runs: four
/// instructions a word with its load, and no carry to look after.
///
/// It keeps the sum of all words modulo 2^64 and that of their upper halves. Both
/// sums of halves stay below 2^64 for 2^32 words, and so the sum of the lower ones
/// is the difference.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct LongSum {
    words: u64,
    upper: u64,
}

impl LongSum {
    /// The empty sum.
    pub const fn new() -> Self {
        Self { words: 0, upper: 0 }
    }

    /// Adds eight bytes as they lie in memory.
    #[inline(always)]
    pub const fn long(self, word: u64) -> Self {
        Self {
            words: self.words.wrapping_add(word),
            upper: self.upper + (word >> 32),
        }
    }

    /// The sum of fewer than 2^15 words (256 KiB).
    #[inline(always)]
    pub const fn sum(self) -> Sum {
        Sum(self.words.wrapping_sub(self.upper << 32) + self.upper)
    }
}
