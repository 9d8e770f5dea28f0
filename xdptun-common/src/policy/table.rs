//! The patterns of a rule as the programs search for them.
//!
//! The search looks at every `stride`-th place of the payload alone: a *gram* of up to four bytes
//! there leads to a *bucket*, which names the patterns that have this gram, and where. Each pattern
//! is in the table with the grams of `stride` places one after the other, of which any occurrence
//! has one at a place that is looked at (sampling as in Wu and Manber's shifts, but with a stride
//! that does not depend on the bytes, so that the CPU reads ahead).

/// How many patterns a rule can have.
pub const MAX_PATTERNS: usize = 64;

/// The longest pattern in bytes.
pub const MAX_PATTERN: usize = 128;

/// The largest stride.
pub const MAX_STRIDE: usize = 8;

/// How many places of patterns there are at most.
pub const MAX_ENTRIES: usize = MAX_PATTERNS * MAX_STRIDE;

/// The longest gram in bytes.
pub const MAX_GRAM: usize = 4;

/// Bits of a hash of a gram: a table of 16 KiB, which fits into the first cache.
const HASH_BITS: u32 = 14;

/// How many hashes there are.
const HASHES: usize = 1 << HASH_BITS;

/// How many buckets there are; number 0 stands for none.
pub const BUCKETS: usize = 256;

/// Words of a pattern.
const WORDS: usize = MAX_PATTERN / 8;

/// A gram of a pattern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// The gram, as [`Table::gram`] returns it.
    pub gram: u32,
    /// The number of the pattern.
    pub pattern: u8,
    /// Where in the pattern the gram is, in bytes.
    pub offset: u8,
    /// How long the pattern is, in bytes.
    pub len: u8,
    /// Zero.
    pub reserved: u8,
}

crate::plain!(Entry: 8);

/// The patterns of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Table {
    /// The bucket of each hash, 0 if no pattern has a gram with it.
    pub(super) buckets: [u8; HASHES],
    /// The patterns, padded with zeros; little-endian words. Letters are small if case is ignored.
    pub(super) patterns: [[u64; WORDS]; MAX_PATTERNS],
    /// The entries of all buckets, one bucket after the other.
    pub(super) entries: [Entry; MAX_ENTRIES],
    /// Where the entries of each bucket begin, in those of all; those of the next bucket follow.
    pub(super) starts: [u16; BUCKETS + 4],
    /// The bytes of a gram, in the low ones of a word.
    pub(super) mask: u32,
    /// What is set in the bytes of a gram, so that case does not count: 0 if it does.
    pub(super) fold: u32,
    /// Which places are looked at: every so many bytes. 1, 2, 4 or 8.
    pub(super) stride: u32,
    /// How many patterns there are.
    pub(super) count: u32,
    /// How long each pattern is, in bytes.
    pub(super) lens: [u8; MAX_PATTERNS],
}

crate::plain!(Table: 29272);

impl Table {
    /// Without a pattern: it matches nothing.
    pub const EMPTY: Self = Self {
        buckets: [0; HASHES],
        patterns: [[0; WORDS]; MAX_PATTERNS],
        entries: [Entry {
            gram: 0,
            pattern: 0,
            offset: 0,
            len: 0,
            reserved: 0,
        }; MAX_ENTRIES],
        starts: [0; BUCKETS + 4],
        mask: 0,
        fold: 0,
        stride: 1,
        count: 0,
        lens: [0; MAX_PATTERNS],
    };

    /// The gram at a place where the payload has this little-endian word.
    #[inline(always)]
    #[must_use]
    pub const fn gram(&self, word: u32) -> u32 {
        (word | self.fold) & self.mask
    }

    /// The bucket of a gram, 0 if there is none.
    #[inline(always)]
    #[must_use]
    pub const fn bucket(&self, gram: u32) -> u8 {
        self.buckets[hash(gram)]
    }

    /// Which entries a bucket has: the first, and the one behind the last.
    #[inline(always)]
    #[must_use]
    pub const fn entries_of(&self, bucket: u8) -> (u16, u16) {
        let bucket = bucket as usize;
        (self.starts[bucket], self.starts[bucket + 1])
    }

    /// An entry.
    #[inline(always)]
    #[must_use]
    pub const fn entry(&self, number: usize) -> &Entry {
        &self.entries[number % MAX_ENTRIES]
    }

    /// A word of a pattern.
    #[inline(always)]
    #[must_use]
    pub const fn word(&self, pattern: u8, word: usize) -> u64 {
        self.patterns[pattern as usize % MAX_PATTERNS][word % WORDS]
    }

    /// Which places are looked at: every so many bytes.
    #[inline(always)]
    #[must_use]
    pub const fn stride(&self) -> u32 {
        self.stride
    }

    /// Whether ASCII letters match in either case.
    #[inline(always)]
    #[must_use]
    pub const fn ignores_case(&self) -> bool {
        self.fold != 0
    }
}

/// The hash of a gram (Fibonacci hashing).
#[inline(always)]
pub(super) const fn hash(gram: u32) -> usize {
    (gram.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize
}
