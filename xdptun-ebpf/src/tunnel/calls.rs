//! TCP connections that this host, or a host behind it, opens from an owned port.
//!
//! The kernel may choose an owned port for this host's connections; a NAT router may choose
//! it for hosts behind it. A lookup finds sockets of this host only, and xdptun does not ask
//! connection tracking: aya cannot call kernel functions (kfuncs). So `egress` remembers which
//! connections were opened from owned ports, and `ingress` leaves their segments alone. A flow
//! of the tunnel goes first.

use aya_ebpf::bindings::{__sk_buff, BPF_ANY};
use aya_ebpf::macros::map;
use aya_ebpf::maps::LruHashMap;
use aya_ebpf::programs::TcContext;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::flow::tick::Tick;
use xdptun_common::parse::{Bytes as _, locate};
use xdptun_common::wire::{Flags, Ip, TcpHeader};

use crate::host::clock::now;
use crate::host::socket::{Socket, own_socket};
use crate::packet::access::View;
use crate::packet::link::link_len;
use crate::tunnel::cookie::gave;
use crate::tunnel::rules;
use crate::tunnel::table::find;

/// TCP connections that were opened from an owned port by this host or a host behind it, and
/// when a segment of each left last (`Tick`). LRU: hosts behind this one make entries.
#[map]
pub static CALLS: LruHashMap<FlowKey, u32> = LruHashMap::with_max_entries(4096, 0);

/// How long a connection may be silent: as long as a NAT has to remember one that is open
/// (RFC 5382, REQ-5: 124 minutes), in ticks.
const LIFETIME: u32 = 7_095_337;

/// Remembers a connection when its SYN leaves from an owned port, and when a later segment of
/// it left last. A subprogram that parses again: the common path keeps its stack.
#[inline(never)]
pub fn note<I: Ip>(ctx: &TcContext) {
    let Some(located) = locate::<I>(&View(ctx), link_len()) else {
        return;
    };
    let Some(ports) = located.ports(&View(ctx)) else {
        return;
    };
    let Some(flags) = View(ctx).read::<u8>(located.offset + TcpHeader::FLAGS_OFFSET) else {
        return;
    };
    let flags = Flags(flags);
    let key = located.outbound(ports);
    let tick = Tick::at(now()).0;
    if is_call(flags) {
        if rules::is_peer(key.remote_address()) {
            let _ = CALLS.insert(key, tick, u64::from(BPF_ANY));
        }
        return;
    }
    // Any sender provokes SYN-ACKs, resets and acknowledgements of a flow, from us or from
    // the host. They do not show that the connection lives.
    if flags.intersects(Flags::SYN.with(Flags::RST)) || find(&key).is_some() {
        return;
    }
    if let Some(last) = CALLS.get_ptr_mut(key) {
        // SAFETY: a word of a map value, which stays for the whole program run; CPUs that
        // race write the same time.
        unsafe { last.write_volatile(tick) };
    }
}

/// Whether a segment opens a connection.
#[inline(always)]
const fn is_call(flags: Flags) -> bool {
    flags.contains(Flags::SYN) && !flags.intersects(Flags::ACK.with(Flags::FIN).with(Flags::RST))
}

/// Whether such a connection was opened and sent something lately. If not, it is forgotten:
/// ticks start again, and it would be young once more.
#[inline(always)]
fn is_open(key: &FlowKey) -> bool {
    let Some(last) = CALLS.get_ptr(key) else {
        return false;
    };
    // SAFETY: as in `note`.
    let is_open = Tick::at(now()).since(unsafe { last.read_volatile() }) < LIFETIME;
    if !is_open {
        let _ = CALLS.remove(key);
    }
    is_open
}

/// Whether an inbound segment without a flow belongs to a connection of this host, or of a
/// host behind it. Its TCP header is at `offset`.
///
/// A SYN of the peer is the host's only if the host has a connection with the same addresses
/// and ports; a listening socket does not count. A remembered connection takes no SYN: a host
/// behind this one could keep a peer from connecting. For the same reason an acknowledgement
/// of our SYN-ACK is not the host's.
#[inline(never)]
pub fn takes(skb: *mut __sk_buff, key: &FlowKey, offset: usize) -> bool {
    if own_socket(skb, key) == Socket::Connected {
        return true;
    }
    if !is_open(key) {
        return false;
    }
    let ctx = &TcContext::new(skb);
    // Of a fragment there may be only the ports.
    let flags = Flags(
        View(ctx)
            .read(offset + TcpHeader::FLAGS_OFFSET)
            .unwrap_or(0),
    );
    if is_call(flags) {
        return false;
    }
    if flags.intersects(Flags::SYN.with(Flags::FIN).with(Flags::RST)) || !flags.contains(Flags::ACK)
    {
        return true;
    }
    match View(ctx).read::<u32>(offset + TcpHeader::ACKNOWLEDGMENT_OFFSET) {
        Some(number) => !gave(u32::from_be(number).wrapping_sub(1), key, now()),
        None => true,
    }
}

/// What this host has for a segment, or a host behind it. A subprogram: it is rare, and its
/// callers have no stack to spare.
#[inline(never)]
pub fn host_socket(skb: *mut __sk_buff, key: &FlowKey) -> Socket {
    // Kernel 6.1 takes no memory of the caller of a global function for the key of a map.
    let key = &{ *key };
    if is_open(key) {
        return Socket::Connected;
    }
    own_socket(skb, key)
}
