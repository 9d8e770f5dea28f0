//! The object of the gateway: its programs.
//!
//! | program | hook | job |
//! |---|---|---|
//! | [`gateway_egress`] | tc egress | translates the source of packets of sessions, opens those of inside hosts |
//! | [`gateway_ingress`] | tc ingress | opens sessions, translates the destination of their packets |
//!
//! Entry points only: `gateway` decides what becomes of a packet.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![expect(missing_docs, reason = "the program macros generate functions without")]

use aya_ebpf::bindings::{__sk_buff, TC_ACT_UNSPEC};
use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use xdptun_common::gateway::fragment::Held;
use xdptun_common::gateway::outcome::Outcome;
use xdptun_common::gateway::tuple::Side;
use xdptun_common::report::copy::Hook;
use xdptun_common::wire::{Icmp, Ip as _, IpVersion, Ipv4Header, Ipv6Header};

use xdptun_ebpf::gateway::errors;
use xdptun_ebpf::gateway::fragments::{gateway_first, gateway_hold, is_to_come_in, was_held};
use xdptun_ebpf::gateway::inside::open_leaving;
use xdptun_ebpf::gateway::nat::{reaches_pool, shows_inside};
use xdptun_ebpf::gateway::open::{Opened, open};
use xdptun_ebpf::gateway::process::{BEGIN, HOLD, IS_FIRST, MESSAGE, PASS, number, process};
use xdptun_ebpf::host::again::{is_made_here, unmark, was_redirected};
use xdptun_ebpf::host::capture::{EveryPacket, recorded};
use xdptun_ebpf::host::interface::{enter, interface};
use xdptun_ebpf::host::redirect::send_up;
use xdptun_ebpf::host::verdict::end_at_tc;
use xdptun_ebpf::packet::skb::Skb as _;
use xdptun_ebpf::packet::version::skb_ip_version;

/// tc egress: answers leave from the listen address, masqueraded packets from this host's.
#[classifier]
pub fn gateway_egress(ctx: TcContext) -> i32 {
    enter(&ctx);
    if is_to_come_in(&ctx) {
        return send_up(interface(&ctx).index());
    }
    let was_held = was_held(&ctx, Held::Out);
    recorded::<EveryPacket<Outcome>>(&ctx, Hook::Egress, || match skb_ip_version(&ctx) {
        Some(version) if !is_made_here(&ctx) => egress(&ctx, version, was_held),
        _ => TC_ACT_UNSPEC,
    })
}

/// tc ingress: packets to a listen address go to a back end, answers to masqueraded ones to
/// their client.
#[classifier]
pub fn gateway_ingress(ctx: TcContext) -> i32 {
    enter(&ctx);
    unmark(&ctx);
    let was_held = was_held(&ctx, Held::In);
    recorded::<EveryPacket<Outcome>>(&ctx, Hook::Ingress, || match skb_ip_version(&ctx) {
        Some(version) if !ctx.is_for_another_host() => ingress(&ctx, version, was_held),
        _ => TC_ACT_UNSPEC,
    })
}

/// Handles a packet that leaves. None of IPv4 leaves with the address of an inside host.
#[inline(always)]
fn egress(ctx: &TcContext, version: IpVersion, was_held: bool) -> i32 {
    // What was redirected has been translated. The mark may be forged in another namespace.
    let process = || match (was_redirected(ctx), version) {
        (true, _) => PASS,
        (false, IpVersion::V4) => egress_v4(ctx.raw()),
        (false, IpVersion::V6) => egress_v6(ctx.raw()),
    };
    let outcome = handle(ctx, version, Side::Out, was_held, process, open_leaving);
    let outcome = match outcome {
        None if version == IpVersion::V4 && shows_inside(ctx) => Some(Outcome::OutDropUntranslated),
        outcome => outcome,
    };
    end(ctx, version, outcome)
}

/// Handles a packet that came in. None of IPv4 comes in with an address of NAT64's pool.
#[inline(always)]
fn ingress(ctx: &TcContext, version: IpVersion, was_held: bool) -> i32 {
    let process = || match version {
        IpVersion::V4 => ingress_v4(ctx.raw()),
        IpVersion::V6 => ingress_v6(ctx.raw()),
    };
    let outcome = handle(ctx, version, Side::In, was_held, process, open);
    let outcome = match outcome {
        None if version == IpVersion::V4 && reaches_pool(ctx) => Some(Outcome::InDropFiltered),
        outcome => outcome,
    };
    end(ctx, version, outcome)
}

/// What came of a packet that is processed, once more if `open` has begun a session for it; `None`
/// if it is not the gateway's.
#[inline(always)]
fn handle(
    ctx: &TcContext,
    version: IpVersion,
    side: Side,
    was_held: bool,
    process: impl Fn() -> u32,
    open: impl Fn(&TcContext) -> Opened,
) -> Option<Outcome> {
    let met = process();
    let outcome = match met & !IS_FIRST {
        BEGIN => match open(ctx) {
            Opened::NotOurs | Opened::Unruled => None,
            Opened::Refused(outcome) => Some(outcome),
            Opened::Yes => outcome_of(ctx, version, side, process() & !IS_FIRST),
        },
        HOLD if !was_held && gateway_hold(ctx.raw()) != 0 => Some(match side {
            Side::In => Outcome::InHeld,
            Side::Out => Outcome::OutHeld,
        }),
        step => outcome_of(ctx, version, side, step),
    };
    if met & IS_FIRST != 0 {
        gateway_first(ctx.raw());
    }
    outcome
}

/// The verdict; `None` came of a packet that is not the gateway's.
#[inline(always)]
fn end(ctx: &TcContext, version: IpVersion, outcome: Option<Outcome>) -> i32 {
    let ether_type = match version {
        IpVersion::V4 => Ipv4Header::ETHER_TYPE,
        IpVersion::V6 => Ipv6Header::ETHER_TYPE,
    };
    match outcome {
        Some(outcome) => end_at_tc(ctx, outcome, ether_type),
        None => TC_ACT_UNSPEC,
    }
}

/// What came of a packet after a step. What needs a deep stack is called here, where it is empty.
#[inline(always)]
fn outcome_of(ctx: &TcContext, version: IpVersion, side: Side, step: u32) -> Option<Outcome> {
    match (step, version) {
        (MESSAGE, IpVersion::V4) => errors::translate::<Ipv4Header>(ctx, side),
        (MESSAGE, IpVersion::V6) => errors::translate::<Ipv6Header>(ctx, side),
        (step, _) => Outcome::ALL.get(step as usize).copied(),
    }
}

// One subprogram for each IP version and direction, so that each has a stack of its own.

#[inline(never)]
fn egress_v4(skb: *mut __sk_buff) -> u32 {
    step_number::<Ipv4Header>(&TcContext::new(skb), Side::Out)
}

#[inline(never)]
fn egress_v6(skb: *mut __sk_buff) -> u32 {
    step_number::<Ipv6Header>(&TcContext::new(skb), Side::Out)
}

#[inline(never)]
fn ingress_v4(skb: *mut __sk_buff) -> u32 {
    step_number::<Ipv4Header>(&TcContext::new(skb), Side::In)
}

#[inline(never)]
fn ingress_v6(skb: *mut __sk_buff) -> u32 {
    step_number::<Ipv6Header>(&TcContext::new(skb), Side::In)
}

/// The number of what comes of a packet, which the verifier does not know.
#[inline(always)]
fn step_number<I: Icmp>(ctx: &TcContext, side: Side) -> u32 {
    ctx.forget(number(process::<I>(ctx, side)))
}

xdptun_ebpf::object!();
