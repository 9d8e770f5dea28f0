//! A packet becomes a control segment: SYN, SYN-ACK, ACK, FIN or RST.
//!
//! BPF cannot make packets, only change them, so every segment without data is
//! some other packet rewritten: the datagram that opens a flow, the segment
//! that is answered, a clone of one that is acknowledged.

use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use xdptun_common::checksum::Sum;
use xdptun_common::counter::Sent;
use xdptun_common::flow::{FlowKey, asking, challenging, window};
use xdptun_common::handshake::Reply;
use xdptun_common::wire::{
    EthernetHeader, Flags, Ip, Protocol, SynOptions, TcpHeader, TimestampedSynOptions,
};

use crate::counters::count_sent;
use crate::maps::{has_ethernet, hidden, link_len, mtu};
use crate::packet::{Packet as _, Skb as _, now};
use crate::proof::proven;
use crate::resize::{ResizeError, replace_transport, store};

/// Which way the packet that is rewritten was going.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Was {
    /// Out: its link header already leads to the peer.
    Outbound,
    /// In: its link header must be turned round.
    Inbound,
}

/// Rewrites the packet into `segment` of `flow`, and counts it. A subprogram:
/// it is needed in several places and has a stack of its own.
#[inline(never)]
pub fn rewrite<I: Ip>(
    ctx: &TcContext,
    was: Was,
    flow: &FlowKey,
    segment: &Reply,
) -> Result<(), ResizeError> {
    let is_syn = segment.flags.contains(Flags::SYN);
    let at = link_len() + I::LEN;
    // An answer must not be longer than what caused it, and may offer window
    // scale and SACK only to a SYN that did (RFC 7323 section 2.2, RFC 2018
    // section 2). One that has room for our options has them.
    let room = match was {
        Was::Outbound => true,
        Was::Inbound => {
            let length = ctx.read(at + TcpHeader::LENGTH_OFFSET).ok_or(ResizeError)?;
            TcpHeader::length(length) >= TcpHeader::LEN + SynOptions::LEN
        }
    };
    let options_len = if !is_syn || !room {
        0
    } else if hidden() && segment.flags == Flags::SYN && was == Was::Outbound {
        TimestampedSynOptions::LEN
    } else {
        SynOptions::LEN
    };
    let tcp_len = TcpHeader::LEN + options_len;
    replace_transport::<I>(ctx, tcp_len)?;

    // Before the headers are put together, which would have to wait on the stack.
    let mut sum = Sum::new();
    if options_len != 0 {
        let proves = options_len == TimestampedSynOptions::LEN;
        if store_options(ctx.raw(), at + TcpHeader::LEN, mss::<I>(), proves) != 0 {
            return Err(ResizeError);
        }
        sum = if proves {
            proven().ok_or(ResizeError)?.sum()
        } else {
            SynOptions::new(mss::<I>()).sum()
        };
    }
    let header = TcpHeader::new(
        flow.local_port(),
        flow.remote_port(),
        segment.sequence,
        segment.acknowledgment,
        segment.flags,
        match segment.kind {
            Sent::Probe => asking(window(now() >> 20)),
            Sent::ChallengeAck => challenging(window(now() >> 20)),
            _ => window(now() >> 20),
        },
        options_len,
    );
    let ip = I::bare(
        flow.local_address(),
        flow.remote_address(),
        Protocol::TCP,
        tcp_len as u16,
    );
    let sum = sum
        .combine(ip.pseudo_header(Protocol::TCP, tcp_len as u16))
        .combine(header.sum());
    store(ctx, at, &header.with_checksum(sum.checksum()))?;
    store(ctx, link_len(), &ip)?;
    if was == Was::Inbound {
        reverse_link(ctx)?;
    }
    count_sent(segment.kind);
    Ok(())
}

/// Stores the options of a SYN; zero if that went well. A subprogram, whose stack
/// is its caller's not to spend.
#[inline(never)]
fn store_options(skb: *mut __sk_buff, at: usize, mss: u16, proves: bool) -> i32 {
    let ctx = &TcContext::new(skb);
    let stored = match proven() {
        Some(proven) if proves => store(ctx, at, proven),
        _ => store(ctx, at, &SynOptions::new(mss)),
    };
    stored.is_err().into()
}

/// What a segment may carry, in bytes.
#[inline(always)]
pub fn mss<I: Ip>() -> u16 {
    mtu().saturating_sub((I::LEN + TcpHeader::LEN) as u32) as u16
}

/// Turns the packet round: it goes to the station that it came from.
#[inline(always)]
pub fn reverse_link(ctx: &TcContext) -> Result<(), ResizeError> {
    if !has_ethernet() {
        return Ok(());
    }
    let link: EthernetHeader = ctx.read(0).ok_or(ResizeError)?;
    ctx.write(0, link.reversed()).ok_or(ResizeError)
}

/// The link header of a packet as it must be to reach the peer.
#[inline(always)]
pub fn link_to_peer(ctx: &TcContext, was: Was) -> [u8; 14] {
    let link: Option<EthernetHeader> = if has_ethernet() { ctx.read(0) } else { None };
    match (link, was) {
        (None, _) => [0; 14],
        (Some(link), Was::Outbound) => link.to_bytes(),
        (Some(link), Was::Inbound) => link.reversed().to_bytes(),
    }
}
