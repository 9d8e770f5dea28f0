//! Which socket of this host would get a packet.

use aya_ebpf::bindings::{__sk_buff, BPF_F_CURRENT_NETNS};
use aya_ebpf::helpers::generated::{bpf_sk_lookup_udp, bpf_sk_release, bpf_skc_lookup_tcp};
use xdptun_common::flow::key::FlowKey;

/// What the host has for a segment.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Socket {
    /// Nothing.
    Absent = 0,
    /// A socket that waits for connections.
    Listening = 1,
    /// A connection: new, open, or in TIME-WAIT. A function may say so of connections of
    /// hosts behind this one as well.
    Connected = 2,
}

/// `TCP_LISTEN` of the kernel's `tcp_states.h`.
const TCP_LISTEN: u32 = 10;

/// `TCP_ESTABLISHED`, the state of a UDP socket that is connected to a peer as well.
const TCP_ESTABLISHED: u32 = 1;

/// Addresses and ports of an IPv4 segment as the kernel asks for them
/// (`struct bpf_sock_tuple`), all big-endian. For IPv6 that is the flow from the
/// other end.
#[repr(C, align(4))]
struct Ipv4Tuple {
    source: [u8; 4],
    destination: [u8; 4],
    source_port: [u8; 2],
    destination_port: [u8; 2],
}

impl Ipv4Tuple {
    #[inline(always)]
    fn of(key: &FlowKey) -> Self {
        let last = |[.., a, b, c, d]: [u8; 16]| [a, b, c, d];
        Self {
            source: last(key.remote_address()),
            destination: last(key.local_address()),
            source_port: key.remote_port().to_be_bytes(),
            destination_port: key.local_port().to_be_bytes(),
        }
    }
}

/// Looks for a TCP socket in the interface's network namespace.
#[inline(always)]
pub fn own_socket(skb: *mut __sk_buff, key: &FlowKey) -> Socket {
    if key.is_ipv4() {
        look_up(skb, &Ipv4Tuple::of(key))
    } else {
        look_up(skb, &key.reversed())
    }
}

/// Looks for the UDP socket in the interface's network namespace that would get a datagram.
#[inline(always)]
pub fn udp_socket(skb: *mut __sk_buff, key: &FlowKey) -> Socket {
    if key.is_ipv4() {
        look_up_udp(skb, &Ipv4Tuple::of(key))
    } else {
        look_up_udp(skb, &key.reversed())
    }
}

#[inline(always)]
fn look_up_udp<T>(skb: *mut __sk_buff, tuple: &T) -> Socket {
    let tuple_ptr: *const T = tuple;
    // SAFETY: as in `look_up`.
    unsafe {
        let socket = bpf_sk_lookup_udp(
            skb.cast(),
            tuple_ptr.cast_mut().cast(),
            size_of::<T>() as u32,
            i64::from(BPF_F_CURRENT_NETNS) as u64,
            0,
        );
        if socket.is_null() {
            return Socket::Absent;
        }
        let state = (&raw const (*socket).state).read_volatile();
        bpf_sk_release(socket.cast());
        if state == TCP_ESTABLISHED {
            Socket::Connected
        } else {
            Socket::Listening
        }
    }
}

#[inline(always)]
fn look_up<T>(skb: *mut __sk_buff, tuple: &T) -> Socket {
    let tuple_ptr: *const T = tuple;
    // SAFETY: the kernel reads the tuple, of the length it is told, and the
    // reference that it gives is given back.
    unsafe {
        let socket = bpf_skc_lookup_tcp(
            skb.cast(),
            tuple_ptr.cast_mut().cast(),
            size_of::<T>() as u32,
            i64::from(BPF_F_CURRENT_NETNS) as u64,
            0,
        );
        if socket.is_null() {
            return Socket::Absent;
        }
        let state = (&raw const (*socket).state).read_volatile();
        bpf_sk_release(socket.cast());
        if state == TCP_LISTEN {
            Socket::Listening
        } else {
            Socket::Connected
        }
    }
}
