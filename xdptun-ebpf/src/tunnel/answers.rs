//! Whether an answer may be sent now: the rate limits of the CPU, the limit of an open flow,
//! and no reset twice.
//!
//! Strangers share the rate limits of a CPU. Each open flow has its own limit
//! ([`crate::tunnel::table::Entry::claim_answer`]): otherwise an attacker could measure another
//! flow's answers through the shared limit, and search its numbers (CVE-2016-5696). Segments
//! that an open flow refuses also use the shared limit, so the limit does not show whether a
//! flow exists.

use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::macros::map;
use aya_ebpf::maps::LruHashMap;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::handshake::{Reaction, Segment};
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::state::{KEPT_ANSWERS, State};
use xdptun_common::wire::Flags;

use crate::host::clock::now;
use crate::tunnel::limits::Limit;
use crate::tunnel::rules::has_secret;
use crate::tunnel::table::find;

/// Resets that were sent, and when last (nanoseconds). LRU: any sender can make entries.
#[map]
pub static RESETS: LruHashMap<ResetKey, u64> = LruHashMap::with_max_entries(4096, 0);

/// How long after a reset the next one to the same flow may leave, in nanoseconds.
const RESET_AGAIN: u64 = 500_000_000;

/// How long a segment may be under way, in nanoseconds.
const UNDER_WAY: u64 = 1_000_000_000;

/// A reset: the flow, and which of its resets.
#[derive(Clone, Copy)]
#[repr(C, align(4))]
pub struct ResetKey {
    flow: FlowKey,
    number: [u8; 4],
}

/// Whether the reply to `segment` may be sent now, if `decision` has one. `before` is the
/// state that its flow had.
#[inline(never)]
pub fn may_answer(key: &FlowKey, segment: &Segment, before: State, decision: &Reaction) -> bool {
    let open = matches!(before, State::Established | State::FinSent);
    let refused = matches!(
        decision.outcome,
        Outcome::RxSyn | Outcome::RxDropFin | Outcome::RxDropSequence
    );
    // A hidden port answers no stranger, so its rate limits show nothing.
    if open && refused && !has_secret() {
        charge(key, segment);
    }
    if !decision.reply.is_some() {
        return false;
    }
    let after = decision.endpoint.state;
    match decision.reply.kind {
        Sent::SynAck => Limit::SynAcks.take(),
        Sent::Rst => {
            let limit = match after {
                State::Closed => Limit::Resets,
                _ => Limit::Openings,
            };
            limit.take() && may_reset(key, segment, decision)
        }
        // Once for each handshake and each end.
        _ if after != before => true,
        kind => {
            let kept = match kind {
                Sent::ChallengeAck => KEPT_ANSWERS,
                _ => 0,
            };
            find(key).is_some_and(|flow| flow.claim_answer(now(), kept))
        }
    }
}

/// Whether `segment` may be answered with the reset that `decision` has. If its flow
/// waits for an answer to a SYN, the next SYN follows.
///
/// One is enough for all segments that are under way: to the first the peer answers
/// with a SYN, and the second would end that connection in every firewall between,
/// which take a reset with any number while they know one side only. A reset with
/// another number may leave: a guess must not keep the right reset from leaving.
#[inline(always)]
fn may_reset(key: &FlowKey, segment: &Segment, decision: &Reaction) -> bool {
    let Reaction {
        endpoint, reply, ..
    } = decision;
    let (flow, now) = (find(key), now());
    let number = match (endpoint.state, flow) {
        // What the peer had sent before its flow ended. If it has not, what it
        // answers has the right number.
        (State::Closed, Some(_)) if !segment.exact && endpoint.acceptable(segment) => 0,
        // While our first SYN is under way, a segment that was as well has old
        // numbers, which end nothing at the peer. The answer to the SYN has the
        // right ones. A peer whose windows cannot say so (an older xdptun, or a
        // middlebox changes them) is believed later.
        (State::SynSent | State::SynReceived, Some(flow))
            if !segment.exact && now.saturating_sub(flow.opened_at()) < UNDER_WAY =>
        {
            return false;
        }
        // One of the two is zero.
        _ => reply.sequence.wrapping_add(reply.acknowledgment),
    };
    if !claim_reset(key, number, now) {
        return false;
    }
    if let (State::SynSent, Some(flow)) = (endpoint.state, flow) {
        flow.restart_syns();
    }
    true
}

/// Whether the reset of this number was not sent to the flow a moment ago; from now on it
/// was.
#[inline(always)]
fn claim_reset(key: &FlowKey, number: u32, now: u64) -> bool {
    let key = ResetKey {
        flow: *key,
        number: number.to_be_bytes(),
    };
    let Some(last) = RESETS.get_ptr_mut(key) else {
        let _ = RESETS.insert(key, now, u64::from(BPF_ANY));
        return true;
    };
    // SAFETY: a word of a map value; CPUs that race send a reset each.
    let last = unsafe { &mut *last };
    // The clock of another CPU may be behind that of the last sender.
    if now.saturating_sub(*last) < RESET_AGAIN {
        return false;
    }
    *last = now;
    true
}

/// Takes from the rate limits what the answer to a segment would have taken if its flow were
/// not there.
#[inline(always)]
fn charge(key: &FlowKey, segment: &Segment) {
    if segment.flags.contains(Flags::ACK) {
        if !segment.flags.contains(Flags::RST) && Limit::Resets.take() {
            claim_reset(key, segment.acknowledgment, now());
        }
    } else if segment.flags.contains(Flags::SYN)
        && !segment.flags.intersects(Flags::FIN.with(Flags::RST))
    {
        Limit::SynAcks.take();
    }
}
