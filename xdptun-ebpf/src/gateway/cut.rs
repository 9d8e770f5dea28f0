//! Sessions that user space has ended, because no rule has them any more.

use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap};
use xdptun_common::flow::tick::Tick;
use xdptun_common::gateway::rule::MAX_CUT;
use xdptun_common::gateway::tuple::Tuple;

/// Their packets, and until when they are refused, a [`Tick`].
#[map]
pub static CUT: HashMap<Tuple, u32> = HashMap::with_max_entries(MAX_CUT, BPF_F_NO_PREALLOC);

/// The order to cut that was carried out last. Only user space reads it.
#[map]
pub static CUT_ORDER: Array<u32> = Array::with_max_entries(1, 0);

/// Whether a packet of no session is one of a session that was cut.
#[inline(never)]
pub fn was_cut(packet: &Tuple, now: Tick) -> bool {
    // SAFETY: a map value of one word.
    let until = CUT.get_ptr(packet).map(|until| unsafe { until.read() });
    until.is_some_and(|until| until.wrapping_sub(now.0).cast_signed() > 0)
}
