//! The keystream over a payload.

use aya_ebpf::bindings::{__sk_buff, xdp_md};
use aya_ebpf::programs::{TcContext, XdpContext};
use xdptun_common::checksum::Sum;
use xdptun_common::tunnel::veil::{BLOCK, SHORT, VeilKey, covered_len};

use crate::machine::opaque;
use crate::packet::access::Packet;

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

impl Place {
    /// As one word: a function of BPF takes at most five. All headers together are shorter than 256 bytes.
    #[inline(always)]
    pub const fn word(self) -> u64 {
        self.at as u64 & 0xff
            | (self.len as u64 & 0xffff) << 8
            | (self.is_padded as u64) << 24
            | (self.uncovers as u64) << 25
    }

    #[inline(always)]
    fn of_word(word: u64) -> Self {
        Self {
            at: opaque(word) as usize & 0xff,
            len: opaque(word >> 8) as usize & 0xffff,
            is_padded: word >> 24 & 1 != 0,
            uncovers: word >> 25 & 1 != 0,
        }
    }
}

/// The payload could not be reached.
const FAILED: u64 = u64::MAX;

/// The sum that [`apply_at_tc`] and [`apply_at_xdp`] return.
#[inline(always)]
pub fn sum_of(added: u64) -> Option<Sum> {
    (added != FAILED).then(|| Sum::new().words((added as u32).to_ne_bytes()))
}

/// Applies the keystream to a payload. What it adds to the payload's sum then, or
/// [`FAILED`].
#[inline(never)]
pub fn apply_at_tc(packet: *mut __sk_buff, place: u64, nonce: u64, key: &VeilKey) -> u64 {
    apply(&TcContext::new(packet), place, nonce, key)
}

/// The same for XDP.
#[inline(never)]
pub fn apply_at_xdp(packet: *mut xdp_md, place: u64, nonce: u64, key: &VeilKey) -> u64 {
    apply(&XdpContext::new(packet), place, nonce, key)
}

#[inline(always)]
fn apply(packet: &impl Packet, place: u64, nonce: u64, key: &VeilKey) -> u64 {
    let applied = walk(packet, Place::of_word(place), key, nonce);
    applied.map_or(FAILED, |sum| sum.unfolded().into())
}

/// See [`apply_at_tc`]; `None` if the payload is not within reach.
#[inline(always)]
fn walk(packet: &impl Packet, place: Place, key: &VeilKey, nonce: u64) -> Option<Sum> {
    let mut sums = Sums {
        before: Sum::new(),
        after: Sum::new(),
    };
    let mut end = place.len.min(BLOCK);
    for number in 0..SHORT / BLOCK {
        let start = number * BLOCK;
        if start >= end {
            break;
        }
        let mut stream = [0; 2];
        xdptun_keystream(key.0[0], key.0[1], nonce, number as u32, &raw mut stream);
        let at = place.at + start;
        if start + BLOCK > end {
            apply_to_rest(packet, at, end - start, stream, &mut sums)?;
            break;
        }
        let [old, new] = apply_to_long(packet, at, stream[0], &mut sums)?;
        apply_to_long(packet, at + BLOCK / 2, stream[1], &mut sums)?;
        if number == 0 {
            let plain = if place.uncovers { new } else { old };
            let [a, b, c, d, ..] = plain.to_ne_bytes();
            end = covered_len([a, b, c, d], place.len, place.is_padded);
        }
    }
    Some(sums.after.without(sums.before))
}

/// Applies the keystream to the last bytes of a short payload, fewer than a block.
#[inline(always)]
fn apply_to_rest(
    packet: &impl Packet,
    at: usize,
    len: usize,
    stream: [u64; 2],
    sums: &mut Sums,
) -> Option<()> {
    let mut key = stream[0];
    if len & 8 != 0 {
        apply_to_long(packet, at, key, sums)?;
        key = stream[1];
    }
    let [a, b, c, d, e, f, g, _] = key.to_ne_bytes();
    let (mut word, mut byte) = ([a, b], a);
    if len & 4 != 0 {
        let at = at + (len & 8);
        let old: [u8; 4] = packet.read(at)?;
        let new = u32::from_ne_bytes(old) ^ u32::from_ne_bytes([a, b, c, d]);
        packet.write(at, new)?;
        sums.add(old, new.to_ne_bytes());
        (word, byte) = ([e, f], e);
    }
    if len & 2 != 0 {
        let at = at + (len & 12);
        let old: u16 = packet.read(at)?;
        let new = old ^ u16::from_ne_bytes(word);
        packet.write(at, new)?;
        sums.add_word(old.to_ne_bytes(), new.to_ne_bytes());
        byte = if len & 4 != 0 { g } else { c };
    }
    if len & 1 != 0 {
        let at = at + (len & 14);
        let old: u8 = packet.read(at)?;
        let new = old ^ byte;
        packet.write(at, new)?;
        sums.add_word([old, 0], [new, 0]);
    }
    Some(())
}

/// Applies the keystream to eight bytes; what they are then.
#[inline(always)]
fn apply_to_long(packet: &impl Packet, at: usize, key: u64, sums: &mut Sums) -> Option<[u64; 2]> {
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
    fn add(&mut self, old: [u8; 4], new: [u8; 4]) {
        self.before = self.before.words(old);
        self.after = self.after.words(new);
    }

    #[inline(always)]
    fn add_word(&mut self, old: [u8; 2], new: [u8; 2]) {
        self.before = self.before.word(old);
        self.after = self.after.word(new);
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
