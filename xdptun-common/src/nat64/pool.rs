//! The IPv4 addresses that clients get, and how one is chosen.

use crate::siphash::siphash24;

/// A network of IPv4 addresses, of which clients get all but the first, the last, and the device's
/// own, the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Pool {
    address: [u8; 4],
    /// How many bits of an address tell hosts apart.
    bits: u32,
}

crate::plain!(Pool: 8);

/// The most bits that tell hosts of a pool apart.
pub const MAX_BITS: u32 = 16;

/// The fewest: one address for a client.
pub const MIN_BITS: u32 = 2;

/// How many addresses are tried for a client: if three of four are taken, one client of a hundred
/// million finds none.
pub const ATTEMPTS: u32 = 64;

impl Pool {
    /// The network of an address with a prefix of so many bits; `None` if it is too large or too
    /// small, or not the first of the network.
    #[must_use]
    pub const fn new(address: [u8; 4], prefix: u32) -> Option<Self> {
        let bits = match 32_u32.checked_sub(prefix) {
            Some(bits @ MIN_BITS..=MAX_BITS) => bits,
            _ => return None,
        };
        match u32::from_be_bytes(address) & ((1 << bits) - 1) {
            0 => Some(Self { address, bits }),
            _ => None,
        }
    }

    /// Its first address, and the length of its prefix in bits.
    #[must_use]
    pub const fn parts(&self) -> ([u8; 4], u32) {
        (self.address, 32 - self.bits)
    }

    /// How many clients can have an address.
    #[must_use]
    pub const fn clients(&self) -> u32 {
        (1 << self.bits) - 3
    }

    /// The device's own address.
    #[must_use]
    pub const fn own(&self) -> [u8; 4] {
        (u32::from_be_bytes(self.address) + 1).to_be_bytes()
    }

    /// Whether it has an address.
    #[inline(always)]
    #[must_use]
    pub const fn has(&self, address: [u8; 4]) -> bool {
        let mask = self.host_mask();
        (u32::from_be_bytes(address) ^ u32::from_be_bytes(self.address)) & !mask == 0
    }

    /// Whether a client can have an address.
    #[inline(always)]
    #[must_use]
    pub const fn lends(&self, address: [u8; 4]) -> bool {
        let mask = self.host_mask();
        let host = u32::from_be_bytes(address) & mask;
        self.has(address) && host > 1 && host != mask
    }

    /// The address to try for a client, at the attempt with this number; `None` if it is one that
    /// no client gets. Who does not know the key cannot foretell it. The first does not change, so
    /// that a client that comes back finds its own.
    #[inline(always)]
    #[must_use]
    pub fn candidate(&self, client: [u8; 16], key: [u64; 2], attempt: u32) -> Option<[u8; 4]> {
        let client = u128::from_ne_bytes(client);
        let hash = siphash24(key, [client as u64, (client >> 64) as u64]);
        // Double hashing. An odd step meets every address before one again.
        let (start, step) = (hash as u32, (hash >> 32) as u32 | 1);
        let host = start.wrapping_add(attempt.wrapping_mul(step)) & self.host_mask();
        let address = (u32::from_be_bytes(self.address) | host).to_be_bytes();
        self.lends(address).then_some(address)
    }

    #[inline(always)]
    const fn host_mask(&self) -> u32 {
        // The verifier knows no bound of the shift.
        (1 << (self.bits & 31)) - 1
    }
}
