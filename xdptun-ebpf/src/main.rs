//! The kernel side of xdptun: its programs, and what becomes of each packet.
//!
//! | program | hook | job |
//! |---|---|---|
//! | [`xdptun_egress`] | tc egress | UDP to TCP; opens flows; makes the segments the daemon asks for |
//! | [`xdptun_ingress`] | tc ingress | everything inbound: handshake, replies, TCP to UDP |
//! | [`xdptun_splitter`] | tc ingress of the splitter pair's far end | sends pieces back |
//! | [`xdptun_fast_in`], [`xdptun_fast_frags`] | XDP, optional | TCP to UDP for established flows, the rest is left to `ingress` |
//!
//! The way of a packet: `xdptun_common::parse` finds its transport header, `tunnel::rules`
//! tells whether it is ours, `tunnel::table` finds the flow, `xdptun_common::tunnel::handshake`
//! decides, and `disguise`, `restore` or `control` change the packet. This file has the entry
//! points; `host::verdict` maps outcomes to verdicts of tc.
//!
//! A folder is a room. A room uses itself and those before it: `packet`, `host`, `flow`,
//! `tunnel`. Each map and read-only variable is in the file of its owner.
#![no_std]
#![no_main]
#![expect(missing_docs, reason = "the program macros generate functions without")]
#![expect(
    internal_features,
    reason = "BPF has no atomic types in core, only the intrinsics below them"
)]
#![feature(asm_experimental_arch, core_intrinsics)]

mod flow;
mod host;
mod packet;
mod tunnel;

use aya_ebpf::bindings::{__sk_buff, TC_ACT_UNSPEC, xdp_action};
use aya_ebpf::macros::{classifier, xdp};
use aya_ebpf::programs::{TcContext, XdpContext};
use xdptun_common::report::copy::Hook;
use xdptun_common::tunnel::outcome::{Fate, Outcome};
use xdptun_common::wire::{Icmp, Ip, IpVersion, Ipv4Header, Ipv6Header};

use crate::host::capture::{self, recorded};
use crate::host::{counters, split, verdict};
use crate::packet::access::{Packet as _, buffers_len};
use crate::packet::direction::Direction;
use crate::packet::options;
use crate::packet::skb::Skb as _;
use crate::packet::version::{frame_ip_version, skb_ip_version};
use crate::tunnel::disguise::Settle;
use crate::tunnel::scope::Tunnel;
use crate::tunnel::{calls, egress, icmp, ingress, rules, vlan};

/// tc egress: datagrams become segments.
#[classifier]
pub fn xdptun_egress(ctx: TcContext) -> i32 {
    recorded::<Tunnel>(&ctx, Hook::Egress, || egress(&ctx))
}

#[inline(always)]
fn egress(ctx: &TcContext) -> i32 {
    match skb_ip_version(ctx) {
        Some(IpVersion::V4) => {
            let process = || egress_v4(ctx.raw());
            let verdict = around_options::<Ipv4Header>(ctx, Outcome::TxDropResize, process);
            beside_datagrams::<Ipv4Header>(ctx, verdict)
        }
        Some(IpVersion::V6) => {
            let process = || egress_v6(ctx.raw());
            let verdict = around_options::<Ipv6Header>(ctx, Outcome::TxDropResize, process);
            beside_datagrams::<Ipv6Header>(ctx, verdict)
        }
        None if vlan::hides_datagram(ctx, Direction::Outbound) => {
            verdict::drop(ctx, Outcome::TxDropVlan)
        }
        None => TC_ACT_UNSPEC,
    }
}

/// tc ingress: segments become datagrams, or are answered.
#[classifier]
pub fn xdptun_ingress(ctx: TcContext) -> i32 {
    recorded::<Tunnel>(&ctx, Hook::Ingress, || ingress(&ctx))
}

#[inline(always)]
fn ingress(ctx: &TcContext) -> i32 {
    if ctx.is_for_another_host() {
        return TC_ACT_UNSPEC;
    }
    match skb_ip_version(ctx) {
        Some(IpVersion::V4) if icmp::is_icmp::<Ipv4Header>(ctx) => icmp_ip::<Ipv4Header>(ctx),
        Some(IpVersion::V6) if icmp::is_icmp::<Ipv6Header>(ctx) => icmp_ip::<Ipv6Header>(ctx),
        Some(IpVersion::V4) => {
            around_options::<Ipv4Header>(ctx, Outcome::RxDropResize, || ingress_v4(ctx.raw()))
        }
        Some(IpVersion::V6) => {
            around_options::<Ipv6Header>(ctx, Outcome::RxDropResize, || ingress_v6(ctx.raw()))
        }
        None if vlan::hides_datagram(ctx, Direction::Inbound) => {
            verdict::drop(ctx, Outcome::RxDropPlainUdp)
        }
        None => TC_ACT_UNSPEC,
    }
}

/// tc ingress of the splitter's far end: pieces go back where they came from.
#[classifier]
pub fn xdptun_splitter(ctx: TcContext) -> i32 {
    split::send_home(&ctx, rules::owns_either)
}

/// XDP: segments of established flows become datagrams.
#[xdp]
pub fn xdptun_fast_in(ctx: XdpContext) -> u32 {
    fast_in(&ctx, ctx.end() - ctx.start())
}

/// The same for drivers that hand over a packet in several buffers (jumbo
/// frames), which the kernel wants declared (5.18).
#[xdp(frags)]
pub fn xdptun_fast_frags(ctx: XdpContext) -> u32 {
    fast_in(&ctx, buffers_len(&ctx))
}

#[inline(always)]
fn fast_in(ctx: &XdpContext, len: usize) -> u32 {
    let met = capture::met_by_xdp::<Tunnel>(ctx, len);
    let outcome = match frame_ip_version(ctx) {
        Some(IpVersion::V4) => tunnel::xdp::process::<Ipv4Header>(ctx, len),
        Some(IpVersion::V6) => tunnel::xdp::process::<Ipv6Header>(ctx, len),
        None => None,
    };
    let Some(outcome) = outcome else {
        return xdp_action::XDP_PASS;
    };
    counters::count(outcome);
    capture::left_by_xdp(ctx, met, outcome, len);
    match outcome.fate() {
        Fate::Pass => xdp_action::XDP_PASS,
        Fate::Split | Fate::Return | Fate::Take | Fate::Drop => xdp_action::XDP_DROP,
    }
}

/// Processes a packet, if need be without its options, which are put back
/// before it goes on; `refused` is the outcome if the kernel does not allow that.
#[inline(always)]
fn around_options<I: Ip>(ctx: &TcContext, refused: Outcome, process: impl Fn() -> i32) -> i32 {
    let verdict = process();
    if verdict != verdict::SET_ASIDE {
        return verdict;
    }
    if options::take::<I>(ctx).is_err() {
        return verdict::drop(ctx, refused);
    }
    match process() {
        TC_ACT_UNSPEC if options::put_back::<I>(ctx).is_err() => verdict::drop(ctx, refused),
        verdict => verdict,
    }
}

/// Handles TCP and ICMP that leave. Called from the entry point, where the stack is empty.
#[inline(always)]
fn beside_datagrams<I: Icmp>(ctx: &TcContext, verdict: i32) -> i32 {
    match verdict {
        verdict::SEGMENT => {
            calls::note::<I>(ctx);
            TC_ACT_UNSPEC
        }
        verdict::MESSAGE if icmp::reveals_datagram::<I>(ctx) => {
            verdict::drop(ctx, Outcome::TxDropIcmp)
        }
        verdict::MESSAGE => TC_ACT_UNSPEC,
        verdict => verdict,
    }
}

// One subprogram for each IP version and direction, so that each has a stack of
// its own; global ones (the verifier's word), so that it walks each once.

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn egress_v4(skb: *mut __sk_buff) -> i32 {
    egress_ip::<Ipv4Header>(&TcContext::new(skb))
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn egress_v6(skb: *mut __sk_buff) -> i32 {
    egress_ip::<Ipv6Header>(&TcContext::new(skb))
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn ingress_v4(skb: *mut __sk_buff) -> i32 {
    ingress_ip::<Ipv4Header>(&TcContext::new(skb))
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn ingress_v6(skb: *mut __sk_buff) -> i32 {
    ingress_ip::<Ipv6Header>(&TcContext::new(skb))
}

#[inline(always)]
fn egress_ip<I: Settle + Icmp>(ctx: &TcContext) -> i32 {
    egress::process::<I>(ctx).map_or(TC_ACT_UNSPEC, |verdict| verdict.carry_out::<I>(ctx))
}

#[inline(always)]
fn ingress_ip<I: Ip>(ctx: &TcContext) -> i32 {
    ingress::process::<I>(ctx).map_or(TC_ACT_UNSPEC, |verdict| verdict.carry_out::<I>(ctx))
}

#[inline(always)]
fn icmp_ip<I: Icmp>(ctx: &TcContext) -> i32 {
    icmp::receive::<I>(ctx).map_or(TC_ACT_UNSPEC, |outcome| {
        verdict::Verdict::Ended(outcome).carry_out::<I>(ctx)
    })
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Helpers marked GPL-only need it; the code itself is MIT OR Apache-2.0.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
