//! The object of the function that only counts. It is for the tests, which attach it beside the
//! tunnel, and is not shipped.
//!
//! | program | hook | job |
//! |---|---|---|
//! | [`count_egress`] | tc egress | counts IP packets that leave, each once |
//! | [`count_ingress`] | tc ingress | counts IP packets that came in |
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![expect(missing_docs, reason = "the program macros generate functions without")]

use aya_ebpf::bindings::TC_ACT_UNSPEC;
use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use xdptun_common::count::Count;
use xdptun_common::report::copy::Hook;
use xdptun_common::wire::{EtherType, IpVersion};

use xdptun_ebpf::host::again::is_again;
use xdptun_ebpf::host::capture::{EveryPacket, recorded};
use xdptun_ebpf::host::interface::enter;
use xdptun_ebpf::host::verdict::end_at_tc;
use xdptun_ebpf::packet::version::skb_ip_version;

/// tc egress: IP packets that leave.
#[classifier]
pub fn count_egress(ctx: TcContext) -> i32 {
    enter(&ctx);
    recorded::<EveryPacket<Count>>(&ctx, Hook::Egress, || {
        if is_again(&ctx) {
            return TC_ACT_UNSPEC;
        }
        count(&ctx, Count::OutPackets)
    })
}

/// tc ingress: IP packets that came in.
#[classifier]
pub fn count_ingress(ctx: TcContext) -> i32 {
    enter(&ctx);
    recorded::<EveryPacket<Count>>(&ctx, Hook::Ingress, || count(&ctx, Count::InPackets))
}

#[inline(always)]
fn count(ctx: &TcContext, ending: Count) -> i32 {
    let ether_type = match skb_ip_version(ctx) {
        Some(IpVersion::V4) => EtherType::IPV4,
        Some(IpVersion::V6) => EtherType::IPV6,
        None => return TC_ACT_UNSPEC,
    };
    end_at_tc(ctx, ending, ether_type)
}

xdptun_ebpf::object!();
