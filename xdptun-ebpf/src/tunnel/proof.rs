//! The proof that a caller knows the secret. All of it is in subprograms: where
//! there is no secret, their callers need no stack for it.

use aya_ebpf::bindings::{__sk_buff, BPF_NOEXIST};
use aya_ebpf::helpers::generated::bpf_ktime_get_tai_ns;
use aya_ebpf::macros::map;
use aya_ebpf::maps::lpm_trie::Key;
use aya_ebpf::maps::{Array, LpmTrie, LruHashMap, PerCpuArray};
use aya_ebpf::programs::TcContext;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::config::MAX_PEERS;
use xdptun_common::tunnel::options::TimestampedSynOptions;
use xdptun_common::tunnel::proof::{
    KeySet, MAX_KEY_SETS, ProofKey, count_of, epoch_of, proof_epoch,
};
use xdptun_common::tunnel::replay::{PAGE, Place};
use xdptun_common::wire::{Ip as _, Ipv4Header, Ipv6Header, TcpHeader};

use crate::packet::access::Packet as _;
use crate::packet::link::link_len;
use crate::tunnel::cookie::secret;
use crate::tunnel::defaults::tcp_defaults;

/// Sets of keys of proofs. User space writes those that shall hold beside those that
/// do, and then makes `KEYS_OF` name them: two times as many as may hold at once.
#[map]
pub static KEYS: Array<KeySet> = Array::with_max_entries(2 * MAX_KEY_SETS, 0);

/// Which set holds for a peer, by its address. Everyone's is that of `::/0`. Room for
/// the old and the new networks of peers at once.
#[map]
pub static KEYS_OF: LpmTrie<[u8; 16], u32> = LpmTrie::with_max_entries(2 * (MAX_PEERS + 1), 0);

/// The last proofs of the secret, and the address that each came from first, so that a
/// SYN can be repeated on the way. What this map forgets, `SEEN` does not. User space
/// sets the capacity.
#[map]
pub static PROOFS: LruHashMap<u64, [u8; 16]> = LruHashMap::with_max_entries(1, 0);

/// Which proofs came or were sent (`xdptun_common::tunnel::replay`). User space sets the
/// capacity.
#[map]
pub static SEEN: Array<[u8; PAGE as usize]> = Array::with_max_entries(1, 0);

/// The options of the SYN at hand, with its proof. Not on the stack, which is full.
#[map]
pub static PROVEN: PerCpuArray<TimestampedSynOptions> = PerCpuArray::with_max_entries(1, 0);

/// Nanoseconds of `CLOCK_TAI` (kernel 6.1), which both hosts have in common and
/// which goes on while a machine sleeps.
#[inline(always)]
fn tai() -> u64 {
    // SAFETY: the helper takes no arguments and only reads a clock.
    unsafe { bpf_ktime_get_tai_ns() }
}

/// Prepares the options of SYN number `count` of a flow with initial number `isn`:
/// they carry its proof, as of now.
#[inline(always)]
pub fn prove(flow: &FlowKey, isn: u32, count: u16, mss: u16) {
    let epoch = proof_epoch(tai());
    let proof = proof(keys_of(flow), isn, count, epoch, mss);
    // An attacker could record it and send it back to us.
    xdptun_has_seen(name(isn, proof), epoch);
}

/// The proof of a SYN, which is ready in its options then.
#[inline(never)]
fn proof(keys: Option<&KeySet>, isn: u32, count: u16, epoch: u64, mss: u16) -> u32 {
    // User space fills the maps before it attaches the programs.
    let proof = keys.map_or(0, |keys| proof_by(keys.first(), isn, count, epoch));
    if let Some(proven) = PROVEN.get_ptr_mut(0) {
        // SAFETY: a per-CPU value, which only this program run touches.
        unsafe { *proven = TimestampedSynOptions::new(mss, tcp_defaults().window_scale, proof) };
    }
    proof
}

/// What [`prove`] prepared in this program run.
#[inline(always)]
pub fn proven() -> Option<&'static TimestampedSynOptions> {
    // SAFETY: as in `proof`.
    PROVEN.get_ptr(0).map(|proven| unsafe { &*proven })
}

/// Whether a SYN with a timestamp ([`timestamp_in`]) proves that its sender knows the secret, and
/// is no record of one that came from another address, or of ours.
///
/// A subprogram of its own, and so is each of its steps: between them it holds no more
/// than registers do, and its caller has no stack to spare.
#[inline(never)]
pub fn is_proven(timestamp: u64, isn: u32, flow: &FlowKey) -> bool {
    if timestamp == NO_TIMESTAMP {
        return false;
    }
    let proof = timestamp as u32;
    let Some(keys) = keys_of(flow) else {
        return false;
    };
    let Some(epoch) = epoch_of(tai(), |epoch| is_proof(keys, proof, isn, epoch)) else {
        return false;
    };
    let from = first_address(isn, proof, flow, false);
    if from != UNKNOWN {
        return from == THIS;
    }
    // If two CPUs see a proof at once, either the filter has it for one of them, or one
    // is first in the map. One that the map has no memory for counts as new.
    xdptun_has_seen(name(isn, proof), epoch) == 0 && first_address(isn, proof, flow, true) != OTHER
}

/// No timestamp.
pub const NO_TIMESTAMP: u64 = u64::MAX;

/// The TSval that a SYN carries, or [`NO_TIMESTAMP`].
#[inline(never)]
pub fn timestamp_in(skb: *mut __sk_buff, flow: &FlowKey) -> u64 {
    timestamp(&TcContext::new(skb), flow).map_or(NO_TIMESTAMP, u64::from)
}

/// The TSval of a SYN whose options, all of them readable, are in Linux's order.
#[inline(always)]
fn timestamp(ctx: &TcContext, flow: &FlowKey) -> Option<u32> {
    let ip_len = if flow.is_ipv4() {
        Ipv4Header::LEN
    } else {
        Ipv6Header::LEN
    };
    let at = link_len() + ip_len;
    let length = ctx.read(at + TcpHeader::LENGTH_OFFSET)?;
    if TcpHeader::length(length) < TcpHeader::LEN + TimestampedSynOptions::LEN {
        return None;
    }
    let options = at + TcpHeader::LEN + TimestampedSynOptions::TIMESTAMP_OFFSET;
    Some(TimestampedSynOptions::timestamp(ctx.read(options)?))
}

/// The keys that hold for the peer of a flow.
#[inline(never)]
fn keys_of(flow: &FlowKey) -> Option<&'static KeySet> {
    keys_at(flow.remote_address())
}

/// The keys that hold for an address.
#[inline(always)]
pub fn keys_at(address: [u8; 16]) -> Option<&'static KeySet> {
    KEYS.get(*KEYS_OF.get(Key::new(128, address))?)
}

/// Whether a proof is one of this epoch.
#[inline(never)]
fn is_proof(keys: &KeySet, proof: u32, isn: u32, epoch: u64) -> bool {
    let count = count_of(proof, isn);
    keys.any(|key| proof_by(key, isn, count, epoch) == proof)
}

#[inline(always)]
fn proof_by(key: &ProofKey, isn: u32, count: u16, epoch: u64) -> u32 {
    let [k0, k1] = key.0;
    xdptun_proof(k0, k1, name(isn, count.into()), epoch)
}

// Global functions (the verifier's word), which the verifier walks once and not
// once for each way that leads to them.

/// [`ProofKey::proof`].
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn xdptun_proof(k0: u64, k1: u64, isn_and_count: u64, epoch: u64) -> u32 {
    let isn = (isn_and_count >> 32) as u32;
    ProofKey([k0, k1]).proof(isn, isn_and_count as u16, epoch)
}

/// Two words as one.
#[inline(always)]
fn name(isn: u32, proof: u32) -> u64 {
    u64::from(isn) << 32 | u64::from(proof)
}

/// What [`first_address`] returns: the map does not know it, it is that of the flow's
/// peer, or another.
const UNKNOWN: u32 = 0;
const THIS: u32 = 1;
const OTHER: u32 = 2;

/// The address that a proof came from first; the flow's peer's if `learn` says so and
/// the map does not know it yet.
#[inline(never)]
fn first_address(isn: u32, proof: u32, flow: &FlowKey, learn: bool) -> u32 {
    let name = name(isn, proof);
    let address = flow.remote_address();
    if learn {
        let _ = PROOFS.insert(name, address, u64::from(BPF_NOEXIST));
    }
    // SAFETY: entries are whole before they can be found, and not changed.
    match unsafe { PROOFS.get(name) } {
        Some(first) if *first == address => THIS,
        Some(_) => OTHER,
        None => UNKNOWN,
    }
}

/// 1 if the filter has seen a proof, by its name, else 0; from now on it has.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn xdptun_has_seen(name: u64, epoch: u64) -> u32 {
    let place = Place::new(&secret(), name, epoch);
    let mut seen = true;
    for at in place.cells {
        let Some(page) = SEEN.get_ptr_mut(at / PAGE) else {
            continue;
        };
        let cell = page.cast::<u8>().wrapping_add((at % PAGE) as usize);
        // SAFETY: a byte of a map value. CPUs store single bytes, so that none undoes
        // what another does to a neighbour.
        unsafe {
            seen &= cell.read_volatile() == place.stamp;
            cell.write_volatile(place.stamp);
        }
    }
    seen.into()
}
