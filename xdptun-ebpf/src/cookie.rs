//! Initial sequence numbers, as subprograms: the hash is long and needed in
//! several places.

use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::helpers::generated::bpf_ktime_get_tai_ns;
use xdptun_common::flow::FlowKey;
use xdptun_common::handshake::{Door, Endpoint};
use xdptun_common::isn::{COOKIE, COOKIE_BESIDE_PROOF, epoch, proof_epoch, same_cookie};

use crate::maps::{PROOFS, hidden, proof_key, secret};

/// The cookie of a flow in an epoch.
#[inline(never)]
fn cookie(flow: &FlowKey, epoch: u64) -> u32 {
    secret().isn_of_epoch(flow, epoch)
}

/// The initial sequence number of the flow that follows `endpoint` now.
#[inline(always)]
pub fn next_iss(endpoint: &Endpoint, flow: &FlowKey, now: u64) -> u32 {
    let iss = endpoint.next_iss(cookie(flow, epoch(now)));
    if hidden() { prove(iss) } else { iss }
}

/// A subprogram, like everything about proofs: the callers need no stack for it
/// when there is no secret.
#[inline(never)]
fn prove(iss: u32) -> u32 {
    proof_key().prove(iss, proof_epoch(tai()))
}

#[inline(never)]
fn is_proof(isn: u32) -> bool {
    proof_key().is_proof(isn, tai())
}

/// Nanoseconds of `CLOCK_TAI` (kernel 6.1), which both hosts have in common and
/// which goes on while a machine sleeps.
#[inline(always)]
fn tai() -> u64 {
    // SAFETY: the helper takes no arguments and only reads a clock.
    unsafe { bpf_ktime_get_tai_ns() }
}

/// Whether a proof comes from another address than when it was first seen:
/// somebody recorded it. A number that the table has no room for counts as new.
#[inline(never)]
fn is_replay(isn: u32, flow: &FlowKey) -> bool {
    let from = flow.remote_address();
    // SAFETY: entries are written once and whole before they can be found.
    if let Some(first) = unsafe { PROOFS.get(isn) } {
        return *first != from;
    }
    let _ = PROOFS.insert(isn, from, u64::from(BPF_ANY));
    false
}

/// Whom the port of a flow answers at the time `now`.
pub struct Listener<'a> {
    /// The flow.
    pub flow: &'a FlowKey,
    /// When.
    pub now: u64,
}

impl Door for Listener<'_> {
    #[inline(always)]
    fn gave(&self, iss: u32) -> bool {
        let bits = if hidden() {
            COOKIE_BESIDE_PROOF
        } else {
            COOKIE
        };
        let epoch = epoch(self.now);
        let given = same_cookie(iss, cookie(self.flow, epoch), bits)
            || same_cookie(iss, cookie(self.flow, epoch.wrapping_sub(1)), bits);
        given && (!hidden() || is_proof(iss))
    }

    #[inline(always)]
    fn admits(&self, isn: u32) -> bool {
        !hidden() || (is_proof(isn) && !is_replay(isn, self.flow))
    }

    #[inline(always)]
    fn is_hidden(&self) -> bool {
        hidden()
    }
}
