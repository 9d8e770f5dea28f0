//! A packet becomes a control segment: SYN, SYN-ACK, ACK, FIN or RST.
//!
//! BPF cannot make packets, only change them, so every segment without data is
//! some other packet rewritten: the datagram that opens a flow, the segment
//! that is answered, a clone of one that is acknowledged.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use aya_ebpf::programs::TcContext;
use xdptun_common::checksum::Sum;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::handshake::Reply;
use xdptun_common::tunnel::options::{Offer, OptionWalk, SynOptions, TimestampedSynOptions};
use xdptun_common::tunnel::outcome::Sent;
use xdptun_common::tunnel::state::KeptFields;
use xdptun_common::tunnel::window::{asking, challenging, of_fragments, window};
use xdptun_common::wire::{Flags, Ip, IpFields, Protocol, TcpFields, TcpHeader};

use crate::host::counters::count;
use crate::host::interface::interface;
use crate::machine::opaque;
use crate::packet::access::Packet as _;
use crate::packet::direction::{Direction, reverse_link};
use crate::packet::error::PacketError;
use crate::packet::link::link_len;
use crate::packet::resize::{replace_transport, store};
use crate::packet::skb::Skb as _;
use crate::tunnel::cookie::label;
use crate::tunnel::defaults::tcp_defaults;
use crate::tunnel::proof::proven;
use crate::tunnel::rules::{has_secret, is_phantun};
use crate::tunnel::table::{Entry, find};

/// What the segment that is about to be made needs.
#[map]
pub static PREPARED: PerCpuArray<Prepared> = PerCpuArray::with_max_entries(1, 0);

/// What [`rewrite`] needs to know before it changes the packet. Not on the stack, which is
/// full.
#[derive(Clone, Copy)]
pub struct Prepared {
    /// The fields of its IP header.
    fields: IpFields,
    /// What it offers by its options; nothing if it is no SYN or SYN-ACK.
    offer: Offer,
}

/// A segment that acknowledges what the flow has received.
#[inline(always)]
pub fn acknowledging(flow: Entry, kind: Sent, flags: Flags, sequence: u32, now: u64) -> Reply {
    Reply {
        kind,
        flags,
        sequence,
        acknowledgment: flow.acknowledge(now),
    }
}

/// A segment that the peer answers, whatever its numbers. A phantun does not, and from now on it would
/// acknowledge the number before the next: the flow refuses what acknowledges less than before.
#[inline(always)]
pub fn probe(key: &FlowKey, flow: Entry, now: u64) -> Reply {
    flow.expect_answer(now);
    let sequence = match is_phantun(key.remote_address()) {
        true => flow.snd_nxt(),
        false => flow.snd_nxt().wrapping_sub(1),
    };
    acknowledging(flow, Sent::Probe, Flags::ACK, sequence, now)
}

/// Rewrites the packet into `segment` of `flow`, and counts it.
#[inline(always)]
pub fn rewrite<I: Ip>(
    ctx: &TcContext,
    direction: Direction,
    flow: &FlowKey,
    segment: &Reply,
) -> Result<(), PacketError> {
    let offer = if !segment.flags.contains(Flags::SYN) {
        Offer(0)
    } else if direction == Direction::Outbound {
        Offer::OURS
    } else {
        // A SYN-ACK may offer what the SYN did, and nothing else.
        Offer(offer_of(ctx.raw(), (link_len() + I::LEN) as u32))
    };
    prepare(flow, segment.kind, offer);
    rewrite_as_prepared::<I>(ctx, direction, flow, segment)
}

/// A subprogram: it is needed in several places and has a stack of its own.
#[inline(never)]
fn rewrite_as_prepared<I: Ip>(
    ctx: &TcContext,
    direction: Direction,
    flow: &FlowKey,
    segment: &Reply,
) -> Result<(), PacketError> {
    // SAFETY: a per-CPU value, which only this program run touches.
    let prepared = unsafe { &*PREPARED.get_ptr(0).ok_or(PacketError::NoScratch)? };
    let at = link_len() + I::LEN;
    let is_syn = segment.flags.contains(Flags::SYN);
    let proves = is_syn && has_secret() && direction == Direction::Outbound;
    let options_len = match (is_syn, proves) {
        (false, _) => 0,
        (true, true) => TimestampedSynOptions::LEN,
        (true, false) => prepared.offer.options_len(),
    };
    let tcp_len = TcpHeader::LEN + options_len;
    replace_transport::<I>(ctx, tcp_len)?;

    // Before the headers are put together, which would have to wait on the stack.
    let mut sum = Sum::new();
    if is_syn {
        let offer = prepared.offer;
        let stored = store_options(ctx.raw(), at + TcpHeader::LEN, mss::<I>(ctx), proves, offer);
        if stored < 0 {
            return Err(PacketError::Access);
        }
        sum = sum.word((stored as u16).to_ne_bytes());
    }
    let header = header::<I>(ctx, flow, segment, prepared.offer, options_len);
    let ip = I::bare(
        flow.local_address(),
        flow.remote_address(),
        Protocol::TCP,
        tcp_len as u16,
    )
    .with_fields(prepared.fields);
    let sum = sum
        .combine(ip.pseudo_header(Protocol::TCP, tcp_len as u16))
        .combine(header.sum());
    store(ctx, at, &header.with_checksum(sum.checksum()))?;
    store(ctx, link_len(), &ip)?;
    if direction == Direction::Inbound {
        reverse_link(ctx)?;
    }
    count(interface(ctx), segment.kind);
    Ok(())
}

/// The TCP header of a segment without data, and without its checksum.
#[inline(always)]
fn header<I: Ip>(
    ctx: &TcContext,
    flow: &FlowKey,
    segment: &Reply,
    offer: Offer,
    options_len: usize,
) -> TcpHeader {
    let flags = if offer.contains(Offer::ECN) {
        segment.flags | Flags::ECE
    } else {
        segment.flags
    };
    TcpHeader::new(TcpFields {
        source: flow.local_port(),
        destination: flow.remote_port(),
        sequence: segment.sequence,
        acknowledgment: segment.acknowledgment,
        flags,
        window: window_of::<I>(ctx, segment),
        options_len,
    })
}

/// The window field of a segment without data.
#[inline(always)]
fn window_of<I: Ip>(ctx: &TcContext, segment: &Reply) -> u16 {
    match segment.kind {
        // The first ones of a connection, and the last.
        Sent::Syn | Sent::SynAck => tcp_defaults().first_window(mss::<I>(ctx)),
        Sent::Rst => 0,
        Sent::Probe => asking(later_window(segment)),
        Sent::ChallengeAck => challenging(later_window(segment)),
        _ => later_window(segment),
    }
}

/// The window of those between: we take fragments.
#[inline(always)]
fn later_window(segment: &Reply) -> u16 {
    of_fragments(window(segment.acknowledgment))
}

/// What the SYN at hand offers, whose TCP header starts `at` this offset and is readable
/// with its options. A subprogram: the walk over the options is long.
#[inline(never)]
fn offer_of(skb: *mut __sk_buff, at: u32) -> u32 {
    let ctx = &TcContext::new(skb);
    // A mask that the verifier sees: link header and fixed IP header are shorter.
    let at = (opaque(at.into()) & 127) as usize;
    let Some(length_and_flags) = ctx.read::<u16>(at + TcpHeader::LENGTH_OFFSET) else {
        return 0;
    };
    let [length, flags] = length_and_flags.to_ne_bytes();
    let len = TcpHeader::length(length).saturating_sub(TcpHeader::LEN) & 63;
    let byte = |offset: usize| ctx.read(at + TcpHeader::LEN + offset);
    let mut walk = OptionWalk::BEGIN;
    for _ in 0..OptionWalk::MOST {
        // The verifier forgets what the last option was, so that it walks each step once
        // and not once for each way that led there.
        walk.at = (opaque(walk.at as u64) & 63) as usize;
        walk.offer = Offer(opaque(walk.offer.0.into()) as u32);
        if !walk.step(len, byte) {
            break;
        }
    }
    let offer = walk.offer;
    let asks = Flags(flags).contains(Flags::ECE.with(Flags::CWR));
    if asks && tcp_defaults().ecn != 0 && (length & RESERVED != 0 || !is_ecn_capable(ctx)) {
        return offer.with(Offer::ECN).0;
    }
    offer.0
}

/// The bits beside the length of a TCP header: with one of them set, Linux grants ECN to
/// whatever IP header.
const RESERVED: u8 = 0x0f;

/// Whether the IP header says that its sender knows ECN, as one of a SYN must not (RFC 3168
/// section 6.1.1).
#[inline(always)]
fn is_ecn_capable(ctx: &TcContext) -> bool {
    const ECN: u8 = 3;
    let Some(start) = ctx.read::<u16>(link_len()) else {
        return false;
    };
    let [version, second] = start.to_ne_bytes();
    let class = if version >> 4 == 4 {
        second
    } else {
        second >> 4
    };
    class & ECN != 0
}

/// Stores the options of a SYN and returns their sum, or -1. A subprogram, whose stack
/// is its caller's not to spend.
#[inline(never)]
fn store_options(skb: *mut __sk_buff, at: usize, mss: u16, proves: bool, offer: Offer) -> i32 {
    let ctx = &TcContext::new(skb);
    if proves {
        return match proven() {
            Some(proven) if store(ctx, at, proven).is_ok() => proven.sum().folded().into(),
            _ => -1,
        };
    }
    let options = SynOptions::new(mss, tcp_defaults().window_scale, offer);
    for (index, word) in options.0.iter().enumerate() {
        let offset = index * size_of_val(word);
        if offset < offer.options_len() && store(ctx, at + offset, word).is_err() {
            return -1;
        }
    }
    options.sum().folded().into()
}

/// Puts together what [`rewrite_as_prepared`] needs. The IP header is like those of the
/// flow's datagrams; what Linux sends without a connection has no identification.
#[inline(never)]
fn prepare(flow: &FlowKey, kind: Sent, offer: Offer) {
    let Some(prepared) = PREPARED.get_ptr_mut(0) else {
        return;
    };
    let defaults = tcp_defaults();
    let hop_limit = if flow.is_ipv4() {
        defaults.ttl
    } else {
        defaults.hop_limit
    };
    let mut fields = match find(flow) {
        Some(entry) => entry.fields(kind == Sent::Syn, hop_limit),
        None => KeptFields::new(0).fields(0, hop_limit, 0),
    };
    let is_reset = kind == Sent::Rst;
    if is_reset || kind == Sent::SynAck {
        fields.identification = 0;
        if is_reset || fields.label == 0 {
            fields.label = label(flow);
        }
    }
    // SAFETY: as in `rewrite_as_prepared`.
    unsafe { prepared.write(Prepared { fields, offer }) };
}

/// What a segment may carry, in bytes.
#[inline(always)]
pub fn mss<I: Ip>(ctx: &TcContext) -> u16 {
    let mtu = interface(ctx).mtu().min(u16::MAX.into());
    mtu.saturating_sub((I::LEN + TcpHeader::LEN) as u32) as u16
}
