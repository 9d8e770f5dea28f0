//! The proof that a caller knows the secret. All of it is in subprograms: where
//! there is no secret, their callers need no stack for it.

use aya_ebpf::bindings::{__sk_buff, BPF_ANY, BPF_NOEXIST};
use aya_ebpf::helpers::generated::bpf_ktime_get_tai_ns;
use aya_ebpf::programs::TcContext;
use xdptun_common::flow::FlowKey;
use xdptun_common::proof::proof_epoch;
use xdptun_common::wire::{Ip as _, Ipv4Header, Ipv6Header, TcpHeader, TimestampedSynOptions};

use crate::maps::{OWN_PROOFS, PROOFS, PROVEN, link_len, proof_key};
use crate::packet::Packet as _;

/// Nanoseconds of `CLOCK_TAI` (kernel 6.1), which both hosts have in common and
/// which goes on while a machine sleeps.
#[inline(always)]
fn tai() -> u64 {
    // SAFETY: the helper takes no arguments and only reads a clock.
    unsafe { bpf_ktime_get_tai_ns() }
}

/// Prepares the options of SYN number `count` of a flow with initial number `isn`:
/// they carry its proof, as of now.
#[inline(never)]
pub fn prove(isn: u32, count: u16, mss: u16) {
    let proof = proof_key().proof(isn, count, proof_epoch(tai()));
    // Who records it could send it back to us.
    let name = name(isn, proof);
    let _ = OWN_PROOFS.insert(name, name, u64::from(BPF_ANY));
    if let Some(proven) = PROVEN.get_ptr_mut(0) {
        // SAFETY: a per-CPU value, which only this program run touches.
        unsafe { *proven = TimestampedSynOptions::new(mss, proof) };
    }
}

/// What [`prove`] prepared in this program run.
#[inline(always)]
pub fn proven() -> Option<&'static TimestampedSynOptions> {
    // SAFETY: as in `prove`.
    PROVEN.get_ptr(0).map(|proven| unsafe { &*proven })
}

/// Whether the SYN that the packet is proves that its sender knows the secret, and
/// is no record of one that came from another address, or of ours.
#[inline(always)]
pub fn is_proven(skb: *mut __sk_buff, isn: u32, flow: &FlowKey) -> bool {
    match proof_in(skb, isn, flow) {
        NONE => false,
        name => is_first(name, flow),
    }
}

/// No proof; one of 2^64 that are would be called so.
const NONE: u64 = 0;

/// The proof that a SYN carries, as a key of the maps, or [`NONE`].
#[inline(never)]
fn proof_in(skb: *mut __sk_buff, isn: u32, flow: &FlowKey) -> u64 {
    match timestamp(&TcContext::new(skb), flow) {
        Some(proof) if proof_key().epoch_of(proof, isn, tai()).is_some() => name(isn, proof),
        _ => NONE,
    }
}

/// The TSval of a SYN whose options, all of them readable, are in Linux's
/// order.
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

/// A proof as a key of the map.
#[inline(always)]
fn name(isn: u32, proof: u32) -> u64 {
    u64::from(isn) << 32 | u64::from(proof)
}

/// Whether a proof is new, or came from the flow's peer before.
#[inline(never)]
fn is_first(proof: u64, flow: &FlowKey) -> bool {
    if OWN_PROOFS.get_ptr(proof).is_some() {
        return false;
    }
    let address = flow.remote_address();
    // Also if two CPUs see it at once, one is first. One that the map has no
    // memory for counts as new.
    let _ = PROOFS.insert(proof, address, u64::from(BPF_NOEXIST));
    // SAFETY: entries are whole before they can be found, and not changed.
    match unsafe { PROOFS.get(proof) } {
        Some(first) => *first == address,
        None => true,
    }
}
