//! How much may be sent in answer to what nobody has authenticated.
//!
//! Strangers share the budgets of a CPU. An open flow has a limit of its own
//! ([`crate::table::Entry::claim_answer`]), or a stranger could count on its own flow how
//! often another flow answers, and search its numbers (CVE-2016-5696). What an open flow
//! refuses is charged all the same, as if there were no flow: else the budget that is left
//! would tell that there is one.

use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use xdptun_common::counter::{Outcome, Sent};
use xdptun_common::flow::{FlowKey, State};
use xdptun_common::handshake::{Reaction, Segment};
use xdptun_common::wire::Flags;

use crate::maps::{BUDGETS, RESETS, hidden};
use crate::packet::now;
use crate::table::find;

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
    // A hidden port answers no stranger, so its budgets show nothing.
    if open && refused && !hidden() {
        charge(key, segment);
    }
    if !decision.reply.is_some() {
        return false;
    }
    let after = decision.endpoint.state;
    match decision.reply.kind {
        Sent::SynAck => Budget::SynAcks.take(),
        Sent::Rst => {
            let budget = match after {
                State::Closed => Budget::Resets,
                _ => Budget::Openings,
            };
            budget.take() && may_reset(key, segment, decision)
        }
        // Once for each handshake and each end.
        _ if after != before => true,
        _ => find(key).is_some_and(|flow| flow.claim_answer(now())),
    }
}

/// Whether `segment` may be answered with the reset that `decision` has. If its flow
/// waits for an answer to a SYN, the next SYN follows.
///
/// One is enough for all segments that are under way: to the first the peer answers
/// with a SYN, and the second would end that connection in every firewall between,
/// which take a reset with any number while they know one side only. Another
/// number is another matter: who guesses must not keep the true one from leaving.
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
        // right ones. Who cannot say so (an older xdptun, a middlebox that
        // changes windows) is believed later.
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

/// Takes from the budgets what the answer to a segment would have taken if its flow were
/// not there.
#[inline(always)]
fn charge(key: &FlowKey, segment: &Segment) {
    if segment.flags.contains(Flags::ACK) {
        if !segment.flags.contains(Flags::RST) && Budget::Resets.take() {
            claim_reset(key, segment.acknowledgment, now());
        }
    } else if segment.flags.contains(Flags::SYN)
        && !segment.flags.intersects(Flags::FIN.with(Flags::RST))
    {
        Budget::SynAcks.take();
    }
}

/// What is limited, each kind on each CPU by itself.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Budget {
    /// SYN-ACKs: anyone's SYN takes one.
    SynAcks = 0,
    /// Resets without a flow: anyone's segment takes one.
    Resets = 1,
    /// Resets of flows that wait for the answer to a SYN: those end what the peer still
    /// has of the flow before, and strangers must not use them up.
    Openings = 2,
    /// ICMP errors to senders behind us.
    Errors = 3,
    /// Flows that this host opens.
    Opens = 4,
}

/// How many budgets there are.
pub const BUDGETS_LEN: u32 = 5;

/// A token bucket.
#[repr(C)]
pub struct Bucket {
    /// Packets that may go now.
    tokens: u64,
    /// When it was last filled, in nanoseconds.
    filled_at: u64,
}

impl Budget {
    /// Packets in a good second (2^30 ns), and at once after a pause.
    #[inline(always)]
    const fn limits(self) -> (u64, u64) {
        match self {
            Self::SynAcks | Self::Resets | Self::Openings => (16384, 4096),
            // Twice what two CPUs open at their best.
            Self::Opens => (65536, 32768),
            Self::Errors => (1024, 256),
        }
    }

    /// Takes a token, if there is one. Whoever spoofs packets at us can make us
    /// answer only so fast.
    #[inline(always)]
    pub fn take(self) -> bool {
        let (per_second, burst) = self.limits();
        xdptun_take(self as u32, per_second, burst) != 0
    }
}

/// Takes a token of the bucket `budget`, which earns `per_second` of them and holds `burst`:
/// 1 if there was one, else 0. A global function (the verifier's word), which the verifier
/// walks once and not once for each way that leads to it.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn xdptun_take(budget: u32, per_second: u64, burst: u64) -> u32 {
    let Some(bucket) = BUDGETS.get_ptr_mut(budget) else {
        return 0;
    };
    // SAFETY: a per-CPU value, which only this program run touches; the clock
    // helper takes no pointers.
    unsafe {
        let now = bpf_ktime_get_ns();
        let elapsed = now.saturating_sub((*bucket).filled_at);
        // The shift stands for a division by 2^30.
        let earned = if elapsed >> 30 != 0 {
            burst
        } else {
            (elapsed * per_second) >> 30
        };
        if earned > 0 {
            let tokens = (*bucket).tokens + earned;
            (*bucket).tokens = if tokens > burst { burst } else { tokens };
            (*bucket).filled_at = now;
        }
        if (*bucket).tokens == 0 {
            return 0;
        }
        (*bucket).tokens -= 1;
    }
    1
}
