//! tc ingress and XDP: a segment of an established flow becomes a datagram.

use aya_ebpf::programs::TcContext;
use xdptun_common::checksum::Sum;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::parse::{Located, Shape, locate};
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::translate::{GROWTH, restore};
use xdptun_common::tunnel::window::{carries_fragment, is_padded};
use xdptun_common::wire::{Ip, Protocol, TcpHeader};

use crate::host::clock::now;
use crate::packet::access::Linear;
use crate::packet::direction::Direction;
use crate::packet::link::link_len;
use crate::packet::skb::Skb as _;
use crate::tunnel::ingress::segment;
use crate::tunnel::restore::{Cut, replace};
use crate::tunnel::table::{Entry, find};
use crate::tunnel::veil::{Veiled, is_within_reach, stream, uncover, veils};
use crate::tunnel::verdict::{Step, Verdict, refused};
use crate::tunnel::{join, merged, rules};

/// What becomes of a packet of IP version `I` at tc.
#[inline(always)]
pub fn process<I: Ip>(ctx: &TcContext) -> Step {
    let Some(located) = locate::<I>(&Linear(ctx), link_len()) else {
        return Step::Miss;
    };
    if located.shape != Shape::Plain {
        return Step::Miss;
    }
    let Some(ports) = located.ports(&Linear(ctx)) else {
        return Step::Miss;
    };
    match located.protocol {
        Protocol::UDP | Protocol::TCP if !rules::owns_either(ports) => Step::PASS,
        Protocol::TCP if !ctx.is_super_packet() && !ctx.has_tag() => {
            let mut joins = false;
            let choose = |key: &FlowKey, flow: Entry, now| {
                joins = join::choose(ctx, key, flow.received_datagrams(), now);
            };
            match restore_established(ctx, ctx.len() as usize, &located, choose) {
                Some(Outcome::RxRestored) if joins => Verdict::Joining.carry_out::<I>(ctx),
                Some(outcome) => Verdict::Ended(outcome).carry_out::<I>(ctx),
                None => Step::Miss,
            }
        }
        _ => Step::Miss,
    }
}

/// Restores the datagram of a segment of an owned port, in a packet of `len` bytes; `None` if it
/// is missed. `choose` chooses the way of its datagram, before the flow notes it.
#[inline(always)]
pub fn restore_established<I: Ip>(
    packet: &(impl Cut + Veiled),
    len: usize,
    located: &Located<I>,
    choose: impl FnOnce(&FlowKey, Entry, u64),
) -> Option<Outcome> {
    let tcp: TcpHeader = packet.read(located.offset)?;
    if tcp.header_len() != TcpHeader::LEN
        || len < located.offset + located.len
        || carries_fragment(tcp.window())
    {
        return None;
    }
    let segment = segment(&tcp, located.len)?;
    let key = located.inbound((tcp.source(), tcp.destination()));
    let flow = find(&key)?;
    let now = now();
    if merged::are_before(&key, flow, &segment, now) {
        return None;
    }
    if !flow.endpoint_without_iss(now).takes_datagram(&segment) || flow.ack_due(&segment, now) {
        return None;
    }
    let tcp = match veils() {
        true => {
            let at = located.offset + TcpHeader::LEN;
            let payload_len = located.len - TcpHeader::LEN;
            if is_padded(tcp.window()) || !is_within_reach(packet, at, payload_len) {
                return None;
            }
            uncover(packet, at, payload_len, &located.ip, tcp, stream::here)?
        }
        false => tcp,
    };
    let restored = restore(located.ip, tcp, located.len, Sum::new())?;
    choose(&key, flow, now);
    flow.receive_datagram(&segment, now);
    Some(match replace(packet, restored, GROWTH) {
        Ok(()) => Outcome::RxRestored,
        Err(error) => refused(error, Direction::Inbound),
    })
}
