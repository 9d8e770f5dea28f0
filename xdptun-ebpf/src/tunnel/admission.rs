//! The handshake by the rules of this host.

use aya_ebpf::bindings::__sk_buff;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::handshake::{Admission, Reaction, Segment, receive};
use xdptun_common::tunnel::state::State;
use xdptun_common::wire::Flags;

use crate::host::socket::Socket;
use crate::tunnel::calls::host_socket;
use crate::tunnel::cookie::{gave, next_iss_for};
use crate::tunnel::proof::{NO_TIMESTAMP, is_proven, timestamp_in};
use crate::tunnel::rules::has_secret;

/// Runs the state machine: `decision` comes with the endpoint before the segment.
#[inline(always)]
pub fn decide(
    skb: *mut __sk_buff,
    key: &FlowKey,
    segment: &Segment,
    now: u64,
    decision: &mut Reaction,
) {
    let timestamp = if has_secret() && segment.flags.contains(Flags::SYN) {
        timestamp_in(skb, key)
    } else {
        NO_TIMESTAMP
    };
    xdptun_decide(timestamp, key, segment, now, decision);
    if has_secret() && decision.answers_without_flow() && host_socket(skb, key) == Socket::Connected
    {
        *decision = decision.with_flow();
    }
}

/// See [`decide`]. A global function (the verifier's word), which the verifier walks once and
/// not once for each way that leads to it. For all it knows the pointers may be null.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn xdptun_decide(
    timestamp: u64,
    key: *const FlowKey,
    segment: *const Segment,
    now: u64,
    decision: *mut Reaction,
) -> u32 {
    // SAFETY: either null or what `decide` was given.
    let (Some(key), Some(segment), Some(decision)) =
        (unsafe { (key.as_ref(), segment.as_ref(), decision.as_mut()) })
    else {
        return 0;
    };
    let mut before = decision.endpoint;
    if before.state == State::Closed && segment.flags.contains(Flags::SYN) {
        before.iss = next_iss_for(&before, key, segment.sequence, now);
    }
    let listener = Listener {
        timestamp,
        flow: key,
        now,
    };
    *decision = receive(before, segment, &listener);
    0
}

/// The rules of a port for its callers.
struct Listener<'a> {
    timestamp: u64,
    flow: &'a FlowKey,
    now: u64,
}

impl Admission for Listener<'_> {
    #[inline(always)]
    fn gave(&self, iss: u32) -> bool {
        gave(iss, self.flow, self.now)
    }

    #[inline(always)]
    fn admits(&self, syn: &Segment) -> bool {
        !has_secret() || is_proven(self.timestamp, syn.sequence, self.flow)
    }

    #[inline(always)]
    fn is_hidden(&self) -> bool {
        has_secret()
    }
}
