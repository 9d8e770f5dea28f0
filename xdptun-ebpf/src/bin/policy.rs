//! The object of the policy: its programs.
//!
//! | program | hook | job |
//! |---|---|---|
//! | [`policy_egress`] | tc egress | searches packets that leave, each once |
//! | [`policy_ingress`] | tc ingress | searches packets that came in |
//!
//! Entry points only: `policy` decides what becomes of a packet.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![expect(missing_docs, reason = "the program macros generate functions without")]

use aya_ebpf::bindings::TC_ACT_UNSPEC;
use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use xdptun_common::policy::outcome::Outcome;
use xdptun_common::policy::rule::{Direction, Told};
use xdptun_common::report::copy::Hook;
use xdptun_common::wire::{EtherType, IpVersion};

use xdptun_ebpf::host::again::{is_again, is_made_here};
use xdptun_ebpf::host::capture::{EveryPacket, note_detail, recorded};
use xdptun_ebpf::host::interface::{enter, interface};
use xdptun_ebpf::host::redirect::send_up;
use xdptun_ebpf::host::verdict::end_at_tc;
use xdptun_ebpf::packet::skb::Skb as _;
use xdptun_ebpf::packet::version::skb_ip_version;
use xdptun_ebpf::policy::process::process;

/// tc egress: packets that leave.
#[classifier]
pub fn policy_egress(ctx: TcContext) -> i32 {
    enter(&ctx);
    if ctx.mark() == Told::In as u32 {
        return send_up(interface(&ctx).index());
    }
    recorded::<EveryPacket<Outcome>>(&ctx, Hook::Egress, || match is_again(&ctx) {
        true => TC_ACT_UNSPEC,
        false => judge(&ctx, Direction::Out),
    })
}

/// tc ingress: packets that came in.
#[classifier]
pub fn policy_ingress(ctx: TcContext) -> i32 {
    enter(&ctx);
    if ctx.mark() == Told::In as u32 {
        // It was for the program on the way out; the mark belongs to the user from here on.
        ctx.skb.set_mark(0);
    }
    // A fragment that waited for its first one has been judged when it came in.
    let passes = ctx.is_for_another_host() || is_made_here(&ctx);
    recorded::<EveryPacket<Outcome>>(&ctx, Hook::Ingress, || match passes {
        true => TC_ACT_UNSPEC,
        false => judge(&ctx, Direction::In),
    })
}

/// The verdict.
#[inline(always)]
fn judge(ctx: &TcContext, direction: Direction) -> i32 {
    let version = skb_ip_version(ctx);
    let Some((outcome, rule)) = process(ctx, version, direction) else {
        return TC_ACT_UNSPEC;
    };
    let ether_type = match version {
        Some(IpVersion::V4) => EtherType::IPV4,
        Some(IpVersion::V6) => EtherType::IPV6,
        None => EtherType::VLAN,
    };
    let verdict = end_at_tc(ctx, outcome, ether_type);
    note_detail(ctx, rule);
    verdict
}

xdptun_ebpf::object!();
