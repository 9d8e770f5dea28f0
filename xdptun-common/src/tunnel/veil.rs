//! The veil over payloads hides the bytes and lengths by which an observer recognises the protocol
//! inside. It does not protect the payload: that protocol does.
//!
//! A keystream lies over the first bytes of each segment's payload. Its key is made of the secret,
//! its nonce is the segment's sequence number and acknowledgement number: both begin at the random
//! initial numbers of the flow and go on with its data, so nothing has to be kept of the flow, and
//! either end finds them in the segment itself.
//!
//! Which bytes it covers, both ends see in the plain ones ([`covered_len`]): those that do not look
//! random. A datagram that is to be padded gets zeros and its length behind it, and is covered
//! whole:
//!
//! ```text
//! +------------------+-----------------+-----------------------------+
//! | datagram         | zeros           | its length, 16 bits         |
//! +------------------+-----------------+-----------------------------+
//! ```
//!
//! A bit of the [window](super::window) tells that of a segment.
//!
//! Most long segments have no PSH under the veil, as those of a bulk transfer ([`pushes`]), so GRO of
//! the receiver merges them, and xdptun has to split them again.

use crate::siphash::siphash13_128;

/// The key of the keystream, derived from the secret that both hosts know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct VeilKey(pub [u64; 2]);

crate::plain!(VeilKey: 16);

/// What the programs are told of a veil that pads datagrams up to `most` bytes; peers may have keys
/// of their own. 0 says that there is none.
#[must_use]
pub const fn word(most: u32, by_peer: bool) -> u32 {
    (most + 1) | if by_peer { BY_PEER } else { 0 }
}

/// The bit that says that peers have keys of their own.
const BY_PEER: u32 = 1 << 16;

/// Whether peers may have keys of their own.
#[inline(always)]
#[must_use]
pub const fn is_by_peer(word: u32) -> bool {
    word & BY_PEER != 0
}

/// The length in bytes up to which datagrams are padded.
#[inline(always)]
#[must_use]
pub const fn most_padded(word: u32) -> usize {
    (word & !BY_PEER).saturating_sub(1) as usize
}

/// Bytes of the keystream that are made at once.
pub const BLOCK: usize = 16;

impl VeilKey {
    /// One block of the keystream of a segment, as it lies in memory: SipHash-1-3 with 128 bits of
    /// output, of the nonce and the block's number, 12 bytes in little-endian order.
    #[inline(always)]
    #[must_use]
    pub fn block(&self, nonce: u64, number: u32) -> [u64; 2] {
        siphash13_128(self.0, nonce, number).map(|word| u64::from_ne_bytes(word.to_le_bytes()))
    }
}

/// The nonce of a segment with these numbers.
#[inline(always)]
#[must_use]
pub const fn nonce(sequence: u32, acknowledgment: u32) -> u64 {
    (sequence as u64) << 32 | acknowledgment as u64
}

/// The veil covers payloads up to this length, in bytes, whole, except WireGuard data: handshakes have
/// fields of zeros at their ends too. A multiple of [`BLOCK`].
pub const SHORT: usize = 256;

/// How many bytes of a longer payload are covered: the header of QUIC's handshake, with both
/// connection IDs (RFC 9000 section 17.2). A multiple of [`BLOCK`].
pub const LONG: usize = 64;

/// How many bytes of QUIC data are covered: connection ID and packet number (RFC 9000 section 17.3).
/// OpenVPN's data begins with the same two bits, and has its peer ID and packet number within.
const SHORT_HEADER: usize = 32;

/// How many bytes of WireGuard data are covered: type, receiver and counter.
const WIREGUARD: usize = BLOCK;

/// How many bytes of a payload of `len` bytes are covered; `first` are its first four, in the plain.
#[inline(always)]
#[must_use]
pub const fn covered_len(first: [u8; 4], len: usize, padded: bool) -> usize {
    const DATA_OF_WIREGUARD: [u8; 4] = [4, 0, 0, 0];
    let is_wireguard = u32::from_ne_bytes(first) == u32::from_ne_bytes(DATA_OF_WIREGUARD);
    if is_wireguard && !padded && len >= WIREGUARD {
        return WIREGUARD;
    }
    if len <= SHORT {
        return len;
    }
    match first[0] >> 6 {
        0b01 => SHORT_HEADER,
        _ => LONG,
    }
}

/// Whether a segment with `len` bytes of payload has PSH. TCP sets it in the last segment of a program's
/// write (RFC 9293 section 3.9.1.2). This imitates one that writes 64 KiB at a time: a segment has PSH if
/// it is short, or if it has the last byte of a block of 64 KiB of sequence numbers.
#[inline(always)]
#[must_use]
pub const fn pushes(sequence: u32, len: usize) -> bool {
    const WRITE: u32 = 1 << 16;
    len < SHORTEST_FULL || (sequence % WRITE) as usize + len >= WRITE as usize
}

/// The shortest payload that looks like a full segment of a bulk transfer, in bytes: the least size of
/// a datagram that every path of QUIC takes (RFC 9000 section 14).
const SHORTEST_FULL: usize = 1200;

/// The most bytes that datagrams can be padded to.
pub const MOST_PADDED: usize = SHORT;

/// Length of the field that tells the length of a padded datagram.
pub const TRAILER: usize = size_of::<u16>();

/// The length of a padded datagram of `len` bytes, if those up to `most` bytes are padded: any
/// that fits, by `random`.
#[inline(always)]
#[must_use]
pub const fn padded_len(len: usize, most: usize, random: u32) -> Option<usize> {
    let least = len + TRAILER;
    if least > most {
        return None;
    }
    let choices = (most - least + 1) as u64;
    Some(least + ((random as u64 * choices) >> 32) as usize)
}

/// The length of the datagram in a padded payload of `len` bytes, which ends in this field.
#[inline(always)]
#[must_use]
pub const fn unpadded_len(len: usize, trailer: [u8; TRAILER]) -> Option<usize> {
    let datagram = u16::from_be_bytes(trailer) as usize;
    if datagram + TRAILER > len {
        return None;
    }
    Some(datagram)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const QUIC: [u8; 4] = [0x4a, 1, 2, 3];

    #[test]
    fn what_does_not_look_random_is_covered() {
        for (first, len, padded, expected) in [
            // A keepalive of WireGuard, its data, and data that is padded.
            ([4, 0, 0, 0], 32, false, 16),
            ([4, 0, 0, 0], 1452, false, 16),
            ([4, 0, 0, 0], 200, true, 200),
            // Not WireGuard's, and too short to be.
            ([4, 0, 0, 1], 1452, false, 64),
            ([4, 0, 0, 0], 8, false, 8),
            // Handshakes of WireGuard, whose second MAC is zero mostly.
            ([1, 0, 0, 0], 148, false, 148),
            ([2, 0, 0, 0], 92, false, 92),
            // Handshake and data of QUIC.
            ([0xc3, 0, 0, 0], 1200, false, 64),
            (QUIC, 1200, false, 32),
            (QUIC, 41, false, 41),
            ([0; 4], 0, false, 0),
            ([0; 4], SHORT, false, SHORT),
            ([0; 4], SHORT + 1, false, LONG),
        ] {
            assert_eq!(
                covered_len(first, len, padded),
                expected,
                "{first:x?} {len}"
            );
        }
    }

    #[test]
    fn a_write_of_64_kib_is_pushed_once() {
        for (sequence, len, pushed) in [
            (0, 0, true),
            (0, 1199, true),
            (0, 1200, false),
            (0xffff - 1200, 1200, false),
            (0x1_0000 - 1200, 1200, true),
            (0xffff_ffff, 1452, true),
            (0x1234_0000, 0xffff, false),
            (0x1234_0001, 0xffff, true),
        ] {
            assert_eq!(pushes(sequence, len), pushed, "{sequence:#x}, {len} bytes");
        }
    }

    proptest! {
        #[test]
        fn a_padded_length_leads_back(len in 0..300_usize, most in 0..=MOST_PADDED, random: u32) {
            match padded_len(len, most, random) {
                None => prop_assert!(len + TRAILER > most),
                Some(padded) => {
                    prop_assert!((len + TRAILER..=most).contains(&padded));
                    prop_assert_eq!(unpadded_len(padded, (len as u16).to_be_bytes()), Some(len));
                }
            }
        }

        #[test]
        fn a_field_that_is_no_length_is_refused(len in 0..=MOST_PADDED, trailer: u16) {
            let unpadded = unpadded_len(len, trailer.to_be_bytes());
            prop_assert_eq!(unpadded.is_some(), usize::from(trailer) + TRAILER <= len);
        }
    }

    #[test]
    fn every_length_that_fits_is_chosen() {
        let chosen = (0..=255).map(|high| padded_len(32, 64, high << 24).unwrap());
        assert_eq!(chosen.collect::<BTreeSet<_>>(), (34..=64).collect());
    }
}
