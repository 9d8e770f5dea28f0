//! The interface that the packet at hand came by or leaves by.

use aya_ebpf::macros::map;
use aya_ebpf::maps::Array;
use aya_ebpf::programs::{TcContext, XdpContext};
use xdptun_common::attachment::IngressMode;
use xdptun_common::member::{Member, PROBES, SLOTS, slot};

use crate::machine::opaque;
use crate::packet::skb::Skb as _;

/// The interfaces that the programs are attached to, as [`slot`] says.
#[map]
pub static INTERFACES: Array<Member> = Array::with_max_entries(SLOTS, 0);

/// What no slot has.
const UNKNOWN: u32 = SLOTS;

/// The MTU of a device of which nothing is known: IPv6 requires as much (RFC 8200 section 5).
const LEAST_MTU: u32 = 1280;

/// Finds the interface of the packet, and notes its slot in the packet's control words, which
/// belong to whichever program runs. To be called before any other function here.
///
/// Programs may run on a device that user space has not told them of: one that was moved to
/// another network namespace, or a part of a bond, which has its XDP program. They do their
/// work there as well, so that nothing leaves or enters undisguised.
#[inline(always)]
pub fn enter(ctx: &TcContext) {
    // SAFETY: the context is valid for the whole program run.
    let slot = find(device(ctx));
    // SAFETY: the context is valid for the whole program run.
    unsafe { (*ctx.raw()).cb[1] = slot.unwrap_or(UNKNOWN) }
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
    let slot = unsafe { (*ctx.raw()).cb[1] };
    Interface {
        member: INTERFACES.get_ptr(slot),
        device: device(ctx),
    }
}

/// The interface of a frame at XDP.
#[inline(always)]
pub fn interface_of_frame(ctx: &XdpContext) -> Interface {
    // SAFETY: the context is valid for the whole program run.
    let device = loaded(unsafe { (*ctx.ctx).ingress_ifindex });
    Interface {
        member: INTERFACES.get_ptr(find(device).unwrap_or(UNKNOWN)),
        device,
    }
}

/// The slot of a device.
#[inline(always)]
fn find(met_at: u32) -> Option<u32> {
    (0..PROBES).map(|probe| slot(met_at, probe)).find(|slot| {
        INTERFACES
            .get(*slot)
            .is_some_and(|member| member.met_at == met_at)
    })
}

/// The interface of a packet.
#[derive(Clone, Copy)]
pub struct Interface {
    member: Option<*const Member>,
    /// Index of the device where the packet is.
    device: u32,
}

impl Interface {
    #[inline(always)]
    fn word(self, unknown: u32, word: impl FnOnce(&Member) -> u32) -> u32 {
        // SAFETY: an entry of an array, which lasts as long as the program runs. User space
        // changes the words of an entry that is in use one by one.
        self.member
            .map_or(unknown, |member| word(unsafe { &*member }))
    }

    /// Its index.
    #[inline(always)]
    pub fn index(self) -> u32 {
        self.word(self.device, |member| member.index)
    }

    /// Its MTU when it was attached.
    #[inline(always)]
    pub fn mtu(self) -> u32 {
        self.word(LEAST_MTU, |member| member.mtu)
    }

    /// The near end of its splitter pair, if there is one.
    #[inline(always)]
    pub fn splitter(self) -> Option<u32> {
        match self.word(0, |member| member.splitter) {
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

    /// Its row of the counters; an unknown device counts in the first.
    #[inline(always)]
    pub fn row(self) -> u32 {
        self.word(0, |member| member.row)
    }
}
