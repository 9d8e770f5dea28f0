//! Bytes of a packet, copied to where global functions (the verifier's word) find them.
//!
//! The verifier walks such a function once, and not once for each way that leads to it. But it
//! takes no context, whose type the kernel knows from its own BTF only
//! (`btf_get_prog_ctx_type`), and many kernels are built without.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::helpers::generated::bpf_skb_load_bytes;
use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use xdptun_common::Plain;
use xdptun_common::checksum::{LongSum, Sum};
use xdptun_common::parse::Bytes;

use crate::machine::{load, opaque};
use crate::packet::verifier::bounded;

/// The most bytes that are copied; jumbo frames fit. A bound that the verifier can walk.
pub const MAX_LEN: usize = 16 * 1024;
/// Bytes that are added up in one step.
pub const BLOCK: usize = 64;

/// Room for them, and for zeros to the end of the last block.
#[repr(C, align(8))]
pub struct Room([u8; MAX_LEN + BLOCK]);

/// Between a copy and its use, no other code may make one.
#[map]
pub static COPIED: PerCpuArray<Room> = PerCpuArray::with_max_entries(1, 0);

/// Copies `len` bytes from `offset`, and puts zeros behind them. Tells how many they are, or `None`
/// if they are none, too many, or more than the packet has.
#[inline(always)]
pub fn copy(skb: *mut __sk_buff, offset: usize, len: usize) -> Option<u32> {
    let len = bounded::<MAX_LEN>(len as u32)?;
    let room = COPIED.get_ptr_mut(0)?.cast::<u8>();
    // SAFETY: the context is valid. So many bytes fit into the room, which is this program
    // run's alone, and a block of zeros behind them.
    unsafe {
        if bpf_skb_load_bytes(skb.cast(), offset as u32, room.cast(), len) != 0 {
            return None;
        }
        let end = room.wrapping_add(len as usize).cast::<u64>();
        for word in 0..BLOCK / 8 {
            end.wrapping_add(word).write_unaligned(0);
        }
    }
    Some(len)
}

/// The bytes that were copied last.
pub struct Copied<'a> {
    room: &'a Room,
    len: usize,
}

impl Copied<'_> {
    /// The first `len` of them.
    #[inline(always)]
    pub fn first(len: u32) -> Option<Self> {
        let room = COPIED.get_ptr(0)?;
        Some(Self {
            // SAFETY: a value of a map lives as long as the program, and nothing writes to this
            // one until the next copy.
            room: unsafe { &*room },
            len: len as usize,
        })
    }

    /// Adds them up.
    #[inline(always)]
    pub fn sum(&self) -> Sum {
        let start = self.room.0.as_ptr() as usize;
        let mut sum = LongSum::new();
        for block in 0..MAX_LEN / BLOCK {
            if block * BLOCK >= self.len {
                break;
            }
            for word in 0..BLOCK / 8 {
                // SAFETY: in the room, as both have bounds.
                sum = sum.long(unsafe { load(start + block * BLOCK + word * 8) });
            }
        }
        sum.sum()
    }
}

impl Bytes for Copied<'_> {
    #[inline(always)]
    fn read<T: Plain>(&self, offset: usize) -> Option<T> {
        // So that the verifier sees the bound in the register that is used.
        let offset = opaque(offset as u64) as usize;
        if offset > MAX_LEN - size_of::<T>() || offset + size_of::<T>() > self.len {
            return None;
        }
        // SAFETY: in the room by the check above, and `Plain` accepts any bytes.
        Some(unsafe { load(self.room.0.as_ptr() as usize + offset) })
    }
}

#[cfg(test)]
mod tests {
    use std::boxed::Box;

    use super::*;

    /// What [`copy`] leaves of so many bytes.
    fn room(len: usize) -> Box<Room> {
        let mut room = Box::new(Room([0; MAX_LEN + BLOCK]));
        for (index, byte) in room.0[..len].iter_mut().enumerate() {
            *byte = (index * 37 + index / 256 + 1) as u8;
        }
        // Of an earlier copy, behind the zeros.
        if let Some(old) = room.0.get_mut(len + BLOCK..) {
            old.fill(0xa5);
        }
        room
    }

    #[test]
    fn a_sum_is_of_all_bytes_and_no_other() {
        for len in (0..4 * BLOCK).chain(MAX_LEN - BLOCK..=MAX_LEN) {
            let room = &*room(len);
            let expected = Sum::new().bytes(&room.0[..len]);
            let sum = Copied { room, len }.sum();
            assert_eq!(sum.folded(), expected.folded(), "{len} bytes");
        }
    }

    #[test]
    fn nothing_is_read_behind_the_last_byte() {
        for len in (1..2 * BLOCK).chain([MAX_LEN - 1, MAX_LEN]) {
            let room = &*room(len);
            let copied = Copied { room, len };
            assert_eq!(copied.read(len - 1), Some(room.0[len - 1]), "{len} bytes");
            assert_eq!(copied.read::<u8>(len), None, "{len} bytes");
            assert_eq!(copied.read::<u32>(len - 1), None, "{len} bytes");
            assert_eq!(copied.read::<u32>(usize::MAX - 1), None, "{len} bytes");
        }
    }
}
