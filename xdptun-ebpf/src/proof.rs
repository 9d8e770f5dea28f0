//! The proof that a caller knows the secret. All of it is in subprograms: where
//! there is no secret, their callers need no stack for it.

use aya_ebpf::bindings::{__sk_buff, BPF_NOEXIST};
use aya_ebpf::helpers::generated::bpf_ktime_get_tai_ns;
use aya_ebpf::programs::TcContext;
use xdptun_common::flow::FlowKey;
use xdptun_common::isn::proof_epoch;
use xdptun_common::wire::{Ip as _, Ipv4Header, Ipv6Header, TcpHeader, TimestampedSynOptions};

use crate::maps::{PROOFS, PROVEN, link_len, proof_key};
use crate::packet::Packet as _;

/// The address of nobody, for our own proofs: they are good from nowhere.
const OURSELVES: [u8; 16] = [0; 16];

/// Nanoseconds of `CLOCK_TAI` (kernel 6.1), which both hosts have in common and
/// which goes on while a machine sleeps.
#[inline(always)]
fn tai() -> u64 {
    // SAFETY: the helper takes no arguments and only reads a clock.
    unsafe { bpf_ktime_get_tai_ns() }
}

/// Prepares the options of a SYN with number `isn`: they carry its proof, as of now.
#[inline(never)]
pub fn prove(isn: u32, mss: u16) {
    let proof = proof_key().proof(isn, proof_epoch(tai()));
    // Who records it could send it back to us.
    let _ = is_first_from(&name(isn, proof), &OURSELVES);
    if let Some(options) = PROVEN.get_ptr_mut(0) {
        // SAFETY: a per-CPU value, which only this program run touches.
        unsafe { *options = TimestampedSynOptions::new(mss, proof) };
    }
}

/// What [`prove`] prepared in this program run.
#[inline(always)]
pub fn proven_options() -> Option<&'static TimestampedSynOptions> {
    // SAFETY: as in `prove`.
    PROVEN.get_ptr(0).map(|options| unsafe { &*options })
}

/// Whether the SYN that the packet is proves that its sender knows the secret, and
/// is no record of one that came from another address.
#[inline(never)]
pub fn is_proven(skb: *mut __sk_buff, isn: u32, flow: &FlowKey) -> bool {
    let Some(proof) = timestamp(&TcContext::new(skb), flow) else {
        return false;
    };
    proof_key().is_proof(proof, isn, tai())
        && is_first_from(&name(isn, proof), &flow.remote_address())
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

/// A proof as a key of the map.
#[inline(always)]
fn name(isn: u32, proof: u32) -> u64 {
    u64::from(isn) << 32 | u64::from(proof)
}

/// Whether a proof is new, or came from this address before.
#[inline(always)]
fn is_first_from(proof: &u64, address: &[u8; 16]) -> bool {
    // Also if two CPUs see it at once, one is first. One that the map has no
    // memory for counts as new.
    let _ = PROOFS.insert(proof, address, u64::from(BPF_NOEXIST));
    // SAFETY: entries are whole before they can be found, and not changed.
    match unsafe { PROOFS.get(proof) } {
        Some(first) => *first == *address,
        None => true,
    }
}
