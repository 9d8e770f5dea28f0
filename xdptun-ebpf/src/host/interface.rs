//! The interface that the packet at hand came by or leaves by.

use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use aya_ebpf::programs::{TcContext, XdpContext};
use xdptun_common::attachment::IngressMode;
use xdptun_common::member::{Member, PROBES, SLOTS, slot};

use crate::machine::opaque;
use crate::packet::skb::Skb as _;

/// The interfaces that the programs are attached to, as [`slot`] says. User space changes the
/// words of an entry that is in use one by one.
#[map]
pub static INTERFACES: Array<Member> = Array::with_max_entries(SLOTS, 0);

/// The place of a device of which nothing is known: no slot, and the first row.
const UNKNOWN: u32 = SLOTS;

/// The MTU of a device of which nothing is known: IPv6 requires as much (RFC 8200 section 5).
const LEAST_MTU: u32 = 1280;

/// Finds the interface of the packet, and notes it in the packet's control words, which
/// belong to whichever program runs. To be called before any other function here. One
/// look-up for each packet: behind the branch of each, the verifier walks all that follows
/// twice.
///
/// Programs may run on a device that user space has not told them of: one that was moved to
/// another network namespace, or a part of a bond, which has its XDP program. They do their
/// work there as well, so that nothing leaves or enters undisguised.
#[inline(always)]
pub fn enter(ctx: &TcContext) {
    let Interface { index, place } = Interface::met_at(device(ctx));
    // SAFETY: the context is valid for the whole program run.
    unsafe {
        (*ctx.raw()).cb[1] = place;
        (*ctx.raw()).cb[4] = index;
    }
}

/// Index of the device where the packet is.
#[inline(always)]
pub fn device(ctx: &TcContext) -> u32 {
    // SAFETY: the context is valid for the whole program run.
    loaded(unsafe { (*ctx.raw()).ifindex })
}

/// The same value, loaded here. The compiler would choose between its address and that of a
/// map's value, and load from what it chose; the verifier takes no such address of a context.
#[inline(always)]
fn loaded(value: u32) -> u32 {
    opaque(value.into()) as u32
}

/// The interface of a packet that [`enter`] was called for.
#[inline(always)]
pub fn interface(ctx: &TcContext) -> Interface {
    // SAFETY: the context is valid for the whole program run.
    unsafe {
        Interface {
            index: (*ctx.raw()).cb[4],
            place: (*ctx.raw()).cb[1],
        }
    }
}

/// The interface of a frame at XDP.
#[inline(always)]
pub fn interface_of_frame(ctx: &XdpContext) -> Interface {
    // SAFETY: the context is valid for the whole program run.
    Interface::met_at(loaded(unsafe { (*ctx.ctx).ingress_ifindex }))
}

/// The interface of a packet.
#[derive(Clone, Copy)]
pub struct Interface {
    index: u32,
    /// Its slot in the lower half, its row of the counters in the upper.
    place: u32,
}

impl Interface {
    /// The interface whose packets are met at a device.
    #[inline(always)]
    fn met_at(device: u32) -> Self {
        for probe in 0..PROBES {
            let slot = slot(device, probe);
            if let Some(member) = INTERFACES.get(slot)
                && member.met_at == device
            {
                return Self {
                    index: member.index,
                    place: slot | (member.row << 16),
                };
            }
        }
        Self {
            index: device,
            place: UNKNOWN,
        }
    }

    /// What user space has told of it, `unknown` if nothing.
    #[inline(always)]
    fn word(self, unknown: u32, word: impl FnOnce(&Member) -> u32) -> u32 {
        INTERFACES.get(self.place & 0xffff).map_or(unknown, word)
    }

    /// Its index.
    #[inline(always)]
    pub fn index(self) -> u32 {
        self.index
    }

    /// Its row of the counters; an unknown device counts in the first.
    #[inline(always)]
    pub fn row(self) -> u32 {
        self.place >> 16
    }

    /// Its MTU when it was attached.
    #[inline(always)]
    pub fn mtu(self) -> u32 {
        self.word(LEAST_MTU, |member| member.mtu)
    }

    /// The near end of its splitter, to which super-packets go, if there is one.
    #[inline(always)]
    pub fn near_end(self) -> Option<u32> {
        match self.word(0, |member| member.near_end) {
            0 => None,
            ifindex => Some(ifindex),
        }
    }

    /// The far end of its splitter, to which datagrams for the joiner go, if any may.
    #[inline(always)]
    pub fn far_end(self) -> Option<u32> {
        match self.word(0, |member| member.far_end) {
            0 => None,
            ifindex => Some(ifindex),
        }
    }

    /// Which program restores inbound data. If XDP does, it has refused plain UDP as well.
    #[inline(always)]
    pub fn ingress(self) -> IngressMode {
        match self.word(0, |member| member.ingress) {
            0 => IngressMode::Tc,
            1 => IngressMode::Xdp,
            _ => IngressMode::XdpGeneric,
        }
    }
}
