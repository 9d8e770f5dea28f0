//! What is translated: NAPT44. User space writes this map.

use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::macros::map;
use aya_ebpf::maps::HashMap;
use aya_ebpf::programs::TcContext;
use xdptun_common::gateway::nat::Nat;
use xdptun_common::gateway::tuple::Side;
use xdptun_common::member::ROWS;
use xdptun_common::parse::Bytes as _;
use xdptun_common::wire::{Ip as _, Ipv4Header};

use crate::gateway::sessions::Found;
use crate::host::interface::interface;
use crate::packet::access::View;
use crate::packet::link::link_len;
use crate::packet::skb::Skb as _;

/// The interfaces that translate, by index. Not preallocated: the kernel would give a row that is
/// replaced to another interface while a program still reads it.
#[map]
pub static NATS: HashMap<u32, Nat> = HashMap::with_max_entries(2 * ROWS, BPF_F_NO_PREALLOC);

/// What an interface translates, if it does.
#[inline(always)]
pub fn nat_of(interface: u32) -> Option<&'static Nat> {
    // SAFETY: a map value, which user space replaces as a whole, and which stays readable for the
    // whole program run.
    NATS.get_ptr(interface).map(|nat| unsafe { &*nat })
}

/// Whether a packet of a session may get the end that the session has for it. One that leaves by
/// an interface with another outside address, or whose address has changed, may not.
#[inline(always)]
pub fn is_current(ctx: &TcContext, side: Side, found: Found) -> bool {
    if side == Side::In || !found.marks().is_bound() {
        return true;
    }
    // An interface that translates nothing has packets between two inside hosts.
    nat_of(interface(ctx).index()).is_none_or(|nat| nat.outside == found.to().address())
}

/// Whether an IPv4 packet that leaves as it is has the address of an inside host.
#[inline(never)]
pub fn shows_inside(ctx: &TcContext) -> bool {
    is_about(ctx, |nat, ip| nat.is_inside(ip.source()))
}

/// Whether an IPv4 packet that came in as it is goes to an address of the pool. Its sender is
/// outside and knows the address from nobody; what answers a client goes to the outside address.
#[inline(never)]
pub fn reaches_pool(ctx: &TcContext) -> bool {
    is_about(ctx, |nat, ip| nat.is_of_pool(ip.destination()))
}

/// Whether something holds of what the interface translates and of the header of a packet there.
#[inline(always)]
fn is_about(ctx: &TcContext, holds: impl Fn(&Nat, &Ipv4Header) -> bool) -> bool {
    let Some(nat) = nat_of(interface(ctx).index()) else {
        return false;
    };
    let ip: Option<Ipv4Header> = View(ctx).read(link_len());
    !ctx.is_in_vlan() && ip.is_some_and(|ip| holds(nat, &ip))
}
