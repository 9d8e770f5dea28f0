//! Which packets a capture copies.

use aya_ebpf::programs::{TcContext, XdpContext};
use xdptun_common::gateway::outcome::Outcome;

use crate::host::capture::Scope;
use crate::packet::direction::Direction;
use crate::packet::version::{frame_ip_version, skb_ip_version};

/// Every IP packet; a reader keeps those that have an outcome.
pub struct Gateway;

impl Scope for Gateway {
    type Ending = Outcome;

    #[inline(always)]
    fn shortens(_ending: Outcome) -> usize {
        0
    }

    #[inline(always)]
    fn has_skb(ctx: &TcContext, _direction: Direction) -> bool {
        skb_ip_version(ctx).is_some()
    }

    #[inline(always)]
    fn has_frame(ctx: &XdpContext) -> bool {
        frame_ip_version(ctx).is_some()
    }
}
