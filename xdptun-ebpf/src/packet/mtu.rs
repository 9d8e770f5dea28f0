//! The MTU of the interface by which a packet leaves.

use aya_ebpf::helpers::generated::{bpf_check_mtu, bpf_jiffies64};
use aya_ebpf::programs::TcContext;

use crate::flow::word::Variable;
use crate::packet::link::link_len;
use crate::packet::skb::Skb as _;

/// The longest packet that was found to fit in a tick of the kernel (`jiffies`): the low bits of
/// the tick, those of the interface's index, and 16 bits of the length, in one word, so that
/// several CPUs may change it at once.
static FITTED: Variable = Variable::zero();

/// The bits for a length.
const LEN: u64 = 0xffff;

/// Whether the packet fits, `growth` bytes longer. Asks the device once a tick for packets no
/// longer than others, so a changed MTU counts from the next tick on. `growth` is always the same.
#[inline(always)]
pub fn fits(ctx: &TcContext, growth: usize) -> bool {
    let len = u64::from(ip_len(ctx));
    // SAFETY: no pointers are involved.
    let tick = unsafe { bpf_jiffies64() };
    let here = tick << 40 | (u64::from(ctx.ifindex()) << 40) >> 24;
    let fitted = FITTED.word();
    let last = fitted.load();
    if last & !LEN == here && len <= last & LEN {
        return true;
    }
    if len > LEN || exceeded_mtu(ctx, growth).is_some() {
        return false;
    }
    fitted.store(here | len);
    true
}

/// The interface's MTU, if the packet, `growth` bytes longer, exceeds it (kernel 5.12).
#[inline(always)]
pub fn exceeded_mtu(ctx: &TcContext, growth: usize) -> Option<u32> {
    // By default the helper would compare with what the device calls its link header, in which
    // some have room for more.
    let mut mtu = ip_len(ctx);
    // SAFETY: interface index 0 is the packet's own device; `mtu` outlives the call.
    match unsafe { bpf_check_mtu(ctx.raw().cast(), 0, &raw mut mtu, growth as i32, 0) } {
        0 => None,
        _ => Some(mtu),
    }
}

/// The length as IP counts it.
#[inline(always)]
fn ip_len(ctx: &TcContext) -> u32 {
    ctx.len() - link_len() as u32
}
