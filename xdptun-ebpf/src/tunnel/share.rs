//! The share of the table that unanswered flows may use (`xdptun_common::tunnel::share`).

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
/// LRU: any sender that completes a handshake makes an entry.
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

/// Whether the peer of a flow may open it. Its network is charged when the flow is in the
/// table, so that of two segments that race to make it neither is refused for the other's
/// sake; CPUs that race may take one more each than there is.
#[inline(always)]
pub fn admit_peer(key: &FlowKey, now: u64) -> Result<(), Refusal> {
    let (opened, settled) = counted();
    let max = max_flows();
    if opened.entries(&settled) >= i64::from(max - kept(max)) {
        return Err(Refusal::Kept);
    }
    if opened.waiting(&settled, Opener::Peer) >= i64::from(share(max)) || !has_share(key, now) {
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
    if let Some(earned_at) = earned_at(key) {
        earned_at.fetch_add(cost(max_flows()).wrapping_neg());
    }
}

/// Whether the peer's network has something left of its share.
#[inline(always)]
fn has_share(key: &FlowKey, now: u64) -> bool {
    earned_at(key)
        .is_none_or(|earned_at| charge(earned_at.load(), now, cost(max_flows())).is_some())
}

/// Takes a flow from the share of the peer's network.
#[inline(always)]
pub fn charge_network(key: &FlowKey, now: u64) {
    let cost = cost(max_flows());
    let Some(earned_at) = earned_at(key) else {
        let network = network(key.remote_address());
        let _ = NETWORKS.insert(network, now + cost, u64::from(BPF_NOEXIST));
        return;
    };
    let before = earned_at.load();
    // If another CPU charges it at this moment, that is no longer in the past.
    if before >= now || !earned_at.replace(before, now + cost) {
        earned_at.fetch_add(cost);
    }
}

/// When the peer's network will have earned its share back, if it was charged.
#[inline(always)]
fn earned_at(key: &FlowKey) -> Option<Word<u64>> {
    let earned_at = NETWORKS.get_ptr_mut(network(key.remote_address()))?;
    // SAFETY: a map value, aligned.
    Some(unsafe { Word::new(earned_at) })
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
