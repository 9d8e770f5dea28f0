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
use xdptun_common::gateway::outcome::Outcome;
use xdptun_common::gateway::tuple::Side;
use xdptun_common::report::copy::Hook;
use xdptun_common::wire::{Icmp, Ip as _, IpVersion, Ipv4Header, Ipv6Header};

use xdptun_ebpf::gateway::errors;
use xdptun_ebpf::gateway::inside::open_leaving;
use xdptun_ebpf::gateway::nat::shows_inside;
use xdptun_ebpf::gateway::open::{Opened, open};
use xdptun_ebpf::gateway::process::{Step, process};
use xdptun_ebpf::host::again::is_again;
use xdptun_ebpf::host::capture::{EveryPacket, recorded};
use xdptun_ebpf::host::interface::enter;
use xdptun_ebpf::host::verdict::end_at_tc;
use xdptun_ebpf::packet::skb::Skb as _;
use xdptun_ebpf::packet::version::skb_ip_version;

/// tc egress: answers leave from the listen address, masqueraded packets from this host's.
#[classifier]
pub fn gateway_egress(ctx: TcContext) -> i32 {
    enter(&ctx);
    recorded::<EveryPacket<Outcome>>(&ctx, Hook::Egress, || {
        if is_again(&ctx) {
            return TC_ACT_UNSPEC;
        }
        match skb_ip_version(&ctx) {
            Some(IpVersion::V4) => leave_v4(&ctx),
            Some(IpVersion::V6) => end::<Ipv6Header>(&ctx, Side::Out, egress_v6(ctx.raw())),
            None => TC_ACT_UNSPEC,
        }
    })
}

/// tc ingress: packets to a listen address go to a back end, answers to masqueraded ones to
/// their client.
#[classifier]
pub fn gateway_ingress(ctx: TcContext) -> i32 {
    enter(&ctx);
    recorded::<EveryPacket<Outcome>>(&ctx, Hook::Ingress, || {
        if ctx.is_for_another_host() {
            return TC_ACT_UNSPEC;
        }
        match skb_ip_version(&ctx) {
            Some(IpVersion::V4) => ingress::<Ipv4Header>(&ctx, || ingress_v4(ctx.raw())),
            Some(IpVersion::V6) => ingress::<Ipv6Header>(&ctx, || ingress_v6(ctx.raw())),
            None => TC_ACT_UNSPEC,
        }
    })
}

/// Handles an IPv4 packet that leaves, once more if it has begun a session. None leaves with the
/// address of an inside host.
#[inline(always)]
fn leave_v4(ctx: &TcContext) -> i32 {
    let end_with = |outcome| end_at_tc(ctx, outcome, Ipv4Header::ETHER_TYPE);
    let outcome = match egress_v4(ctx.raw()) {
        BEGIN => match open_leaving(ctx) {
            Opened::NotOurs | Opened::Unruled => return TC_ACT_UNSPEC,
            Opened::Refused(outcome) => return end_with(outcome),
            Opened::Yes => outcome_of::<Ipv4Header>(ctx, Side::Out, egress_v4(ctx.raw())),
        },
        step => outcome_of::<Ipv4Header>(ctx, Side::Out, step),
    };
    match outcome {
        Some(outcome) => end_with(outcome),
        None if shows_inside(ctx) => end_with(Outcome::OutDropUntranslated),
        None => TC_ACT_UNSPEC,
    }
}

/// Handles a packet that came in, once more if it has begun a session.
#[inline(always)]
fn ingress<I: Icmp>(ctx: &TcContext, process: impl Fn() -> u32) -> i32 {
    let step = process();
    if step != BEGIN {
        return end::<I>(ctx, Side::In, step);
    }
    match open(ctx) {
        Opened::NotOurs | Opened::Unruled => TC_ACT_UNSPEC,
        Opened::Refused(outcome) => end_at_tc(ctx, outcome, I::ETHER_TYPE),
        Opened::Yes => end::<I>(ctx, Side::In, process()),
    }
}

/// The verdict after a step.
#[inline(always)]
fn end<I: Icmp>(ctx: &TcContext, side: Side, step: u32) -> i32 {
    match outcome_of::<I>(ctx, side, step) {
        Some(outcome) => end_at_tc(ctx, outcome, I::ETHER_TYPE),
        None => TC_ACT_UNSPEC,
    }
}

/// What came of a packet after a step. What needs a deep stack is called here, where it is empty.
#[inline(always)]
fn outcome_of<I: Icmp>(ctx: &TcContext, side: Side, step: u32) -> Option<Outcome> {
    match step {
        MESSAGE => errors::translate::<I>(ctx, side),
        step => Outcome::ALL.get(step as usize).copied(),
    }
}

/// A [`Step`] as a number: the index of its outcome, or one of these.
const PASS: u32 = 0x100;
/// See [`PASS`].
const BEGIN: u32 = 0x101;
/// See [`PASS`].
const MESSAGE: u32 = 0x102;

#[inline(always)]
fn number(step: Step) -> u32 {
    match step {
        Step::Pass => PASS,
        Step::Begin => BEGIN,
        Step::Message => MESSAGE,
        Step::Done(outcome) => outcome.index(),
    }
}

// Global functions (the verifier's word), which the verifier walks by themselves.

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn egress_v4(skb: *mut __sk_buff) -> u32 {
    number(process::<Ipv4Header>(&TcContext::new(skb), Side::Out))
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn egress_v6(skb: *mut __sk_buff) -> u32 {
    number(process::<Ipv6Header>(&TcContext::new(skb), Side::Out))
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn ingress_v4(skb: *mut __sk_buff) -> u32 {
    number(process::<Ipv4Header>(&TcContext::new(skb), Side::In))
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn ingress_v6(skb: *mut __sk_buff) -> u32 {
    number(process::<Ipv6Header>(&TcContext::new(skb), Side::In))
}

xdptun_ebpf::object!();
