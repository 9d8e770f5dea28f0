//! The object of the tunnel: its programs.
//!
//! | program | hook | job |
//! |---|---|---|
//! | [`xdptun_egress`] | tc egress | UDP to TCP; opens flows; makes the segments the daemon asks for |
//! | [`xdptun_ingress`] | tc ingress | everything inbound: handshake, replies, TCP to UDP |
//! | [`xdptun_splitter`] | tc ingress of the splitter pair's far end | sends pieces back |
//! | [`xdptun_joiner`] | tc ingress of its near end | hands restored datagrams up that GRO has met |
//! | [`xdptun_xdp`], [`xdptun_xdp_frags`] | XDP, optional | TCP to UDP for established flows, the rest is left to `ingress` |
//!
//! Entry points only: `tunnel` decides what becomes of a packet, `host::verdict` maps its fate
//! to the verdicts of tc and XDP.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![expect(missing_docs, reason = "the program macros generate functions without")]

use aya_ebpf::bindings::{__sk_buff, TC_ACT_REDIRECT, TC_ACT_UNSPEC, xdp_action};
use aya_ebpf::macros::{classifier, xdp};
use aya_ebpf::programs::{TcContext, XdpContext};
use aya_log_ebpf::macro_support::{Level, level_enabled};
use xdptun_common::report::copy::Hook;
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::wire::{Icmp, Ip, IpVersion, Ipv4Header, Ipv6Header};

use xdptun_ebpf::host::again;
use xdptun_ebpf::host::capture::{self, noted_counter, recorded};
use xdptun_ebpf::host::counters::add_bytes;
use xdptun_ebpf::host::interface::{enter, interface, interface_of_frame};
use xdptun_ebpf::host::{split, verdict};
use xdptun_ebpf::packet::access::{Packet as _, buffers_len};
use xdptun_ebpf::packet::direction::Direction;
use xdptun_ebpf::packet::options;
use xdptun_ebpf::packet::settle::Settle;
use xdptun_ebpf::packet::skb::Skb as _;
use xdptun_ebpf::packet::version::{frame_ip_version, skb_ip_version};
use xdptun_ebpf::tunnel::scope::Tunnel;
use xdptun_ebpf::tunnel::veil::pad::{pad, unpad};
use xdptun_ebpf::tunnel::veil::{cover, forget_done, uncover_payload, veils};
use xdptun_ebpf::tunnel::verdict::{Step, Verdict, refused};
use xdptun_ebpf::tunnel::{calls, egress, fast, fragments, icmp, ingress, join, rules, vlan};

/// tc egress: datagrams become segments.
#[classifier]
pub fn xdptun_egress(ctx: TcContext) -> i32 {
    enter(&ctx);
    let verdict = recorded::<Tunnel>(&ctx, Hook::Egress, || egress(&ctx));
    // Only now: the mark tells a piece of a super-packet. What is redirected may need one.
    if verdict != TC_ACT_REDIRECT {
        again::unmark(&ctx);
    }
    verdict
}

#[inline(always)]
fn egress(ctx: &TcContext) -> i32 {
    match skb_ip_version(ctx) {
        Some(IpVersion::V4) => {
            let in_full = || egress_in_full::<Ipv4Header>(ctx, || egress_v4(ctx.raw()));
            unless_missed(|| fast_egress_v4(ctx.raw()), in_full)
        }
        Some(IpVersion::V6) => {
            let in_full = || egress_in_full::<Ipv6Header>(ctx, || egress_v6(ctx.raw()));
            unless_missed(|| fast_egress_v6(ctx.raw()), in_full)
        }
        None if vlan::refuses_datagram(ctx, Direction::Outbound) => {
            verdict::drop(ctx, Outcome::TxDropVlan)
        }
        None => TC_ACT_UNSPEC,
    }
}

/// tc ingress: segments become datagrams, or are answered.
#[classifier]
pub fn xdptun_ingress(ctx: TcContext) -> i32 {
    enter(&ctx);
    // Not recorded: a capture has the datagram since it was restored.
    if let Some(verdict) = join::land(&ctx) {
        return verdict;
    }
    recorded::<Tunnel>(&ctx, Hook::Ingress, || ingress(&ctx))
}

#[inline(always)]
fn ingress(ctx: &TcContext) -> i32 {
    if ctx.is_for_another_host() {
        return TC_ACT_UNSPEC;
    }
    match skb_ip_version(ctx) {
        Some(IpVersion::V4) => {
            let in_full = || ingress_in_full::<Ipv4Header>(ctx, || ingress_v4(ctx.raw()));
            unless_missed(|| fast_ingress_v4(ctx.raw()), in_full)
        }
        Some(IpVersion::V6) => {
            let in_full = || ingress_in_full::<Ipv6Header>(ctx, || ingress_v6(ctx.raw()));
            unless_missed(|| fast_ingress_v6(ctx.raw()), in_full)
        }
        None if vlan::refuses_datagram(ctx, Direction::Inbound) => {
            verdict::drop(ctx, Outcome::RxDropPlainUdp)
        }
        None => TC_ACT_UNSPEC,
    }
}

/// tc ingress of the splitter's far end: pieces go back where they came from.
#[classifier]
pub fn xdptun_splitter(ctx: TcContext) -> i32 {
    enter(&ctx);
    split::send_home(&ctx, rules::owns_either)
}

/// tc ingress of the splitter's near end: restored datagrams that GRO has met come in by the
/// interface again.
#[classifier]
pub fn xdptun_joiner(ctx: TcContext) -> i32 {
    enter(&ctx);
    join::come_back(&ctx)
}

/// XDP: segments of established flows become datagrams.
#[xdp]
pub fn xdptun_xdp(ctx: XdpContext) -> u32 {
    restore_at_xdp(&ctx, ctx.end() - ctx.start())
}

/// The same for drivers that hand over a packet in several buffers (jumbo
/// frames), which the kernel wants declared (5.18).
#[xdp(frags)]
pub fn xdptun_xdp_frags(ctx: XdpContext) -> u32 {
    restore_at_xdp(&ctx, buffers_len(&ctx))
}

#[inline(always)]
fn restore_at_xdp(ctx: &XdpContext, len: usize) -> u32 {
    let at = interface_of_frame(ctx);
    let met = capture::met_by_xdp::<Tunnel>(ctx, at, len);
    let outcome = match frame_ip_version(ctx) {
        Some(IpVersion::V4) => xdptun_ebpf::tunnel::xdp::process::<Ipv4Header>(ctx, at, len),
        Some(IpVersion::V6) => xdptun_ebpf::tunnel::xdp::process::<Ipv6Header>(ctx, at, len),
        None => None,
    };
    let Some(outcome) = outcome else {
        return xdp_action::XDP_PASS;
    };
    let len_after = len - xdptun_ebpf::tunnel::xdp::shortened_by(outcome);
    capture::left_by_xdp(ctx, at, met, outcome, len_after);
    verdict::end_at_xdp(at, outcome, len_after)
}

/// The verdict of the fast path, or that of the path for all packets, which alone writes a line of
/// each to the log.
#[inline(always)]
fn unless_missed(fast: impl FnOnce() -> i32, in_full: impl FnOnce() -> i32) -> i32 {
    let step = match level_enabled(Level::Trace) {
        true => Step::Miss,
        false => Step::from_raw(fast()),
    };
    match step {
        Step::Miss => in_full(),
        step => step.to_raw(),
    }
}

/// What becomes of any packet that leaves; `process` is the subprogram of its IP version.
#[inline(always)]
fn egress_in_full<I: Settle + Icmp>(ctx: &TcContext, process: impl Fn() -> i32) -> i32 {
    let step = around_options::<I>(ctx, Direction::Outbound, || {
        pad_and_cover::<I>(ctx, &process).to_raw()
    });
    beside_datagrams::<I>(ctx, step)
}

/// Processes a packet that leaves; pads it before and covers its payload afterwards, if that is to be
/// done.
#[inline(always)]
fn pad_and_cover<I: Ip>(ctx: &TcContext, process: impl Fn() -> i32) -> Step {
    let mut step = Step::from_raw(process());
    if !veils() {
        return step;
    }
    if step == Step::Pad {
        step = match pad::<I>(ctx) {
            Outcome::TxDisguised => Step::from_raw(process()),
            outcome => Step::Done(verdict::drop(ctx, outcome)),
        };
    }
    if step == Step::Cover {
        step = Step::Done(match cover::<I>(ctx) {
            true => verdict::end_at_tc(ctx, Outcome::TxDisguised, I::ETHER_TYPE),
            false => verdict::drop(ctx, Outcome::TxDropAccess),
        });
    }
    forget_done();
    match step {
        // It must not leave as it is.
        Step::Pad => Step::Done(verdict::drop(ctx, Outcome::TxDropAccess)),
        step => step,
    }
}

/// The same for one that arrives, and may have to be uncovered first.
#[inline(always)]
fn ingress_in_full<I: Icmp>(ctx: &TcContext, process: impl Fn() -> i32) -> i32 {
    if icmp::is_icmp::<I>(ctx) {
        return icmp_ip::<I>(ctx);
    }
    let step = around_options::<I>(ctx, Direction::Inbound, || {
        uncover_and_unpad::<I>(ctx, &process).to_raw()
    });
    match step {
        Step::Fragment => {
            let outcome = fragments::arriving::restore::<I>(ctx);
            verdict::end_at_tc(ctx, outcome, I::ETHER_TYPE)
        }
        step => step.to_raw(),
    }
}

/// Processes a packet that arrives; uncovers its payload before and unpads it afterwards, if that is
/// to be done.
#[inline(always)]
fn uncover_and_unpad<I: Ip>(ctx: &TcContext, process: impl Fn() -> i32) -> Step {
    let mut step = Step::from_raw(process());
    if !veils() {
        return step;
    }
    if step == Step::Uncover {
        step = match uncover_payload::<I>(ctx) {
            true => Step::from_raw(process()),
            false => Step::Done(verdict::drop(ctx, Outcome::RxDropAccess)),
        };
    }
    forget_done();
    match step {
        Step::Unpad if unpad::<I>(ctx) => {
            Step::Done(verdict::end_at_tc(ctx, Outcome::RxRestored, I::ETHER_TYPE))
        }
        Step::Unpad => Step::Done(verdict::drop(ctx, Outcome::RxDropMalformed)),
        step => step,
    }
}

/// Processes a packet, if need be without its options, which are put back before it goes on.
#[inline(always)]
fn around_options<I: Ip>(ctx: &TcContext, direction: Direction, process: impl Fn() -> i32) -> Step {
    let end = |error| Step::Done(verdict::drop(ctx, refused(error, direction)));
    let mut has_stashed = false;
    capture::clear_note(ctx);
    // One call: of two the compiler makes a function, whose frame does not fit on the stack.
    let step = loop {
        match Step::from_raw(process()) {
            Step::Stash if !has_stashed => match options::take::<I>(ctx) {
                Ok(()) => has_stashed = true,
                Err(error) => return end(error),
            },
            step => break step,
        }
    };
    let goes_on = step == Step::PASS || join::is_under_way(ctx);
    match step {
        Step::Done(_) if has_stashed && goes_on => match options::put_back::<I>(ctx) {
            Ok(len) => {
                if let Some(counter) = noted_counter(ctx) {
                    add_bytes(interface(ctx), counter, len);
                }
                step
            }
            Err(error) => end(error),
        },
        step => step,
    }
}

/// Handles fragments, TCP and ICMP that leave. Called from the entry point, where the stack is empty.
#[inline(always)]
fn beside_datagrams<I: Settle + Icmp>(ctx: &TcContext, step: Step) -> i32 {
    match step {
        Step::Segment => {
            calls::note::<I>(ctx);
            TC_ACT_UNSPEC
        }
        Step::Fragment => match fragments::leaving::process::<I>(ctx) {
            Some(outcome) => verdict::end_at_tc(ctx, outcome, I::ETHER_TYPE),
            None => TC_ACT_UNSPEC,
        },
        Step::Message if icmp::reveals_datagram::<I>(ctx) => {
            verdict::drop(ctx, Outcome::TxDropIcmp)
        }
        Step::Message => TC_ACT_UNSPEC,
        Step::Miss
        | Step::Stash
        | Step::Pad
        | Step::Cover
        | Step::Uncover
        | Step::Unpad
        | Step::Done(_) => step.to_raw(),
    }
}

// One subprogram for each IP version and direction, so that each has a stack of its own.
//
// The last four, for packets that the fast path leaves, are global functions (the verifier's word),
// which the verifier walks once. They take a context, so without BTF the loader makes them static
// (docs/verifier.md).

#[inline(never)]
fn fast_egress_v4(skb: *mut __sk_buff) -> i32 {
    fast::egress::process::<Ipv4Header>(&TcContext::new(skb)).to_raw()
}

#[inline(never)]
fn fast_egress_v6(skb: *mut __sk_buff) -> i32 {
    fast::egress::process::<Ipv6Header>(&TcContext::new(skb)).to_raw()
}

#[inline(never)]
fn fast_ingress_v4(skb: *mut __sk_buff) -> i32 {
    fast::ingress::process::<Ipv4Header>(&TcContext::new(skb)).to_raw()
}

#[inline(never)]
fn fast_ingress_v6(skb: *mut __sk_buff) -> i32 {
    fast::ingress::process::<Ipv6Header>(&TcContext::new(skb)).to_raw()
}

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
    let step = |verdict: Verdict| verdict.carry_out::<I>(ctx);
    egress::process::<I>(ctx).map_or(Step::PASS, step).to_raw()
}

#[inline(always)]
fn ingress_ip<I: Ip>(ctx: &TcContext) -> i32 {
    let step = |verdict: Verdict| verdict.carry_out::<I>(ctx);
    ingress::process::<I>(ctx).map_or(Step::PASS, step).to_raw()
}

#[inline(always)]
fn icmp_ip<I: Icmp>(ctx: &TcContext) -> i32 {
    let step = |outcome| Verdict::Ended(outcome).carry_out::<I>(ctx);
    icmp::receive::<I>(ctx).map_or(Step::PASS, step).to_raw()
}

xdptun_ebpf::object!();
