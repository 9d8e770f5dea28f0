//! The object of the floor: the least that a program can do to disguise and restore datagrams, and
//! still be right on a good day. The measurements compare the tunnel with it; it is not shipped.
//!
//! | program | hook | job |
//! |---|---|---|
//! | [`floor_egress`] | tc egress | UDP to TCP |
//! | [`floor_ingress`] | tc ingress | TCP to UDP |
//! | [`floor_xdp`] | XDP | TCP to UDP |
//!
//! It has ports, a table of flows, sequence and acknowledgement numbers, checksums and a counter.
//! It has no handshake, no states, no acknowledgements, no clock, no daemon, and takes a packet
//! with anything unusual for none of its own. The first twelve bytes of a payload travel behind
//! the others, so nothing is moved.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![expect(missing_docs, reason = "the program macros generate functions without")]

use aya_ebpf::bindings::{BPF_ANY, TC_ACT_SHOT, TC_ACT_UNSPEC, xdp_action};
use aya_ebpf::helpers::generated::bpf_xdp_adjust_tail;
use aya_ebpf::macros::{classifier, map, xdp};
use aya_ebpf::maps::{Array, HashMap, PerCpuArray};
use aya_ebpf::programs::{TcContext, XdpContext};
use xdptun_common::checksum::Sum;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::flow::seq::near;
use xdptun_common::parse::{Located, Shape, locate};
use xdptun_common::ports::{PORT_WORDS, port_bit};
use xdptun_common::tunnel::translate::{GROWTH, Numbers, PayloadSum, disguise, restore};
use xdptun_common::tunnel::window::{MAX_WINDOW, window};
use xdptun_common::wire::{Ip, IpVersion, Ipv4Header, Ipv6Header, Protocol, TcpHeader, UdpHeader};

use xdptun_ebpf::flow::word::Word;
use xdptun_ebpf::machine::opaque;
use xdptun_ebpf::packet::access::{Linear, Packet};
use xdptun_ebpf::packet::link::link_len;
use xdptun_ebpf::packet::payload;
use xdptun_ebpf::packet::resize::set_len;
use xdptun_ebpf::packet::settle::{Settle, settle};
use xdptun_ebpf::packet::skb::{Skb as _, is_linear};
use xdptun_ebpf::packet::version::{frame_ip_version, skb_ip_version};

/// A bit for each port: set if it is ours. Names of maps are the object's, and on the host one name is
/// one of all rooms.
#[map]
static FLOOR_PORTS: Array<u64> = Array::with_max_entries(PORT_WORDS, 0);

/// Preallocated, unlike the tunnel's.
#[map]
static FLOOR_FLOWS: HashMap<FlowKey, Flow> = HashMap::with_max_entries(65536, 0);

#[map]
static FLOOR_COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(2, 0);

/// What a flow needs.
#[repr(C)]
struct Flow {
    snd_nxt: u32,
    rcv_nxt: u32,
    sent: u64,
    received: u64,
}

/// The first bytes of a payload, which take the place behind it.
type Head = [u32; 3];

/// The longest packet, of which the verifier must know that it has an end.
const LONGEST: usize = 0x7ff;

#[classifier]
pub fn floor_egress(ctx: TcContext) -> i32 {
    let end = match skb_ip_version(&ctx) {
        Some(IpVersion::V4) => out::<Ipv4Header>(&ctx),
        Some(IpVersion::V6) => out::<Ipv6Header>(&ctx),
        None => None,
    };
    end.unwrap_or(TC_ACT_UNSPEC)
}

#[classifier]
pub fn floor_ingress(ctx: TcContext) -> i32 {
    let end = match skb_ip_version(&ctx) {
        Some(IpVersion::V4) => in_by_tc::<Ipv4Header>(&ctx),
        Some(IpVersion::V6) => in_by_tc::<Ipv6Header>(&ctx),
        None => None,
    };
    end.unwrap_or(TC_ACT_UNSPEC)
}

#[xdp]
pub fn floor_xdp(ctx: XdpContext) -> u32 {
    let end = match frame_ip_version(&ctx) {
        Some(IpVersion::V4) => in_by_xdp::<Ipv4Header>(&ctx),
        Some(IpVersion::V6) => in_by_xdp::<Ipv6Header>(&ctx),
        None => None,
    };
    end.unwrap_or(xdp_action::XDP_PASS)
}

/// The transport header of a packet of this protocol and an owned port, with its ports.
#[inline(always)]
fn ours<I: Ip>(packet: &impl Packet, protocol: Protocol) -> Option<(Located<I>, (u16, u16))> {
    let located = locate::<I>(&Linear(packet), link_len())?;
    if located.protocol != protocol || located.shape != Shape::Plain {
        return None;
    }
    let (source, destination) = located.ports(&Linear(packet))?;
    (is_owned(source) || is_owned(destination)).then_some((located, (source, destination)))
}

#[inline(always)]
fn is_owned(port: u16) -> bool {
    let (word, mask) = port_bit(port);
    FLOOR_PORTS.get(word).is_some_and(|bits| bits & mask != 0)
}

/// The entry of a flow, which the first packet makes.
#[inline(always)]
fn find(key: &FlowKey) -> Option<*mut Flow> {
    if let Some(flow) = FLOOR_FLOWS.get_ptr_mut(key) {
        return Some(flow);
    }
    let flow = Flow {
        snd_nxt: 0,
        rcv_nxt: 0,
        sent: 0,
        received: 0,
    };
    FLOOR_FLOWS.insert(key, flow, u64::from(BPF_ANY)).ok()?;
    None
}

/// A word of an entry.
macro_rules! word {
    ($flow:expr, $field:ident) => {
        // SAFETY: an aligned field of a map value that the look-up returned.
        unsafe { Word::new(&raw mut (*$flow).$field) }
    };
}

#[inline(always)]
fn count(index: u32) {
    if let Some(count) = FLOOR_COUNTERS.get_ptr_mut(index) {
        // SAFETY: a per-CPU value, which only this program run touches.
        unsafe { *count += 1 }
    }
}

#[inline(always)]
fn out<I: Settle>(ctx: &TcContext) -> Option<i32> {
    let (located, ports) = ours::<I>(ctx, Protocol::UDP)?;
    let at = located.offset;
    let udp: UdpHeader = ctx.read(at)?;
    let len = usize::from(udp.length());
    let total = ctx.len() as usize;
    if ctx.is_super_packet()
        || len != located.len
        || total != at + len
        || total > LONGEST - GROWTH
        || len < UdpHeader::LEN + size_of::<I::Saved>()
        || !is_linear(ctx)
    {
        return None;
    }
    let flow = find(&located.outbound(ports))?;
    let ip = located.ip;
    let (payload, payload_len) = (at + UdpHeader::LEN, len - UdpHeader::LEN);
    let is_pending = udp.checksum() == ip.pseudo_header(Protocol::UDP, udp.length()).pending();
    let sum = if is_pending {
        payload::sum(ctx, payload, payload_len).ok()?
    } else {
        Sum::new()
    };
    let head: Head = ctx.read(payload)?;
    set_len(ctx, total + GROWTH).ok()?;
    if is_pending {
        let room = [TcpHeader::LEN; 2];
        if settle::<I>(ctx, at, room, payload_len - GROWTH).is_err() {
            return Some(TC_ACT_SHOT);
        }
    }
    let acknowledgment = word!(flow, rcv_nxt).load();
    let numbers = Numbers {
        sequence: word!(flow, snd_nxt).fetch_add(payload_len as u32),
        acknowledgment,
        window: window(acknowledgment),
    };
    word!(flow, sent).fetch_add(1);
    let known = if is_pending {
        PayloadSum::Known(sum)
    } else {
        PayloadSum::InUdpChecksum
    };
    let (ip, tcp) = disguise(ip, udp, known, numbers);
    let tail = opaque(total as u64) as usize & LONGEST;
    ctx.write(tail, head)?;
    ctx.write(link_len(), ip)?;
    ctx.write(at, tcp)?;
    count(0);
    Some(TC_ACT_UNSPEC)
}

/// Writes the datagram of a segment in a packet of `total` bytes over it, `None` if it is none. Its
/// last twelve bytes are to be cut.
#[inline(always)]
fn rewrite<I: Ip>(packet: &impl Packet, total: usize) -> Option<()> {
    let (located, ports) = ours::<I>(packet, Protocol::TCP)?;
    let at = located.offset;
    let tcp: TcpHeader = packet.read(at)?;
    if tcp.header_len() != TcpHeader::LEN
        || located.len < TcpHeader::LEN + GROWTH
        || total != at + located.len
        || total > LONGEST
    {
        return None;
    }
    let flow = find(&located.inbound(ports))?;
    let end = tcp
        .sequence()
        .wrapping_add((located.len - TcpHeader::LEN) as u32);
    let unacknowledged = word!(flow, snd_nxt)
        .load()
        .wrapping_sub(tcp.acknowledgment());
    if unacknowledged > MAX_WINDOW || !near(tcp.sequence(), word!(flow, rcv_nxt).load(), MAX_WINDOW)
    {
        return None;
    }
    let tail = opaque((total - GROWTH) as u64) as usize & LONGEST;
    let head: Head = packet.read(tail)?;
    let (ip, udp) = restore(located.ip, tcp, located.len, Sum::new())?;
    word!(flow, rcv_nxt).store(end);
    word!(flow, received).fetch_add(1);
    packet.write(link_len(), ip)?;
    packet.write(at, udp)?;
    packet.write(at + UdpHeader::LEN, head)?;
    count(1);
    Some(())
}

#[inline(always)]
fn in_by_tc<I: Ip>(ctx: &TcContext) -> Option<i32> {
    let total = ctx.len() as usize;
    if ctx.is_super_packet() || !is_linear(ctx) {
        return None;
    }
    rewrite::<I>(ctx, total)?;
    Some(match set_len(ctx, total - GROWTH) {
        Ok(()) => TC_ACT_UNSPEC,
        Err(_) => TC_ACT_SHOT,
    })
}

#[inline(always)]
fn in_by_xdp<I: Ip>(ctx: &XdpContext) -> Option<u32> {
    rewrite::<I>(ctx, ctx.end() - ctx.start())?;
    // SAFETY: the context is valid; the helper checks the length.
    Some(
        match unsafe { bpf_xdp_adjust_tail(ctx.ctx, -(GROWTH as i32)) } {
            0 => xdp_action::XDP_PASS,
            _ => xdp_action::XDP_DROP,
        },
    )
}

xdptun_ebpf::object!();
