//! Access to packet memory.
//!
//! Every helper that resizes a packet may move it, so nothing here hands a
//! pointer out: reads copy, writes take the value, and both check the bounds
//! anew.

use core::mem::MaybeUninit;

use aya_ebpf::bindings::{__sk_buff, xdp_md};
use aya_ebpf::helpers::generated::{bpf_skb_load_bytes, bpf_xdp_get_buff_len};
use aya_ebpf::programs::{TcContext, XdpContext};
use xdptun_common::Plain;
use xdptun_common::parse::{Bytes, Chain, Chains};
use xdptun_common::wire::Protocol;

use crate::machine::{load, packet_pointer, store};

/// A packet whose linear part can be read and written.
///
/// # Safety
///
/// All bytes from `start` to `end` are the packet's: they can be read and written as long as no
/// helper moves the packet, and nothing else refers to them.
pub unsafe trait Packet {
    /// Address of the first byte.
    fn start(&self) -> usize;
    /// Address after the last byte of the linear part.
    fn end(&self) -> usize;

    /// The value at `offset`, if it lies in the linear part.
    #[inline(always)]
    fn read<T: Plain>(&self, offset: usize) -> Option<T> {
        let at = self.start() + offset;
        if at + size_of::<T>() > self.end() {
            return None;
        }
        // SAFETY: inside the packet by the check above.
        Some(unsafe { load(at) })
    }

    /// Writes a value at `offset`; `None` if it does not lie in the linear part.
    #[inline(always)]
    fn write<T: Plain>(&self, offset: usize, value: T) -> Option<()> {
        let at = self.start() + offset;
        if at + size_of::<T>() > self.end() {
            return None;
        }
        // SAFETY: as in `read`.
        unsafe { store(at, value) };
        Some(())
    }
}

// SAFETY: the kernel gives a program these two for this.
unsafe impl Packet for TcContext {
    #[inline(always)]
    fn start(&self) -> usize {
        packet_pointer!(self.skb.skb, __sk_buff, data)
    }

    #[inline(always)]
    fn end(&self) -> usize {
        packet_pointer!(self.skb.skb, __sk_buff, data_end)
    }
}

// SAFETY: as above.
unsafe impl Packet for XdpContext {
    #[inline(always)]
    fn start(&self) -> usize {
        packet_pointer!(self.ctx, xdp_md, data)
    }

    #[inline(always)]
    fn end(&self) -> usize {
        packet_pointer!(self.ctx, xdp_md, data_end)
    }
}

/// The length of a packet that may lie in several buffers (kernel 5.18).
#[inline(always)]
pub fn buffers_len(ctx: &XdpContext) -> usize {
    // SAFETY: the context is valid for the whole program run.
    unsafe { bpf_xdp_get_buff_len(ctx.ctx) as usize }
}

/// What the shared parser reads from, the linear part alone. It does not follow extension headers.
pub struct Linear<'a, P>(pub &'a P);

impl<P: Packet> Bytes for Linear<'_, P> {
    #[inline(always)]
    fn read<T: Plain>(&self, offset: usize) -> Option<T> {
        self.0.read(offset)
    }
}

impl<P: Packet> Chains for Linear<'_, P> {
    #[inline(always)]
    fn follow(&self, _start: usize, _first: Protocol) -> Option<Chain> {
        None
    }
}

/// What the shared parser reads from.
pub struct View<'a, P>(pub &'a P);

impl Bytes for View<'_, XdpContext> {
    #[inline(always)]
    fn read<T: Plain>(&self, offset: usize) -> Option<T> {
        self.0.read(offset)
    }
}

/// Beyond the linear part as well, where drivers and forwarding may leave all but
/// the link header: what could not be read would count as not ours.
impl Bytes for View<'_, TcContext> {
    #[inline(always)]
    fn read<T: Plain>(&self, offset: usize) -> Option<T> {
        if let Some(value) = self.0.read(offset) {
            return Some(value);
        }
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: the context is valid, and the helper writes as many bytes as
        // the value has.
        let result = unsafe {
            bpf_skb_load_bytes(
                self.0.skb.skb.cast(),
                offset as u32,
                value.as_mut_ptr().cast(),
                size_of::<T>() as u32,
            )
        };
        if result != 0 {
            return None;
        }
        // SAFETY: written just now, and `Plain` accepts any bytes.
        Some(unsafe { value.assume_init() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::buffer::Buffer;

    #[test]
    fn a_value_lies_in_the_linear_part_or_is_not_touched() {
        let packet = Buffer::new(b"0123456789");
        assert_eq!(packet.read::<[u8; 4]>(6), Some(*b"6789"));
        assert_eq!(packet.read::<[u8; 4]>(7), None);
        assert_eq!(packet.write(6, *b"abcd"), Some(()));
        assert_eq!(packet.write(7, *b"efgh"), None);
        assert_eq!(packet.bytes(), b"012345abcd");
    }

    /// IPv4 addresses lie at odd multiples of two behind an Ethernet header.
    #[test]
    fn a_word_is_read_and_written_wherever_it_lies() {
        for offset in 0..8 {
            let packet = Buffer::new(&[0; 16]);
            packet.write(offset, 0x0123_4567_89ab_cdef_u64).unwrap();
            assert_eq!(packet.read(offset), Some(0x0123_4567_89ab_cdef_u64));
        }
    }
}
