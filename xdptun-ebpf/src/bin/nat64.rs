//! The object of NAT64: its program.
//!
//! | program | hook | job |
//! |---|---|---|
//! | [`nat64_egress`] | tc egress of the device | translates packets of both versions, hands them back by the device's ingress |
//!
//! Entry points only: `nat64` decides what becomes of a packet.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![expect(missing_docs, reason = "the program macros generate functions without")]

use aya_ebpf::bindings::TC_ACT_SHOT;
use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use xdptun_common::nat64::outcome::{Count, Outcome};
use xdptun_common::report::copy::Hook;
use xdptun_common::wire::{EtherType, IpVersion};

use xdptun_ebpf::host::again::unmark;
use xdptun_ebpf::host::capture::{EveryPacket, note_answer, recorded};
use xdptun_ebpf::host::counters::{count, count_packet};
use xdptun_ebpf::host::interface::{enter, interface};
use xdptun_ebpf::host::redirect::send_up;
use xdptun_ebpf::host::verdict::end_at_tc;
use xdptun_ebpf::nat64::cut::{DONE, nat64_cut};
use xdptun_ebpf::nat64::errors::{nat64_error_to_v4, nat64_error_to_v6};
use xdptun_ebpf::nat64::refuse::{code, nat64_refuse};
use xdptun_ebpf::nat64::step::{MESSAGE, TOO_LONG, outcome};
use xdptun_ebpf::nat64::to_v4::nat64_to_v4;
use xdptun_ebpf::nat64::to_v6::nat64_to_v6;
use xdptun_ebpf::packet::skb::Skb as _;
use xdptun_ebpf::packet::version::skb_ip_version;

/// tc egress of the device: what is routed to the prefix or the pool. Nothing else leaves by it.
#[classifier]
pub fn nat64_egress(ctx: TcContext) -> i32 {
    enter(&ctx);
    unmark(&ctx);
    recorded::<EveryPacket<Outcome>>(&ctx, Hook::Egress, || match skb_ip_version(&ctx) {
        Some(IpVersion::V6) => egress_v6(&ctx),
        Some(IpVersion::V4) => egress_v4(&ctx),
        None => TC_ACT_SHOT,
    })
}

#[inline(always)]
fn egress_v6(ctx: &TcContext) -> i32 {
    let step = match nat64_to_v4(ctx.raw()) {
        MESSAGE => nat64_error_to_v4(ctx.raw()),
        step => step,
    };
    let Some(outcome) = outcome(step) else {
        return TC_ACT_SHOT;
    };
    if let Some(code) = code(outcome)
        && nat64_refuse(ctx.raw(), code.into()) == 0
    {
        let at = interface(ctx);
        count_packet(at, outcome, ctx.len());
        count(at, Count::Refusals);
        note_answer(ctx, outcome);
        return send_up(at.index());
    }
    end_at_tc(ctx, outcome, EtherType::IPV4)
}

#[inline(always)]
fn egress_v4(ctx: &TcContext) -> i32 {
    let step = match nat64_to_v6(ctx.raw()) {
        MESSAGE => nat64_error_to_v6(ctx.raw()),
        TOO_LONG => match nat64_cut(ctx.raw()) {
            DONE => nat64_to_v6(ctx.raw()),
            refused => refused,
        },
        step => step,
    };
    match outcome(step) {
        Some(outcome) => end_at_tc(ctx, outcome, EtherType::IPV6),
        None => TC_ACT_SHOT,
    }
}

xdptun_ebpf::object!();
