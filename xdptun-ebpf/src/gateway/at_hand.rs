//! What is known of the packet at hand, and of the session that it is about to begin. Not on the
//! stack: tuples are keys of maps, and the chains of calls are deep.

use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use xdptun_common::flow::tick::Tick;
use xdptun_common::gateway::nat::{Binding, InsideKey, OutsideKey};
use xdptun_common::gateway::rule::BackEnd;
use xdptun_common::gateway::session::Entry;
use xdptun_common::gateway::tuple::{End, Tuple};
use xdptun_common::parse::FragmentKey;
use xdptun_common::wire::Flags;

/// The packet at hand.
#[map]
pub static AT_HAND: PerCpuArray<AtHand> = PerCpuArray::with_max_entries(1, 0);

/// The packet at hand, and the session that it is about to begin.
#[repr(C)]
pub struct AtHand {
    /// The packet, as the hook meets it.
    pub packet: Tuple,
    /// The other direction of the session that is looked at.
    pub opposite: Tuple,
    /// The answer to the packet.
    pub answer: Tuple,
    /// The packet when it leaves, which gets another source.
    pub leaving: Tuple,
    /// The answer to that.
    pub returning: Tuple,
    /// The entry that is about to be inserted.
    pub entry: Entry,
    /// Where the packet is forwarded to.
    pub back_end: BackEnd,
    /// Its address and port.
    pub to: End,
    /// The outside end of the inside end that sends.
    pub outside: End,
    /// The key of its binding.
    pub outside_key: OutsideKey,
    /// That of the inside end.
    pub inside_key: InsideKey,
    /// The binding that is about to be made.
    pub binding: Binding,
    /// The datagram that the packet is a fragment of, if it is one.
    pub datagram: FragmentKey,
    /// Index of the interface that translates.
    pub interface: u32,
    /// The packet's TCP flags, none if it is not TCP.
    pub flags: Flags,
    /// Whether it is noted what became of the fragment.
    pub is_noted: u8,
    /// The packet's sequence number.
    pub sequence: u32,
    /// Its acknowledgement number.
    pub acknowledgement: u32,
    /// The length of the IP packet.
    pub len: u32,
    /// When it is met.
    pub now: Tick,
}

/// The packet at hand. There always is one; the verifier does not know. One such reference at a
/// time is used: nothing else runs on this CPU before the program ends.
#[inline(always)]
pub fn at_hand() -> Option<&'static mut AtHand> {
    // SAFETY: a per-CPU value, which only this program run touches; any bytes are a value.
    AT_HAND
        .get_ptr_mut(0)
        .map(|at_hand| unsafe { &mut *at_hand })
}
