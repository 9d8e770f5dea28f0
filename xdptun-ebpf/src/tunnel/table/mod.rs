//! The flow table as the programs use it: look-ups, and changes word by word.

use core::mem::MaybeUninit;

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{HashMap, PerCpuArray};
use aya_ebpf::programs::TcContext;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::flow::tick::Tick;
use xdptun_common::tunnel::ack::AckMarks;
use xdptun_common::tunnel::handshake::Endpoint;
use xdptun_common::tunnel::state::{Flow, KeptFields, Opener, REMEMBERED, State};

use crate::host::growth::FLAGS_WITH_ATOMICS;
use crate::host::interface::interface;
use crate::packet::direction::{Direction, link_to_peer};
use crate::tunnel::cookie::{first_identification, label};
use crate::tunnel::share;
use crate::tunnel::share::Refusal;

/// A word of the entry by its field name.
macro_rules! word {
    ($entry:expr, $($field:tt)+) => {
        // SAFETY: a field of a map value that the look-up returned; `Flow` is
        // `repr(C)` and its words are aligned.
        unsafe { Word::new(&raw mut (*$entry.0).$($field)+) }
    };
}

mod state;
#[cfg(test)]
mod tests;
mod traffic;

/// Every flow. Not preallocated on 64-bit kernels, so that closed flows give their memory back;
/// not LRU, so that a flood cannot push a live flow out. User space sets the
/// capacity.
#[map]
pub static FLOWS: HashMap<FlowKey, Flow> = HashMap::with_max_entries(65536, FLAGS_WITH_ATOMICS);

/// The flow entry that this program run is about to insert. Not on the stack, which is
/// full.
#[map]
pub static NEW_FLOW: PerCpuArray<Flow> = PerCpuArray::with_max_entries(1, 0);

/// An entry of the table. Stays readable for the whole program run: the kernel
/// frees it only after an RCU grace period, and the daemon removes only entries
/// that have been closed, idle or unanswered for a while.
#[derive(Clone, Copy)]
pub struct Entry(*mut Flow);

/// The entry of a flow.
#[inline(always)]
pub fn find(key: &FlowKey) -> Option<Entry> {
    FLOWS.get_ptr_mut(key).map(Entry)
}

/// Why an entry was not made. Another CPU may have made it meanwhile, whatever the reason.
pub enum InsertError {
    /// The table is full, or for a peer what is left of it is kept.
    Full,
    /// Peers have their share of it.
    Share,
}

/// The count of SYNs in an entry that is made in this state.
#[inline(always)]
const fn syns_at_first(state: State) -> u16 {
    match state {
        State::SynReceived => REMEMBERED,
        State::Closed | State::SynSent | State::Established | State::FinSent => 0,
    }
}

/// Makes an entry for the flow of the packet at hand, whose endpoint is `endpoint`. A subprogram: the new entry does
/// not fit on the stack, and is put together in a map.
#[inline(never)]
pub fn insert(
    ctx: &TcContext,
    direction: Direction,
    key: &FlowKey,
    endpoint: &Endpoint,
    now: u64,
) -> Result<(), InsertError> {
    let opener = Opener::of_new(endpoint.state);
    if opener == Opener::Peer {
        match share::admit_peer(key, now) {
            Ok(()) => {}
            Err(Refusal::Kept) => return Err(InsertError::Full),
            Err(Refusal::Share) => return Err(InsertError::Share),
        }
    }
    let Some(flow) = NEW_FLOW.get_ptr_mut(0) else {
        return Err(InsertError::Full);
    };
    // SAFETY: a per-CPU value, which only this program run touches; all-zero bytes are a
    // valid `Flow`.
    let flow = unsafe {
        flow.write(MaybeUninit::zeroed().assume_init());
        &mut *flow
    };
    flow.state = endpoint.state as u32;
    flow.iss = endpoint.iss;
    flow.snd_una = endpoint.snd_una;
    flow.snd_nxt = endpoint.snd_nxt;
    flow.rcv_nxt = endpoint.rcv_nxt;
    flow.acked = endpoint.rcv_nxt;
    flow.ack_marks = AckMarks::new(endpoint.snd_una, Tick::at(now));
    flow.opened_at = now;
    flow.sent_at = now;
    flow.received_at = now;
    flow.data_at = now;
    flow.link = link_to_peer(ctx, direction);
    flow.interface = interface(ctx).index();
    flow.syns = syns_at_first(endpoint.state);
    flow.kept_fields = KeptFields::new(first_identification(key, endpoint.iss));
    if !matches!(endpoint.state, State::SynSent) {
        // The SYN-ACK, which was sent without a flow, had this one.
        flow.label = label(key);
    }
    if matches!(endpoint.state, State::Established) {
        flow.established_at = now;
    }
    // By reference: a copy would be on the stack.
    let flow: &Flow = flow;
    match FLOWS.insert(key, flow, u64::from(BPF_NOEXIST)) {
        Ok(()) => {
            share::count_opened(opener);
            if opener == Opener::Peer {
                share::charge_network(key, now);
            }
            Ok(())
        }
        Err(_) => Err(InsertError::Full),
    }
}
