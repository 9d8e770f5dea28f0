//! IPv4 addresses in IPv6 ones (RFC 6052 section 2.2).

use crate::address::address_words;

/// An IPv6 prefix, behind which IPv4 addresses stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct Prefix {
    /// The prefix, and zeros.
    address: [u8; 16],
    /// Bits: one of [`LENGTHS`].
    len: u32,
}

crate::plain!(Prefix: 20);

/// The lengths that a prefix may have, in bits.
pub const LENGTHS: [u32; 6] = [32, 40, 48, 56, 64, 96];

/// The octet that stays zero (bits 64 to 71).
const ZERO: usize = 8;

impl Prefix {
    /// `64:ff9b::/96`, for networks that name none (RFC 6052 section 2.1).
    pub const WELL_KNOWN: Self = Self {
        address: [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        len: 96,
    };

    /// The prefix of this address and length in bits; `None` if the length is none of
    /// [`LENGTHS`], or bits behind it or between 64 and 71 are set.
    #[must_use]
    pub fn new(address: [u8; 16], len: u32) -> Option<Self> {
        let prefix = Self { address, len };
        let behind = address.get(len as usize / 8..)?;
        let is_one =
            LENGTHS.contains(&len) && behind.iter().all(|octet| *octet == 0) && address[ZERO] == 0;
        is_one.then_some(prefix)
    }

    /// The same prefix, of which the length is known to be this.
    #[inline(always)]
    #[must_use]
    pub const fn known_as(self, len: u32) -> Self {
        Self { len, ..self }
    }

    /// Its address, and its length in bits.
    #[must_use]
    pub const fn parts(&self) -> ([u8; 16], u32) {
        (self.address, self.len)
    }

    /// Whether it is that for networks that name none.
    #[must_use]
    pub fn is_well_known(&self) -> bool {
        *self == Self::WELL_KNOWN
    }

    /// The IPv6 address that stands for an IPv4 one.
    #[inline(always)]
    #[must_use]
    pub const fn embed(&self, [a, b, c, d]: [u8; 4]) -> [u8; 16] {
        let mut made = self.address;
        // Each place by itself: an index that is not constant needs a check for the verifier.
        match self.len {
            32 => [made[4], made[5], made[6], made[7]] = [a, b, c, d],
            40 => [made[5], made[6], made[7], made[9]] = [a, b, c, d],
            48 => [made[6], made[7], made[9], made[10]] = [a, b, c, d],
            56 => [made[7], made[9], made[10], made[11]] = [a, b, c, d],
            64 => [made[9], made[10], made[11], made[12]] = [a, b, c, d],
            _ => [made[12], made[13], made[14], made[15]] = [a, b, c, d],
        }
        made
    }

    /// The IPv4 address that an IPv6 one stands for; `None` if it is not behind this prefix. What
    /// stands behind the IPv4 address is ignored (RFC 6052 section 2.2).
    #[inline(always)]
    #[must_use]
    pub const fn extract(&self, from: [u8; 16]) -> Option<[u8; 4]> {
        let found = match self.len {
            32 => [from[4], from[5], from[6], from[7]],
            40 => [from[5], from[6], from[7], from[9]],
            48 => [from[6], from[7], from[9], from[10]],
            56 => [from[7], from[9], from[10], from[11]],
            64 => [from[9], from[10], from[11], from[12]],
            _ => [from[12], from[13], from[14], from[15]],
        };
        match self.has(from) {
            true => Some(found),
            false => None,
        }
    }

    /// Whether an IPv6 address is behind this prefix.
    #[inline(always)]
    #[must_use]
    pub const fn has(&self, address: [u8; 16]) -> bool {
        let [a, b, c, _] = address_words(address);
        let [own_a, own_b, own_c, _] = address_words(self.address);
        let [masks_b, masks_c] = match self.len {
            32 => [0, 0],
            40 => [u32::from_ne_bytes([0xff, 0, 0, 0]), 0],
            48 => [u32::from_ne_bytes([0xff, 0xff, 0, 0]), 0],
            56 => [u32::from_ne_bytes([0xff, 0xff, 0xff, 0]), 0],
            64 => [u32::MAX, 0],
            _ => [u32::MAX, u32::MAX],
        };
        a == own_a && b & masks_b == own_b & masks_b && c & masks_c == own_c & masks_c
    }
}

/// Whether an IPv4 address may stand behind [`Prefix::WELL_KNOWN`]: only global ones may
/// (RFC 6052 section 3.1). The others are those of RFC 6890 section 2.2.2 that are not global, and
/// multicast addresses.
#[inline(always)]
#[must_use]
pub const fn is_global([a, b, c, _]: [u8; 4]) -> bool {
    !matches!(
        (a, b, c),
        (0 | 10 | 127 | 224..=255, ..)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 0, 0 | 2)
            | (192, 168, _)
            | (198, 18 | 19, _)
            | (198, 51, 100)
            | (203, 0, 113)
    )
}
