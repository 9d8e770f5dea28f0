//! Who may still open a flow (`xdptun_common::tunnel::share`).

use aya_ebpf::Global;
use aya_ebpf::bindings::{__sk_buff, BPF_NOEXIST};
use aya_ebpf::helpers::generated::bpf_get_socket_uid;
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, LruHashMap};
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::share::{Settled, Tally, charge, cost, kept, network, share};
use xdptun_common::tunnel::state::Opener;

use crate::flow::word::Word;

/// Flows that were made and answered.
#[map]
pub static OPENED: Array<Tally> = Array::with_max_entries(1, 0);

/// How many of these the daemon found to be no more.
#[map]
pub static SETTLED: Array<Settled> = Array::with_max_entries(1, 0);

/// When each network of peers will have earned its share of the table back (nanoseconds).
/// LRU: anyone who completes a handshake makes an entry.
#[map]
pub static NETWORKS: LruHashMap<[u8; 16], u64> = LruHashMap::with_max_entries(4096, 0);

#[unsafe(no_mangle)]
static MAX_FLOWS: Global<u32> = Global::new(65536);

/// How many flows the table holds.
#[inline(always)]
fn max_flows() -> u32 {
    MAX_FLOWS.load()
}

/// Why a peer may not open a flow.
pub enum Refusal {
    /// What is left of the table is kept for this host.
    Kept,
    /// Peers, or those of this network, have their share.
    Share,
}

/// Whether the peer of a flow may open it; its network is charged for it.
#[inline(always)]
pub fn admit_peer(key: &FlowKey, now: u64) -> Result<(), Refusal> {
    let (opened, settled) = counted();
    let max = max_flows();
    if opened.entries(&settled) >= i64::from(max - kept(max)) {
        return Err(Refusal::Kept);
    }
    if opened.waiting(&settled, Opener::Peer) >= i64::from(share(max)) || !charge_network(key, now)
    {
        return Err(Refusal::Share);
    }
    Ok(())
}

/// Whether this host may open a flow for a packet. Its kernel and root's programs may still
/// do so when programs of other users, or of hosts behind it, have their share.
#[inline(never)]
pub fn admits_host(skb: *mut __sk_buff) -> bool {
    let (opened, settled) = counted();
    let share = i64::from(share(max_flows()));
    let limit = if is_trusted(skb) { 2 * share } else { share };
    opened.waiting(&settled, Opener::Host) < limit
}

/// Whether the kernel itself sent the packet, as for WireGuard, or a program of root's.
#[inline(always)]
fn is_trusted(skb: *mut __sk_buff) -> bool {
    // SAFETY: the context is valid for the whole program run.
    unsafe {
        if (*skb).__bindgen_anon_2.sk.is_null() {
            // What is forwarded has no socket either.
            (*skb).ingress_ifindex == 0
        } else {
            bpf_get_socket_uid(skb) == 0
        }
    }
}

/// Counts a flow that was made.
#[inline(always)]
pub fn count_opened(opener: Opener) {
    if let Some(tally) = OPENED.get_ptr_mut(0) {
        // SAFETY: a field of a map value, aligned.
        unsafe { Word::new(&raw mut (*tally).opened[opener as usize]) }.fetch_add(1);
    }
}

/// Counts a flow that was answered for the first time.
#[inline(always)]
pub fn count_answered(opener: Opener) {
    if let Some(tally) = OPENED.get_ptr_mut(0) {
        // SAFETY: a field of a map value, aligned.
        unsafe { Word::new(&raw mut (*tally).answered[opener as usize]) }.fetch_add(1);
    }
}

/// Notes that this host answered a flow that its peer opened: it costs its network nothing
/// any more.
#[inline(never)]
pub fn note_answered(key: &FlowKey) {
    count_answered(Opener::Peer);
    refund_network(key);
}

/// Gives back what the peer's network was charged for a flow.
#[inline(always)]
pub fn refund_network(key: &FlowKey) {
    if let Some(earned_at) = NETWORKS.get_ptr_mut(network(key.remote_address())) {
        // SAFETY: a map value, aligned.
        let earned_at = unsafe { Word::new(earned_at) };
        earned_at.fetch_add(cost(max_flows()).wrapping_neg());
    }
}

/// Takes a flow from the share of the peer's network, if that has one left.
#[inline(always)]
fn charge_network(key: &FlowKey, now: u64) -> bool {
    let network = network(key.remote_address());
    let cost = cost(max_flows());
    let Some(earned_at) = NETWORKS.get_ptr_mut(network) else {
        let _ = NETWORKS.insert(network, now + cost, u64::from(BPF_NOEXIST));
        return true;
    };
    // SAFETY: a map value, aligned.
    let earned_at = unsafe { Word::new(earned_at) };
    // CPUs that race try again; one that loses each time has a network before it that
    // opens flows on all of them.
    for _ in 0..4 {
        let before = earned_at.load();
        let Some(after) = charge(before, now, cost) else {
            return false;
        };
        if earned_at.replace(before, after) {
            return true;
        }
    }
    false
}

#[inline(always)]
fn counted() -> (Tally, Settled) {
    let opened = OPENED.get_ptr(0);
    let settled = SETTLED.get_ptr(0);
    // SAFETY: map values; their words are read one by one, and one that is older than
    // another makes the table seem fuller or emptier by what came in between.
    unsafe {
        (
            opened.map_or(Tally::default(), |tally| tally.read_volatile()),
            settled.map_or(Settled::default(), |settled| settled.read_volatile()),
        )
    }
}
