//! Packet metadata from the kernel: marks, frame type, VLAN tag, interface, socket, GSO size,
//! pending checksum.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::helpers::generated::bpf_skb_change_type;
use aya_ebpf::programs::TcContext;

use crate::machine::forget;
use crate::packet::access::Packet as _;

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

    /// See [`forget`](crate::machine::forget()); the noise is the packet's length.
    #[inline(always)]
    fn forget(&self, number: u32) -> u32 {
        // SAFETY: as above.
        let noise = unsafe { (*self.raw()).len };
        forget(number.into(), noise.into()) as u32
    }

    /// A number that goes with the packet beside its mark: programs and queueing disciplines
    /// may use it.
    #[inline(always)]
    fn tc_index(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.raw()).tc_index }
    }

    /// Sets that number, of 16 bits.
    #[inline(always)]
    fn set_tc_index(&self, number: u32) {
        // SAFETY: as above.
        unsafe { (*self.raw()).tc_index = number }
    }

    /// Sets the queue by which a device with several sends the packet: its number and one, or 0 for
    /// any.
    #[inline(always)]
    fn set_queue_mapping(&self, queue: u32) {
        // Volatile, or the compiler would store the mark beside it at once, and the verifier takes
        // no such store.
        // SAFETY: as above.
        unsafe { (&raw mut (*self.raw()).queue_mapping).write_volatile(queue) }
    }

    /// Lets the host take the packet as its own, whatever the address of its frame.
    #[inline(always)]
    fn take_for_this_host(&self) {
        /// `PACKET_HOST` of `linux/if_packet.h`.
        const HOST: u32 = 0;
        // SAFETY: the context is valid for the whole program run. It fails for other types than
        // the four of received packets, which this one has.
        let _ = unsafe { bpf_skb_change_type(self.raw(), HOST) };
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

    /// Index of the device where the packet is.
    #[inline(always)]
    fn ifindex(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.raw()).ifindex }
    }

    /// Whether the packet came in by an interface, and this host passes it on.
    #[inline(always)]
    fn came_in(&self) -> bool {
        // SAFETY: as above.
        unsafe { (*self.raw()).ingress_ifindex != 0 }
    }

    /// The length of the segments in the buffer, if it holds several.
    #[inline(always)]
    fn segment_len(&self) -> Option<u32> {
        // SAFETY: as above.
        match unsafe { (*self.raw()).gso_size } {
            0 => None,
            len => Some(len),
        }
    }

    /// Whether a socket of this host sent the packet.
    #[inline(always)]
    fn has_socket(&self) -> bool {
        // SAFETY: as above.
        !unsafe { (*self.raw()).__bindgen_anon_2.sk }.is_null()
    }

    /// Whether a UDP or TCP socket of this host that is bound to this port sent the packet.
    #[inline(always)]
    fn is_of_socket(&self, port: u16) -> bool {
        /// `AF_INET` and `AF_INET6` of `linux/socket.h`.
        const FAMILIES: [u32; 2] = [2, 10];
        // SAFETY: as above.
        let socket = unsafe { (*self.raw()).__bindgen_anon_2.sk };
        if socket.is_null() {
            return false;
        }
        // SAFETY: the kernel keeps the socket for as long as the packet; both fields are of
        // any socket.
        let (family, bound) = unsafe { ((*socket).family, (*socket).src_port) };
        FAMILIES.contains(&family) && bound == u32::from(port)
    }

    /// Whether the buffer holds several segments (GSO on the way out, GRO on
    /// the way in).
    #[inline(always)]
    fn is_super_packet(&self) -> bool {
        // SAFETY: as above.
        unsafe { (*self.raw()).gso_size != 0 }
    }

    /// How many segments or datagrams the buffer holds.
    #[inline(always)]
    fn pieces(&self) -> u32 {
        // SAFETY: as above.
        match unsafe { (*self.raw()).gso_segs } {
            0 => 1,
            segments => segments,
        }
    }
}

impl Skb for TcContext {
    #[inline(always)]
    fn raw(&self) -> *mut __sk_buff {
        self.skb.skb
    }
}

/// Whether all of the packet lies in its linear part.
#[inline(always)]
pub fn is_linear(ctx: &TcContext) -> bool {
    ctx.start() + ctx.len() as usize <= ctx.end()
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
