//! XDP: data of established flows, the common case, and nothing else.
//!
//! Whatever needs a reply, a state change or a second packet is left untouched
//! for `ingress`. One thing cannot be left: plain UDP on an owned port, because
//! `ingress` could not tell it from what was restored here.

use aya_ebpf::programs::XdpContext;
use xdptun_common::parse::{Located, Shape, locate};
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::wire::{Ip, Protocol, TcpHeader};

use crate::host::clock::now;
use crate::host::interface::Interface;
use crate::packet::access::{Packet as _, View};
use crate::packet::direction::Direction;
use crate::packet::link::link_len;
use crate::tunnel::ingress::segment;
use crate::tunnel::table::find;
use crate::tunnel::verdict::refused;
use crate::tunnel::{restore, rules};

/// Handles one packet of IP version `I`, `len` bytes long, of that interface; `None` if it is left
/// to the stack.
#[inline(always)]
pub fn process<I: Ip>(ctx: &XdpContext, at: Interface, len: usize) -> Option<Outcome> {
    let located = locate::<I>(&View(ctx), link_len())?;
    if located.shape == Shape::LaterFragment {
        return None;
    }
    match located.protocol {
        Protocol::TCP if located.shape == Shape::Plain => {
            restore_established(ctx, at, len, &located)
        }
        Protocol::UDP => {
            let ports = located.ports(&View(ctx))?;
            (rules::owns_either(ports) && rules::is_peer(located.ip.source()))
                .then_some(Outcome::RxDropPlainUdp)
        }
        _ => None,
    }
}

#[inline(always)]
fn restore_established<I: Ip>(
    ctx: &XdpContext,
    interface: Interface,
    len: usize,
    located: &Located<I>,
) -> Option<Outcome> {
    // Longer than the interface sends: merged segments, of which nothing else
    // tells here.
    if len > link_len() + interface.mtu() as usize {
        return None;
    }
    let at = link_len() + I::LEN;
    if len < at + located.len {
        return None;
    }
    let tcp: TcpHeader = ctx.read(at)?;
    let ports = (tcp.source(), tcp.destination());
    if !rules::owns_either(ports) || tcp.header_len() != TcpHeader::LEN {
        return None;
    }
    let flow = find(&located.inbound(ports))?;
    let segment = segment(&tcp, located.len)?;
    let now = now();
    if !flow.endpoint_without_iss(now).takes_datagram(&segment) || flow.ack_due(&segment, now) {
        return None;
    }
    flow.receive_datagram(&segment, now);
    Some(match restore::into_datagram::<I>(ctx) {
        Ok(()) => Outcome::RxRestored,
        Err(error) => refused(error, Direction::Inbound),
    })
}
