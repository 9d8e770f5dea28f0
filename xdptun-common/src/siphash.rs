//! SipHash, with which programs make numbers that nobody without the key can foretell.

/// SipHash-2-4 (Aumasson and Bernstein, 2012) of `N` 64-bit words.
///
/// Written out because it runs in the kernel, where the input must have a fixed
/// length; the tests hold it against the `siphasher` crate.
#[inline(always)]
#[must_use]
pub fn siphash24<const N: usize>(key: [u64; 2], words: [u64; N]) -> u64 {
    let [k0, k1] = key;
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    for word in words {
        absorb(&mut v, word);
    }
    // The last block carries the input length in bytes in its top byte.
    absorb(&mut v, (size_of::<[u64; N]>() as u64) << 56);
    v[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[inline(always)]
fn absorb(v: &mut [u64; 4], word: u64) {
    v[3] ^= word;
    round(v);
    round(v);
    v[0] ^= word;
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
    }
}
