//! The kernel side of xdptun: four programs, and what becomes of each packet.
//!
//! | program | hook | job |
//! |---|---|---|
//! | [`xdptun_egress`] | tc egress | UDP to TCP; opens flows; makes the segments the daemon asks for |
//! | [`xdptun_ingress`] | tc ingress | everything inbound: handshake, replies, TCP to UDP |
//! | [`xdptun_splitter`] | tc ingress of the splitter pair's far end | sends pieces back |
//! | [`xdptun_fast_in`] | XDP, optional | TCP to UDP for established flows, the rest is left to `ingress` |
//!
//! The way of a packet: `packet` reads it, `xdptun_common::parse` finds the
//! segment, `rules` tells whose it is, `table` finds the flow; then `disguise`,
//! `restore` or `control` change it. This file only maps outcomes to verdicts.
#![no_std]
#![no_main]
#![expect(missing_docs, reason = "the program macros generate functions without")]
#![expect(
    internal_features,
    reason = "BPF has no atomic types in core, only the intrinsics below them"
)]
#![feature(asm_experimental_arch, core_intrinsics)]

mod atomic;
mod control;
mod cookie;
mod counters;
mod disguise;
mod egress;
mod events;
mod fast;
mod ingress;
mod maps;
mod packet;
mod restore;
mod rules;
mod split;
mod table;
mod vlan;

use aya_ebpf::bindings::{TC_ACT_REDIRECT, TC_ACT_SHOT, TC_ACT_UNSPEC, xdp_action};
use aya_ebpf::macros::{classifier, xdp};
use aya_ebpf::programs::{TcContext, XdpContext};
use xdptun_common::counter::{Fate, Outcome};
use xdptun_common::wire::{Ip, IpVersion, Ipv4Header, Ipv6Header};

use crate::disguise::Settle;
use crate::ingress::Verdict;

/// tc egress: datagrams become segments.
#[classifier]
pub fn xdptun_egress(ctx: TcContext) -> i32 {
    match packet::skb_ip_version(&ctx) {
        Some(IpVersion::V4) => egress_ip::<Ipv4Header>(&ctx),
        Some(IpVersion::V6) => egress_ip::<Ipv6Header>(&ctx),
        None if vlan::hides_datagram(&ctx) => tc_verdict(Outcome::TxDropVlan),
        None => TC_ACT_UNSPEC,
    }
}

/// tc ingress: segments become datagrams, or are answered.
#[classifier]
pub fn xdptun_ingress(ctx: TcContext) -> i32 {
    match packet::skb_ip_version(&ctx) {
        Some(IpVersion::V4) => ingress_ip::<Ipv4Header>(&ctx),
        Some(IpVersion::V6) => ingress_ip::<Ipv6Header>(&ctx),
        None if vlan::hides_datagram(&ctx) => tc_verdict(Outcome::RxDropPlainUdp),
        None => TC_ACT_UNSPEC,
    }
}

/// tc ingress of the splitter's far end: pieces go back where they came from.
#[classifier]
pub fn xdptun_splitter(ctx: TcContext) -> i32 {
    split::send_home(&ctx)
}

/// XDP: segments of established flows become datagrams.
#[xdp]
pub fn xdptun_fast_in(ctx: XdpContext) -> u32 {
    let outcome = match packet::frame_ip_version(&ctx) {
        Some(IpVersion::V4) => fast::process::<Ipv4Header>(&ctx),
        Some(IpVersion::V6) => fast::process::<Ipv6Header>(&ctx),
        None => None,
    };
    let Some(outcome) = outcome else {
        return xdp_action::XDP_PASS;
    };
    counters::count(outcome);
    match outcome.fate() {
        Fate::Pass => xdp_action::XDP_PASS,
        Fate::Split | Fate::Take | Fate::Drop => xdp_action::XDP_DROP,
    }
}

// One subprogram for each IP version, so that each has a stack of its own.

#[inline(never)]
fn egress_ip<I: Settle>(ctx: &TcContext) -> i32 {
    match egress::process::<I>(ctx) {
        None => TC_ACT_UNSPEC,
        Some(outcome) => tc_verdict(outcome),
    }
}

#[inline(never)]
fn ingress_ip<I: Ip>(ctx: &TcContext) -> i32 {
    match ingress::process::<I>(ctx) {
        None => TC_ACT_UNSPEC,
        Some(Verdict::Ended(outcome)) => tc_verdict(outcome),
        Some(Verdict::Answered(outcome)) => {
            counters::count(outcome);
            TC_ACT_REDIRECT
        }
    }
}

/// `TC_ACT_UNSPEC` is `TCX_NEXT`: filters after ours still see the packet.
#[inline(always)]
fn tc_verdict(outcome: Outcome) -> i32 {
    counters::count(outcome);
    match outcome.fate() {
        Fate::Pass => TC_ACT_UNSPEC,
        Fate::Split => split::hand_over(),
        Fate::Take => packet::swallow(),
        Fate::Drop => TC_ACT_SHOT,
    }
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Helpers marked GPL-only need it; the code itself is MIT OR Apache-2.0.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
