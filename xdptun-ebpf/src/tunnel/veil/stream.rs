//! The keystream over a payload.

use aya_ebpf::bindings::{__sk_buff, xdp_md};
use aya_ebpf::programs::{TcContext, XdpContext};
use xdptun_common::checksum::Sum;
use xdptun_common::tunnel::veil::{BLOCK, SHORT, VeilKey, covered_len};

use crate::machine::opaque;
use crate::packet::access::Packet;

/// The keystream is applied in words; a block has two.
const WORD: usize = size_of::<u64>();

/// Where a payload lies, and what is to be done with it.
#[derive(Clone, Copy)]
pub struct Place {
    /// Where it starts.
    pub at: usize,
    /// Its length in bytes.
    pub len: usize,
    /// Whether its datagram is padded.
    pub is_padded: bool,
    /// Whether it is covered before, and plain afterwards.
    pub uncovers: bool,
}

/// Applies the keystream to a payload. Its plain first bytes say how far it is covered: they are there
/// before it is covered, and after it was uncovered. What this adds to the payload's sum; `None` if the
/// payload is not within reach.
///
/// `first_block` makes the first block of the keystream, all that covers WireGuard data: [`here`] or
/// [`apart`].
#[inline(always)]
pub fn apply(
    packet: &impl Veiled,
    place: Place,
    nonce: u64,
    key: &VeilKey,
    first_block: impl FnOnce(&VeilKey, u64) -> [u64; 2],
) -> Option<Sum> {
    // Two whole words would reach beyond the payload.
    if place.len < BLOCK {
        return packet.apply_to_rest(place.at, place.len, nonce, key);
    }
    let mut sums = Sums::new();
    let [low, high] = first_block(key, nonce);
    let [old, new] = apply_to_word(packet, place.at, low, &mut sums)?;
    apply_to_word(packet, place.at + WORD, high, &mut sums)?;
    let [a, b, c, d, ..] = if place.uncovers { new } else { old }.to_ne_bytes();
    let end = covered_len([a, b, c, d], place.len, place.is_padded);
    if end == BLOCK {
        return Some(sums.added());
    }
    let rest = packet.apply_to_rest(place.at, end, nonce, key)?;
    Some(sums.added().combine(rest))
}

/// The first block of the keystream, inline: a call and its return cost half as much as the block on
/// CPUs with mitigations against Spectre.
#[inline(always)]
pub fn here(key: &VeilKey, nonce: u64) -> [u64; 2] {
    key.block(nonce, 0)
}

/// The same by a call, for callers that have no stack to spare.
#[inline(always)]
pub fn apart(key: &VeilKey, nonce: u64) -> [u64; 2] {
    block(key, nonce, 0)
}

#[inline(always)]
fn block(key: &VeilKey, nonce: u64, number: u32) -> [u64; 2] {
    // Any value but zero: LLVM calls `memset` for that, a loop over bytes.
    let mut stream = [nonce; 2];
    xdptun_keystream(key.0[0], key.0[1], nonce, number, &raw mut stream);
    stream
}

/// The payload could not be reached.
const FAILED: u64 = u64::MAX;

/// The sum that [`apply_at_tc`] and [`apply_at_xdp`] return.
#[inline(always)]
fn sum_of(added: u64) -> Option<Sum> {
    (added != FAILED).then(|| Sum::new().words((added as u32).to_ne_bytes()))
}

/// A packet whose payload can be covered and uncovered.
pub trait Veiled: Packet {
    /// Applies the keystream from the second block on, or from the first if `end` is within it, to the
    /// bytes before `end` of the payload at `at`. What this adds to the payload's sum; `None` if it
    /// is not within reach.
    fn apply_to_rest(&self, at: usize, end: usize, nonce: u64, key: &VeilKey) -> Option<Sum>;
}

impl Veiled for TcContext {
    #[inline(always)]
    fn apply_to_rest(&self, at: usize, end: usize, nonce: u64, key: &VeilKey) -> Option<Sum> {
        sum_of(apply_at_tc(self.skb.skb, at as u64, end as u64, nonce, key))
    }
}

impl Veiled for XdpContext {
    #[inline(always)]
    fn apply_to_rest(&self, at: usize, end: usize, nonce: u64, key: &VeilKey) -> Option<Sum> {
        sum_of(apply_at_xdp(self.ctx, at as u64, end as u64, nonce, key))
    }
}

/// [`Veiled::apply_to_rest`] as a subprogram; [`FAILED`] if it is not within reach.
#[inline(never)]
fn apply_at_tc(packet: *mut __sk_buff, at: u64, end: u64, nonce: u64, key: &VeilKey) -> u64 {
    let applied = walk(&TcContext::new(packet), at, end, nonce, key);
    applied.map_or(FAILED, |sum| sum.unfolded().into())
}

/// The same for XDP.
#[inline(never)]
fn apply_at_xdp(packet: *mut xdp_md, at: u64, end: u64, nonce: u64, key: &VeilKey) -> u64 {
    let applied = walk(&XdpContext::new(packet), at, end, nonce, key);
    applied.map_or(FAILED, |sum| sum.unfolded().into())
}

/// See [`apply_at_tc`]; `None` if it is not within reach.
#[inline(always)]
fn walk(packet: &impl Packet, at: u64, end: u64, nonce: u64, key: &VeilKey) -> Option<Sum> {
    // All headers together are shorter than 256 bytes.
    let (at, end) = (opaque(at) as usize & 0xff, opaque(end) as usize & 0xffff);
    // `apply` has done the first block, if there is one.
    let begin = if end < BLOCK { 0 } else { BLOCK };
    let mut sums = Sums::new();
    for number in 0..SHORT / BLOCK {
        let start = begin + number * BLOCK;
        if start >= end {
            break;
        }
        let stream = block(key, nonce, (start / BLOCK) as u32);
        for (offset, word) in [(start, stream[0]), (start + WORD, stream[1])] {
            if offset + WORD >= end {
                let last = apply_to_last(packet, at + end, end - offset, word)?;
                return Some(sums.added().combine(last));
            }
            apply_to_word(packet, at + offset, word, &mut sums)?;
        }
    }
    Some(sums.added())
}

/// Applies the keystream to the last bytes before `end`, at most a word, by the word that ends there. Its
/// other bytes, which may be the header's, get zeros and stay.
#[inline(always)]
fn apply_to_last(packet: &impl Packet, end: usize, len: usize, key: u64) -> Option<Sum> {
    // New bounds for kernel 6.1: headers and what is covered are below that together.
    let at = opaque((end - WORD) as u64) as usize & (2 * SHORT - 1);
    let mut sums = Sums::new();
    let key = key.to_le() << (8 * (WORD - len));
    apply_to_word(packet, at, u64::from_le(key), &mut sums)?;
    // The word starts at an odd offset exactly if `len` is odd.
    Some(sums.added().at(len))
}

/// Applies the keystream to a word; the word before and after.
#[inline(always)]
fn apply_to_word(packet: &impl Packet, at: usize, key: u64, sums: &mut Sums) -> Option<[u64; 2]> {
    let old: u64 = packet.read(at)?;
    let new = old ^ key;
    packet.write(at, new)?;
    let [a, b, c, d, e, f, g, h] = old.to_ne_bytes();
    let [i, j, k, l, m, n, o, p] = new.to_ne_bytes();
    sums.add([a, b, c, d], [i, j, k, l]);
    sums.add([e, f, g, h], [m, n, o, p]);
    Some([old, new])
}

/// What the bytes added up to before, and do now.
struct Sums {
    before: Sum,
    after: Sum,
}

impl Sums {
    #[inline(always)]
    const fn new() -> Self {
        Self {
            before: Sum::new(),
            after: Sum::new(),
        }
    }

    /// What was added to the sum of the payload.
    #[inline(always)]
    const fn added(self) -> Sum {
        self.after.without(self.before)
    }

    #[inline(always)]
    fn add(&mut self, old: [u8; 4], new: [u8; 4]) {
        self.before = self.before.words(old);
        self.after = self.after.words(new);
    }
}

/// A block of the keystream. A global function (the verifier's word), which the verifier walks once:
/// the hash is long. For all it knows the pointer may be null.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn xdptun_keystream(
    k0: u64,
    k1: u64,
    nonce: u64,
    number: u32,
    stream: *mut [u64; 2],
) -> u32 {
    // SAFETY: either null or a caller's.
    if let Some(stream) = unsafe { stream.as_mut() } {
        *stream = VeilKey([k0, k1]).block(nonce, number);
    }
    0
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::packet::buffer::Buffer;

    impl Veiled for Buffer {
        fn apply_to_rest(&self, at: usize, end: usize, nonce: u64, key: &VeilKey) -> Option<Sum> {
            walk(self, at as u64, end as u64, nonce, key)
        }
    }

    const KEY: VeilKey = VeilKey([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
    const NONCE: u64 = 0x1234_5678_9abc_def0;

    /// Where the payload starts: behind headers, which must stay.
    const AT: usize = 54;

    /// A packet with this payload.
    fn packet(payload: &[u8]) -> Vec<u8> {
        let header = (0..AT).map(|byte| byte as u8);
        header.chain(payload.iter().copied()).collect()
    }

    /// The same with the keystream over it, byte by byte.
    fn covered(payload: &[u8], is_padded: bool) -> Vec<u8> {
        let mut first = [0; 4];
        let known = payload.len().min(first.len());
        first[..known].copy_from_slice(&payload[..known]);
        let mut covered = payload.to_vec();
        let end = covered_len(first, payload.len(), is_padded);
        for (number, block) in (0..).zip(covered[..end].chunks_mut(BLOCK)) {
            let stream = KEY.block(NONCE, number).map(u64::to_ne_bytes);
            for (byte, key) in block.iter_mut().zip(stream.as_flattened()) {
                *byte ^= key;
            }
        }
        covered
    }

    /// Covers this payload, and uncovers it again.
    fn there_and_back(plain: &[u8], is_padded: bool, first: fn(&VeilKey, u64) -> [u64; 2]) {
        let under = covered(plain, is_padded);
        for (before, after, uncovers) in [(plain, &*under, false), (&under, plain, true)] {
            let buffer = Buffer::new(&packet(before));
            let place = Place {
                at: AT,
                len: plain.len(),
                is_padded,
                uncovers,
            };
            let added = apply(&buffer, place, NONCE, &KEY, first).unwrap();
            let case = std::format!("{before:x?}, padded: {is_padded}, uncovers: {uncovers}");
            assert_eq!(buffer.bytes(), packet(after), "{case}");
            let sum = Sum::new().bytes(&packet(before)).combine(added);
            let expected = Sum::new().bytes(&packet(after));
            assert_eq!(sum.folded(), expected.folded(), "{case}");
        }
    }

    #[test]
    fn the_keystream_reaches_as_far_as_it_should() {
        for first in [[4, 0, 0, 0], [1, 0, 0, 0], [0x40; 4], [0xc3; 4]] {
            for len in 0..SHORT + BLOCK {
                let rest = (0..len).map(|byte| byte as u8);
                let plain: Vec<u8> = first.into_iter().chain(rest).take(len).collect();
                for is_padded in [false, true] {
                    there_and_back(&plain, is_padded, here);
                    there_and_back(&plain, is_padded, apart);
                }
            }
        }
    }

    #[test]
    fn a_payload_beyond_the_packet_is_refused() {
        for len in [1, BLOCK, 40] {
            let bytes = packet(&[0x40; 40][..len - 1]);
            let buffer = Buffer::new(&bytes);
            let place = Place {
                at: AT,
                len,
                is_padded: false,
                uncovers: false,
            };
            assert!(
                apply(&buffer, place, NONCE, &KEY, here).is_none(),
                "{len} bytes"
            );
        }
    }
}
