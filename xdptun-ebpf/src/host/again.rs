//! Packets that pass a hook again, or that xdptun itself made
//! ([`xdptun_common::again`]).

use aya_ebpf::programs::TcContext;
use xdptun_common::again::{TC_INDEX, is_own};

use crate::machine::opaque;
use crate::packet::skb::Skb as _;

/// Marks a packet that is about to be redirected.
#[inline(always)]
pub fn mark(ctx: &TcContext) {
    ctx.set_tc_index(TC_INDEX);
}

/// Takes that mark off. The program next to the network does, as the kernel leaves it on a packet
/// that crosses to another network namespace, where another xdptun would take the packet for its
/// own; and so does who gets packets from namespaces that others control.
#[inline(always)]
pub fn unmark(ctx: &TcContext) {
    if was_redirected(ctx) {
        ctx.set_tc_index(0);
    }
}

/// Whether a packet has [that mark](mark).
#[inline(always)]
pub fn was_redirected(ctx: &TcContext) -> bool {
    ctx.tc_index() == TC_INDEX
}

/// Whether xdptun itself made a packet of this network namespace, or its daemon sends it again.
#[inline(always)]
pub fn is_made_here(ctx: &TcContext) -> bool {
    is_own(ctx.mark())
}

/// Whether a packet on the egress hook has passed it before, or is one of xdptun's own. A function
/// may clear its own marks, so programs behind it cannot tell.
#[inline(always)]
pub fn is_again(ctx: &TcContext) -> bool {
    // Both are loaded here. The compiler would choose between their addresses, and the
    // verifier takes no such address of a context.
    let index = opaque(ctx.tc_index().into());
    let mark = opaque(ctx.mark().into());
    index == u64::from(TC_INDEX) || is_own(mark as u32)
}
