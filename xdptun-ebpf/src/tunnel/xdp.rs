//! XDP: data of established flows, the common case, and nothing else.
//!
//! Whatever needs a reply, a state change or a second packet is left untouched
//! for `ingress`. One thing cannot be left: plain UDP on an owned port, because
//! `ingress` could not tell it from what was restored here.

use aya_ebpf::programs::XdpContext;
use xdptun_common::attachment::IngressMode;
use xdptun_common::parse::{Located, Shape, locate};
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::translate::GROWTH;
use xdptun_common::wire::{Ip, Protocol};

use crate::host::interface::Interface;
use crate::packet::access::View;
use crate::packet::link::link_len;
use crate::tunnel::fast::ingress::restore_established;
use crate::tunnel::rules;
use crate::tunnel::veil::veils;

/// Handles one packet of IP version `I`, `len` bytes long, of that interface; `None` if it is left
/// to the stack.
#[inline(always)]
pub fn process<I: Ip>(ctx: &XdpContext, at: Interface, len: usize) -> Option<Outcome> {
    let located = locate::<I>(&View(ctx), link_len())?;
    if located.shape == Shape::LaterFragment {
        return None;
    }
    match located.protocol {
        Protocol::TCP if located.shape == Shape::Plain => segment(ctx, at, len, &located),
        Protocol::UDP => {
            let ports = located.ports(&View(ctx))?;
            (rules::owns_either(ports) && rules::is_peer(located.ip.source()))
                .then_some(Outcome::RxDropPlainUdp)
        }
        _ => None,
    }
}

/// The bytes by which this outcome shortens a packet.
#[inline(always)]
pub const fn shortened_by(outcome: Outcome) -> usize {
    match outcome {
        Outcome::RxRestored => GROWTH,
        _ => 0,
    }
}

#[inline(always)]
fn segment<I: Ip>(
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
    // Without PSH a lower interface may have merged them into packets no longer than the MTU, and
    // only tc sees that. (Of this interface the kernel switches GRO off.)
    let may_lack_psh = veils() || rules::has_phantuns();
    if may_lack_psh && interface.ingress() == IngressMode::XdpGeneric {
        return None;
    }
    let ports = located.ports(&View(ctx))?;
    if !rules::owns_either(ports) {
        return None;
    }
    // Behind XDP in the driver, the driver's GRO meets the datagram itself.
    restore_established(ctx, len, located, |_, _, _| ())
}
