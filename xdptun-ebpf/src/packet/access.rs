//! Access to packet memory.
//!
//! Every helper that resizes a packet may move it, so nothing here hands a
//! pointer out: reads copy, writes take the value, and both check the bounds
//! anew.

use core::arch::asm;
use core::mem::{MaybeUninit, offset_of};

use aya_ebpf::bindings::{__sk_buff, xdp_md};
use aya_ebpf::helpers::generated::{bpf_skb_load_bytes, bpf_xdp_get_buff_len};
use aya_ebpf::programs::{TcContext, XdpContext};
use xdptun_common::Plain;
use xdptun_common::parse::Bytes;

/// A packet whose linear part can be read and written.
pub trait Packet {
    /// Address of the first byte.
    fn start(&self) -> usize;
    /// Address after the last byte of the linear part.
    fn end(&self) -> usize;

    /// The record at `offset`, if it lies in the linear part.
    #[inline(always)]
    fn read<T: Plain>(&self, offset: usize) -> Option<T> {
        let at = self.start() + offset;
        if at + size_of::<T>() > self.end() {
            return None;
        }
        // SAFETY: inside the packet by the check above, and `Plain` accepts any
        // bytes. Headers lie at multiples of two only, but an unaligned read
        // would be split into bytes; the CPUs that run this load words from
        // any address, and the verifier of any other CPU refuses the program.
        Some(unsafe { (at as *const T).read() })
    }

    /// Writes a record at `offset`; `None` if it does not lie in the linear part.
    #[inline(always)]
    fn write<T: Plain>(&self, offset: usize, value: T) -> Option<()> {
        let at = self.start() + offset;
        if at + size_of::<T>() > self.end() {
            return None;
        }
        // SAFETY: as in `read`.
        unsafe { (at as *mut T).write(value) };
        Some(())
    }
}

/// Loads a packet pointer from a field of the context. The kernel declares the
/// field 32 bits wide and the verifier widens the load; the compiler knows
/// nothing of that and would move the value about in 32-bit registers, which
/// ends its life as a pointer. So it sees only the 64-bit result.
macro_rules! packet_pointer {
    ($context:expr, $type:ty, $field:ident) => {{
        let pointer: usize;
        // SAFETY: the context is valid for the whole program run.
        unsafe {
            asm!(
                "{pointer} = *(u32 *)({context} + {field})",
                pointer = out(reg) pointer,
                context = in(reg) $context,
                field = const offset_of!($type, $field),
                options(nostack, preserves_flags)
            );
        }
        pointer
    }};
}

impl Packet for TcContext {
    #[inline(always)]
    fn start(&self) -> usize {
        packet_pointer!(self.skb.skb, __sk_buff, data)
    }

    #[inline(always)]
    fn end(&self) -> usize {
        packet_pointer!(self.skb.skb, __sk_buff, data_end)
    }
}

impl Packet for XdpContext {
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
        // the record has.
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
