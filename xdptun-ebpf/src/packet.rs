//! Access to packet memory, and what the kernel tells of a packet.
//!
//! Every helper that resizes a packet may move it, so nothing here hands a
//! pointer out: reads copy, writes take the value, and both check the bounds
//! anew.

use core::arch::asm;
use core::mem::{MaybeUninit, offset_of};

use aya_ebpf::bindings::{__sk_buff, BPF_F_INGRESS, xdp_md};
use aya_ebpf::helpers::generated::{
    bpf_check_mtu, bpf_ktime_get_coarse_ns, bpf_redirect, bpf_skb_load_bytes, bpf_xdp_get_buff_len,
};
use aya_ebpf::programs::{TcContext, XdpContext};
use xdptun_common::Plain;
use xdptun_common::parse::Bytes;
use xdptun_common::wire::{EtherType, EthernetHeader, IpVersion};

use crate::maps::{has_ethernet, link_len};

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
        packet_pointer!(self.raw(), __sk_buff, data)
    }

    #[inline(always)]
    fn end(&self) -> usize {
        packet_pointer!(self.raw(), __sk_buff, data_end)
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

/// The IP version of a packet, if it is one.
#[inline(always)]
pub fn skb_ip_version(ctx: &TcContext) -> Option<IpVersion> {
    // The stack has taken a VLAN tag off by now, so this is the inner type.
    // SAFETY: the context is valid for the whole program run.
    ip_version(EtherType(u16::from_be(
        unsafe { (*ctx.raw()).protocol } as u16
    )))
}

/// The IP version of a frame, if it is an untagged IP packet.
#[inline(always)]
pub fn frame_ip_version(ctx: &XdpContext) -> Option<IpVersion> {
    if has_ethernet() {
        return ip_version(ctx.read::<EthernetHeader>(0)?.ether_type());
    }
    match ctx.read::<[u8; 1]>(0)?[0] >> 4 {
        4 => Some(IpVersion::V4),
        6 => Some(IpVersion::V6),
        _ => None,
    }
}

#[inline(always)]
fn ip_version(ether_type: EtherType) -> Option<IpVersion> {
    match ether_type {
        EtherType::IPV4 => Some(IpVersion::V4),
        EtherType::IPV6 => Some(IpVersion::V6),
        _ => None,
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
                self.0.raw().cast(),
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

/// Fields of `__sk_buff` that aya's context does not name.
pub trait Skb {
    /// The kernel's view of the packet.
    fn raw(&self) -> *mut __sk_buff;

    /// The packet mark.
    #[inline(always)]
    fn mark(&self) -> u32 {
        // SAFETY: the context is valid for the whole program run.
        unsafe { (*self.raw()).mark }
    }

    /// Whether the frame was addressed to another host, and seen only because
    /// the interface listens to everything.
    #[inline(always)]
    fn is_for_another_host(&self) -> bool {
        /// `PACKET_OTHERHOST` of `linux/if_packet.h`.
        const OTHER_HOST: u32 = 3;
        // SAFETY: as above.
        unsafe { (*self.raw()).pkt_type == OTHER_HOST }
    }

    /// Whether the frame was addressed to this host alone, and not to many.
    #[inline(always)]
    fn is_for_this_host(&self) -> bool {
        /// `PACKET_HOST` of `linux/if_packet.h`.
        const HOST: u32 = 0;
        // SAFETY: as above.
        unsafe { (*self.raw()).pkt_type == HOST }
    }

    /// Whether a VLAN tag goes with the packet, beside its bytes.
    #[inline(always)]
    fn has_tag(&self) -> bool {
        // SAFETY: as above.
        unsafe { (*self.raw()).vlan_present != 0 }
    }

    /// Whether that tag names a VLAN; number 0 only carries a priority
    /// (IEEE 802.1Q), and the packet counts as untagged.
    #[inline(always)]
    fn is_in_vlan(&self) -> bool {
        const NUMBER: u32 = 0x0fff;
        // SAFETY: as above.
        self.has_tag() && unsafe { (*self.raw()).vlan_tci } & NUMBER != 0
    }

    /// Whether a socket of this host sent the packet.
    #[inline(always)]
    fn has_socket(&self) -> bool {
        // SAFETY: as above.
        !unsafe { (*self.raw()).__bindgen_anon_2.sk }.is_null()
    }

    /// Whether the buffer holds several segments (GSO on the way out, GRO on
    /// the way in).
    #[inline(always)]
    fn is_super_packet(&self) -> bool {
        // SAFETY: as above.
        unsafe { (*self.raw()).gso_size != 0 }
    }
}

impl Skb for TcContext {
    #[inline(always)]
    fn raw(&self) -> *mut __sk_buff {
        self.skb.skb
    }
}

/// Whether the skb is `CHECKSUM_PARTIAL`: a device writes a checksum later, that of
/// the packet or of one inside it. `field` is where a checksum lies; `None` if it
/// cannot be written.
///
/// `bpf_l4_csum_replace` without `BPF_F_PSEUDO_HDR` changes the field unless exactly
/// that is the case (`inet_proto_csum_replace4`).
#[inline(always)]
pub fn device_finishes_a_checksum(ctx: &TcContext, field: usize) -> Option<bool> {
    let before: u16 = ctx.read(field)?;
    ctx.l4_csum_replace(field, 0, 1, 2).ok()?;
    let after: u16 = ctx.read(field)?;
    ctx.write(field, before)?;
    Some(after == before)
}

/// The interface's MTU, if the packet, `growth` bytes longer, exceeds it. The
/// helper asks the device, so a changed MTU counts at once (kernel 5.12).
#[inline(always)]
pub fn exceeded_mtu(ctx: &TcContext, growth: usize) -> Option<u32> {
    // The length as IP counts it: by default the helper would compare with what
    // the device calls its link header, in which some have room for more.
    let mut mtu = ctx.len() - link_len() as u32;
    // SAFETY: interface index 0 is the packet's own device; `mtu` outlives the call.
    match unsafe { bpf_check_mtu(ctx.raw().cast(), 0, &raw mut mtu, growth as i32, 0) } {
        0 => None,
        _ => Some(mtu),
    }
}

/// The verdict that sends the packet out of an interface.
#[inline(always)]
pub fn send_out(ifindex: u32) -> i32 {
    // SAFETY: no pointers are involved.
    unsafe { bpf_redirect(ifindex, 0) as i32 }
}

/// The verdict that hands the packet to this host, as if it had come in by the
/// interface.
#[inline(always)]
pub fn send_up(ifindex: u32) -> i32 {
    // SAFETY: no pointers are involved.
    unsafe { bpf_redirect(ifindex, u64::from(BPF_F_INGRESS)) as i32 }
}

/// The verdict that ends a packet without an error for its sender. `TCX` has no
/// counterpart of `TC_ACT_STOLEN` (it would count as "next", and the datagram
/// would leave undisguised), but a redirect to no interface frees the packet
/// and reports success (`skb_do_redirect`). A drop would reach sockets with
/// `IP_RECVERR`, as QUIC stacks use, as ENOBUFS.
#[inline(always)]
pub fn swallow() -> i32 {
    // SAFETY: no pointers are involved.
    unsafe { bpf_redirect(0, 0) as i32 }
}

/// Nanoseconds of `CLOCK_MONOTONIC`, as of the last tick: a few nanoseconds to
/// read, exact to some milliseconds (kernel 5.11).
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: no pointers are involved.
    unsafe { bpf_ktime_get_coarse_ns() }
}
