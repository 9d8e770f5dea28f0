//! The options of SYN and SYN-ACK.

use crate::checksum::Sum;

const NOP: u8 = 1;

/// What a SYN offers beyond a maximum segment size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer(pub u32);

impl Offer {
    /// Selective acknowledgements (RFC 2018 section 2).
    pub const SACK: Self = Self(1);
    /// Window scaling (RFC 7323 section 2.2).
    pub const SCALE: Self = Self(2);
    /// Explicit congestion notification (RFC 3168 section 6.1.1).
    pub const ECN: Self = Self(4);
    /// What our own SYN offers by its options.
    pub const OURS: Self = Self(Self::SACK.0 | Self::SCALE.0);

    /// Whether all of `other` is offered.
    #[inline(always)]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both offers together.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// How many bytes the options of a SYN or SYN-ACK with this offer have.
    #[inline(always)]
    #[must_use]
    pub const fn options_len(self) -> usize {
        let count = 1 + self.contains(Self::SACK) as usize + self.contains(Self::SCALE) as usize;
        count * 4
    }
}

/// A walk over the options of a SYN, as Linux reads them (`tcp_parse_options`): one of
/// impossible length ends them, one of unexpected length is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionWalk {
    /// Where the next option starts, in bytes.
    pub at: usize,
    /// What the options before it offer.
    pub offer: Offer,
}

impl OptionWalk {
    /// How many bytes the options of a segment have at most, and so how many steps it
    /// takes (RFC 9293 section 3.1).
    pub const MOST: usize = 40;

    /// Before the first option.
    pub const BEGIN: Self = Self {
        at: 0,
        offer: Offer(0),
    };

    /// Reads an option of the first `len` bytes; `false` if there is none. `byte` gives the
    /// byte at an offset, or `None` if it cannot be read.
    #[inline(always)]
    pub fn step(&mut self, len: usize, byte: impl Fn(usize) -> Option<u8>) -> bool {
        const END: u8 = 0;
        if self.at >= len {
            return false;
        }
        let kind = match byte(self.at) {
            None | Some(END) => return false,
            Some(kind) => kind,
        };
        if kind == NOP {
            self.at += 1;
            return true;
        }
        let size = match byte(self.at + 1) {
            Some(size) if size >= 2 => usize::from(size),
            _ => return false,
        };
        if self.at + size > len {
            return false;
        }
        self.offer = match (kind, size) {
            (3, 3) => self.offer.with(Offer::SCALE),
            (4, 2) => self.offer.with(Offer::SACK),
            _ => self.offer,
        };
        self.at += size;
        true
    }
}

/// The options of a SYN or SYN-ACK in the order in which Linux sends them without
/// timestamps, as words: the maximum segment size, and what was [offered](Offer). Those
/// beyond [`Offer::options_len`] are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct SynOptions(pub [[u8; 4]; 3]);

crate::plain!(SynOptions: 12);

impl SynOptions {
    /// Options that offer `mss` bytes of payload a segment and windows that are shifted by
    /// `scale` bits (RFC 7323 section 2).
    #[inline(always)]
    #[must_use]
    pub const fn new(mss: u16, scale: u8, offer: Offer) -> Self {
        let [high, low] = mss.to_be_bytes();
        let mss = [2, 4, high, low];
        let sack = [NOP, NOP, 4, 2];
        let scale = [NOP, 3, 3, scale];
        let none = [0; 4];
        Self(
            match (offer.contains(Offer::SACK), offer.contains(Offer::SCALE)) {
                (true, true) => [mss, sack, scale],
                (true, false) => [mss, sack, none],
                (false, true) => [mss, scale, none],
                (false, false) => [mss, none, none],
            },
        )
    }

    /// The sum of their bytes.
    #[inline(always)]
    pub const fn sum(&self) -> Sum {
        let [a, b, c] = self.0;
        Sum::new().words(a).words(b).words(c)
    }
}

/// The options of a SYN with timestamps, in the order in which Linux sends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct TimestampedSynOptions([[u8; 4]; 5]);

crate::plain!(TimestampedSynOptions: 20);

impl TimestampedSynOptions {
    /// Length in bytes.
    pub const LEN: usize = size_of::<Self>();
    /// Where SACK permitted and the timestamp option begin.
    pub const TIMESTAMP_OFFSET: usize = 4;
    /// SACK permitted, and the kind and length of the timestamp option.
    const SACK_AND_TIMESTAMP: [u8; 4] = [4, 2, 8, 10];

    /// Options that offer `mss` bytes of payload a segment and windows that are shifted by
    /// `scale` bits, with this TSval and no TSecr (RFC 7323 section 3.2).
    #[inline(always)]
    #[must_use]
    pub const fn new(mss: u16, scale: u8, timestamp: u32) -> Self {
        let [high, low] = mss.to_be_bytes();
        Self([
            [2, 4, high, low],
            Self::SACK_AND_TIMESTAMP,
            timestamp.to_be_bytes(),
            [0; 4],
            [NOP, 3, 3, scale],
        ])
    }

    /// The TSval in these eight bytes of options, those at
    /// [`TimestampedSynOptions::TIMESTAMP_OFFSET`] as they lie in memory; zero if
    /// the options are not in this order.
    #[inline(always)]
    #[must_use]
    pub fn timestamp(eight: u64) -> u32 {
        let [a, b, c, d, timestamp @ ..] = eight.to_ne_bytes();
        if [a, b, c, d] == Self::SACK_AND_TIMESTAMP {
            u32::from_be_bytes(timestamp)
        } else {
            0
        }
    }

    /// The sum of the twenty bytes.
    #[inline(always)]
    pub const fn sum(&self) -> Sum {
        let [mss, kinds, timestamp, echoed, scale] = self.0;
        Sum::new()
            .words(mss)
            .words(kinds)
            .words(timestamp)
            .words(echoed)
            .words(scale)
    }
}
