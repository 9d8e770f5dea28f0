//! SipHash, with which programs make numbers that nobody without the key can foretell.

/// SipHash-2-4 (Aumasson and Bernstein, 2012) of `N` 64-bit words.
///
/// Written out because it runs in the kernel, where the input must have a fixed
/// length; the tests hold it against the `siphasher` crate.
#[inline(always)]
#[must_use]
pub fn siphash24<const N: usize>(key: [u64; 2], words: [u64; N]) -> u64 {
    let mut v = state(key);
    for word in words {
        absorb::<2>(&mut v, word);
    }
    absorb::<2>(&mut v, last(size_of::<[u64; N]>()));
    v[2] ^= 0xff;
    rounds::<4>(&mut v);
    digest(&v)
}

/// SipHash-1-3 with 128 bits of output, of 12 bytes: a word and half of one, in little-endian order.
#[inline(always)]
#[must_use]
pub fn siphash13_128(key: [u64; 2], word: u64, half: u32) -> [u64; 2] {
    let mut v = state(key);
    v[1] ^= 0xee;
    absorb::<1>(&mut v, word);
    absorb::<1>(&mut v, last(12) | u64::from(half));
    v[2] ^= 0xee;
    rounds::<3>(&mut v);
    let first = digest(&v);
    v[1] ^= 0xdd;
    rounds::<3>(&mut v);
    [first, digest(&v)]
}

#[inline(always)]
const fn state([k0, k1]: [u64; 2]) -> [u64; 4] {
    [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ]
}

/// The last block carries the input length in bytes in its top byte.
#[inline(always)]
const fn last(len: usize) -> u64 {
    (len as u64) << 56
}

#[inline(always)]
const fn digest(v: &[u64; 4]) -> u64 {
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[inline(always)]
fn absorb<const ROUNDS: usize>(v: &mut [u64; 4], word: u64) {
    v[3] ^= word;
    rounds::<ROUNDS>(v);
    v[0] ^= word;
}

#[inline(always)]
fn rounds<const COUNT: usize>(v: &mut [u64; 4]) {
    for _ in 0..COUNT {
        round(v);
    }
}

#[inline(always)]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher as _;

    use proptest::prelude::*;
    use siphasher::sip::SipHasher24;
    use siphasher::sip128::{Hasher128 as _, SipHasher13};

    use super::*;

    proptest! {
        #[test]
        fn siphash_equals_the_published_one(key: [u64; 2], words: [u64; 5]) {
            let oracle = |words: &[u64]| {
                let mut oracle = SipHasher24::new_with_keys(key[0], key[1]);
                for word in words {
                    oracle.write(&word.to_le_bytes());
                }
                oracle.finish()
            };
            prop_assert_eq!(siphash24(key, words), oracle(&words));
            prop_assert_eq!(siphash24(key, [words[0], words[1]]), oracle(&words[..2]));
        }

        #[test]
        fn siphash_of_128_bits_equals_the_published_one(key: [u64; 2], word: u64, half: u32) {
            let mut oracle = SipHasher13::new_with_keys(key[0], key[1]);
            oracle.write(&word.to_le_bytes());
            oracle.write(&half.to_le_bytes());
            let expected = oracle.finish128();
            prop_assert_eq!(siphash13_128(key, word, half), [expected.h1, expected.h2]);
        }
    }
}
