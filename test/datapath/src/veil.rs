//! The veil over payloads, from its description alone.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher13};

use xdptun_common::tunnel::veil::VeilKey;

/// A datagram of these bytes, padded to `len` bytes.
#[must_use]
pub fn padded(datagram: &[u8], len: usize) -> Vec<u8> {
    let mut bytes = datagram.to_vec();
    bytes.resize(len - 2, 0);
    bytes.extend((datagram.len() as u16).to_be_bytes());
    bytes
}

/// The payload of a segment with these numbers under the veil of a key.
#[must_use]
pub fn veiled(key: VeilKey, plain: &[u8], numbers: (u32, u32), is_padded: bool) -> Vec<u8> {
    let covered = match plain {
        [4, 0, 0, 0, ..] if !is_padded && plain.len() >= 16 => 16,
        _ if plain.len() <= 256 => plain.len(),
        [first, ..] if first & 0xc0 == 0x40 => 32,
        _ => 64,
    };
    let stream = (0_u32..).flat_map(|number| block(key, numbers, number));
    let (under, rest) = plain.split_at(covered);
    let under = under.iter().zip(stream).map(|(byte, key)| byte ^ key);
    under.chain(rest.iter().copied()).collect()
}

fn block(VeilKey([k0, k1]): VeilKey, numbers: (u32, u32), number: u32) -> [u8; 16] {
    let (sequence, acknowledgment) = numbers;
    let mut hash = SipHasher13::new_with_keys(k0, k1);
    hash.write(&acknowledgment.to_le_bytes());
    hash.write(&sequence.to_le_bytes());
    hash.write(&number.to_le_bytes());
    let hash = hash.finish128();
    let halves = [hash.h1.to_le_bytes(), hash.h2.to_le_bytes()];
    halves.concat().try_into().expect("16 bytes")
}
