//! The fake connection as a pure function: (endpoint, segment) -> reaction.
//!
//! It follows RFC 9293 section 3.10.7 where a middlebox can see the difference,
//! and RFC 5961 where an attacker could: a reset counts only with the exact
//! sequence number, a SYN never disturbs an open flow. It differs from TCP in
//! one thing: nothing is retransmitted or put in order, so a segment ahead of
//! what was expected is taken at once and the gap is never filled.
//!
//! A listener keeps no state. Its SYN-ACK carries a number that only the
//! addresses and a secret give ([`crate::tunnel::isn`]); a peer that acknowledges it has
//! a flow.

mod endpoint;
mod segment;

pub use endpoint::{ANYWHERE, Endpoint, next_expected};
pub use segment::{Reply, Segment};

use crate::flow::seq::near;
use crate::tunnel::outcome::{Outcome, Sent};
use crate::tunnel::state::State;
use crate::tunnel::window::MAX_WINDOW;
use crate::wire::Flags;

/// The rules by which a host admits callers.
pub trait Admission {
    /// Whether we gave out this number lately, to the flow at hand.
    fn gave(&self, iss: u32) -> bool;

    /// Whether a SYN may come in. If callers need not prove anything, any may.
    fn admits(&self, syn: &Segment) -> bool;

    /// Whether a caller that is not admitted gets no answer at all.
    fn is_hidden(&self) -> bool;
}

/// Every caller is admitted.
impl<F: Fn(u32) -> bool> Admission for F {
    #[inline(always)]
    fn gave(&self, iss: u32) -> bool {
        self(iss)
    }

    #[inline(always)]
    fn admits(&self, _syn: &Segment) -> bool {
        true
    }

    #[inline(always)]
    fn is_hidden(&self) -> bool {
        false
    }
}

/// What an inbound segment leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Reaction {
    /// The endpoint after it. Equal to the one before unless the state changed
    /// or data came.
    pub endpoint: Endpoint,
    /// [`Outcome::RxRestored`] if it carries a datagram to deliver.
    pub outcome: Outcome,
    /// What to send back, or [`Reply::NONE`]. Not an `Option`, whose unused bytes
    /// would be undefined: older verifiers refuse programs that copy such.
    pub reply: Reply,
}

impl Reaction {
    /// Whether this answers a SYN and makes no flow of it: the peer's next segment will.
    #[inline(always)]
    #[must_use]
    pub fn answers_without_flow(&self) -> bool {
        self.endpoint.state == State::Closed && self.reply.kind == Sent::SynAck
    }

    /// The same, and the flow is made of such a SYN: where a TCP connection of the host would answer
    /// the peer's next segment.
    #[inline(always)]
    pub fn with_flow(self) -> Self {
        let endpoint = Endpoint::asked(self.reply.sequence, self.reply.acknowledgment);
        Self { endpoint, ..self }
    }
}

/// The bits that make a segment more than data and acknowledgement.
const CONTROL: Flags = Flags(Flags::SYN.0 | Flags::FIN.0 | Flags::RST.0);

/// A segment for an owned port that has no flow. `isn` is the number that the
/// flow's SYN-ACK carries now. A reaction in another state than [`State::Closed`]
/// means: make the flow.
#[inline(always)]
pub fn listen(segment: &Segment, isn: u32, admission: &impl Admission) -> Reaction {
    let nothing = Endpoint {
        state: State::Closed,
        iss: isn,
        snd_una: isn,
        snd_nxt: isn,
        rcv_nxt: 0,
        oldest_ack: isn,
        reach: MAX_WINDOW,
    };
    if segment.flags.contains(Flags::RST) {
        return nothing.turned_away(segment, admission);
    }
    if segment.flags.contains(Flags::SYN) && !segment.flags.intersects(Flags::ACK.with(Flags::FIN))
    {
        if !admission.admits(segment) {
            return nothing.turned_away(segment, admission);
        }
        let asked = Endpoint::asked(isn, segment.sequence.wrapping_add(1));
        return nothing.unchanged(Outcome::RxSyn, asked.syn_ack());
    }
    if !segment.flags.intersects(CONTROL)
        && let Some(reaction) = complete_by_cookie(segment, admission)
    {
        return reaction;
    }
    nothing.turned_away(segment, admission)
}

/// An acknowledgement that names a number we gave out proves that its sender
/// received our SYN-ACK: the flow is established from there.
#[inline(always)]
fn complete_by_cookie(segment: &Segment, admission: &impl Admission) -> Option<Reaction> {
    let iss = segment.acknowledgment.wrapping_sub(1);
    if !segment.flags.contains(Flags::ACK) || !admission.gave(iss) {
        return None;
    }
    let endpoint = Endpoint {
        state: State::Established,
        iss,
        snd_una: segment.acknowledgment,
        snd_nxt: segment.acknowledgment,
        rcv_nxt: segment.end(),
        oldest_ack: segment.acknowledgment,
        reach: MAX_WINDOW,
    };
    Some(endpoint.unchanged(data_or_ack(segment), Reply::NONE))
}

#[inline(always)]
const fn data_or_ack(segment: &Segment) -> Outcome {
    if segment.is_datagram() {
        Outcome::RxRestored
    } else {
        Outcome::RxAck
    }
}

/// A segment of a flow in the table. The `iss` of a closed endpoint is the number
/// that its SYN-ACK carries now.
#[inline(always)]
pub fn receive(endpoint: Endpoint, segment: &Segment, admission: &impl Admission) -> Reaction {
    match endpoint.state {
        State::Closed => in_closed(endpoint, segment, admission),
        State::SynSent => in_syn_sent(endpoint, segment, admission),
        State::SynReceived => in_syn_received(endpoint, segment, admission),
        State::Established | State::FinSent => in_open_flow(endpoint, segment),
    }
}

#[inline(always)]
fn in_closed(endpoint: Endpoint, segment: &Segment, admission: &impl Admission) -> Reaction {
    // The last ACK of a clean end; a reset in answer would spoil it.
    if segment.flags == Flags::ACK
        && segment.len == 0
        && !segment.exact
        && segment.acknowledgment == endpoint.snd_nxt
        && near(segment.sequence, endpoint.rcv_nxt, MAX_WINDOW)
    {
        return endpoint.unchanged(Outcome::RxAck, Reply::NONE);
    }
    let reaction = listen(segment, endpoint.iss, admission);
    if !matches!(reaction.endpoint.state, State::Closed) {
        return reaction;
    }
    // A listener keeps no state; the numbers that tell that last ACK stay.
    Reaction {
        endpoint,
        ..reaction
    }
}

#[inline(always)]
fn in_syn_sent(endpoint: Endpoint, segment: &Segment, admission: &impl Admission) -> Reaction {
    let acknowledges_syn = endpoint.syn_is_acknowledged(segment);
    if segment.flags.contains(Flags::RST) {
        // The flow stays and SYNs go on with back-off: a peer that is about to
        // start answers like one that never will.
        let outcome = if acknowledges_syn {
            Outcome::RxRefused
        } else {
            Outcome::RxDropReset
        };
        return endpoint.unchanged(outcome, Reply::NONE);
    }
    if segment.flags.contains(Flags::SYN) {
        let rcv_nxt = segment.sequence.wrapping_add(1);
        if acknowledges_syn {
            return endpoint.complete(rcv_nxt);
        }
        if !segment.flags.contains(Flags::ACK) {
            if !admission.admits(segment) {
                return endpoint.turned_away(segment, admission);
            }
            // Simultaneous open (RFC 9293 section 3.5, figure 7).
            let crossed = Endpoint {
                state: State::SynReceived,
                rcv_nxt,
                ..endpoint
            };
            return crossed.unchanged(Outcome::RxSyn, crossed.syn_ack());
        }
    } else if !segment.flags.contains(Flags::FIN) {
        // The peer answers a SYN-ACK that we sent before we had a flow.
        if let Some(reaction) = endpoint.complete_by_cookie(segment, admission) {
            return reaction;
        }
    }
    endpoint.contradicts(segment)
}

#[inline(always)]
fn in_syn_received(endpoint: Endpoint, segment: &Segment, admission: &impl Admission) -> Reaction {
    if segment.flags.contains(Flags::RST) {
        // As in SYN-SENT, where this flow came from: it stays. The SYN that
        // crossed ours may have been an old one, or forged.
        return if segment.sequence == endpoint.rcv_nxt {
            let refused = Endpoint {
                state: State::SynSent,
                ..endpoint
            };
            refused.unchanged(Outcome::RxRefused, Reply::NONE)
        } else {
            endpoint.unchanged(Outcome::RxDropReset, Reply::NONE)
        };
    }
    let acknowledges_syn = endpoint.syn_is_acknowledged(segment);
    if segment.flags.contains(Flags::SYN) {
        let rcv_nxt = segment.sequence.wrapping_add(1);
        if acknowledges_syn {
            return endpoint.complete(rcv_nxt);
        }
        if segment.flags.contains(Flags::ACK) && rcv_nxt != endpoint.rcv_nxt {
            // An answer to a SYN that is not ours any more, or never was.
            return endpoint.unchanged(Outcome::RxDropNoFlow, segment.reset());
        }
        if !admission.admits(segment) {
            return endpoint.turned_away(segment, admission);
        }
        // The peer repeats its SYN, or started over: nothing was promised yet.
        let again = Endpoint {
            rcv_nxt,
            ..endpoint
        };
        return again.unchanged(Outcome::RxSyn, again.syn_ack());
    }
    if acknowledges_syn && !segment.flags.contains(Flags::FIN) {
        // Naming our number proves more than the SYN did, which any host could
        // have sent: if the two contradict each other, this segment is right.
        // Without data it has no more to say than the SYN.
        let mut open = Endpoint {
            state: State::Established,
            ..endpoint
        };
        if segment.is_datagram() || !near(segment.sequence, endpoint.rcv_nxt, MAX_WINDOW) {
            open.rcv_nxt = next_expected(endpoint.rcv_nxt, segment);
        }
        return open.unchanged(data_or_ack(segment), Reply::NONE);
    }
    if !segment.flags.contains(Flags::FIN)
        && let Some(reaction) = endpoint.complete_by_cookie(segment, admission)
    {
        return reaction;
    }
    endpoint.contradicts(segment)
}

#[inline(always)]
fn in_open_flow(endpoint: Endpoint, segment: &Segment) -> Reaction {
    if segment.flags.contains(Flags::RST) {
        return on_reset(endpoint, segment);
    }
    let challenge = endpoint.ack(Sent::ChallengeAck);
    if segment.flags.contains(Flags::SYN) {
        // RFC 5961 section 4.2. Also the answer to a repeated SYN-ACK whose ACK
        // was lost. A peer that really started over answers with the exact RST.
        return endpoint.unchanged(Outcome::RxSyn, challenge);
    }
    if !segment.flags.contains(Flags::ACK) {
        return endpoint.unchanged(Outcome::RxDropSequence, Reply::NONE);
    }
    if !endpoint.acceptable(segment) {
        // Data is answered with our numbers, as in TCP; anything else with
        // nothing, so that two ends never answer each other without end. Not
        // with a reset: its number would be the sender's choice, and one in the
        // window ends the connection in every firewall on the way. Two ends whose
        // acknowledgement numbers no longer match hear no sign of life any more
        // and start over.
        let carries = segment.is_datagram() || segment.flags.contains(Flags::FIN);
        let reply = if carries { challenge } else { Reply::NONE };
        return endpoint.unchanged(Outcome::RxDropSequence, reply);
    }
    if segment.flags.contains(Flags::FIN) {
        return on_fin(endpoint, segment);
    }
    if segment.is_datagram() {
        return endpoint
            .advanced(segment)
            .unchanged(Outcome::RxRestored, Reply::NONE);
    }
    on_acknowledgement(endpoint, segment)
}

/// A reset of an open flow: with the exact number, one in the window, or another (RFC 5961
/// section 3.2).
#[inline(always)]
fn on_reset(endpoint: Endpoint, segment: &Segment) -> Reaction {
    if segment.sequence == endpoint.rcv_nxt {
        endpoint.closed().unchanged(Outcome::RxRst, Reply::NONE)
    } else if near(segment.sequence, endpoint.rcv_nxt, MAX_WINDOW) {
        endpoint.unchanged(Outcome::RxDropReset, endpoint.ack(Sent::ChallengeAck))
    } else {
        endpoint.unchanged(Outcome::RxDropReset, Reply::NONE)
    }
}

/// An acceptable segment of an open flow without data.
#[inline(always)]
fn on_acknowledgement(endpoint: Endpoint, segment: &Segment) -> Reaction {
    // A keepalive probe repeats the last sequence number (RFC 9293 section 3.8.4).
    // If that was lost it is ahead, as any ACK after a loss is, so it says what it
    // is; a middlebox may have taken that out.
    let probe = segment.asks || segment.sequence == endpoint.rcv_nxt.wrapping_sub(1);
    let endpoint = endpoint.corrected(segment);
    let reply = if endpoint.owes_fin(segment) {
        endpoint.fin(segment.acknowledgment)
    } else if probe {
        endpoint.ack(Sent::Ack)
    } else {
        Reply::NONE
    };
    endpoint.unchanged(Outcome::RxAck, reply)
}

/// An acceptable FIN of an open flow.
#[inline(always)]
fn on_fin(endpoint: Endpoint, segment: &Segment) -> Reaction {
    // An earlier version, whose flows this one may have taken over, counted a FIN with the
    // probe or challenge after it.
    let next = segment.end().wrapping_add(1);
    if segment.end() != endpoint.rcv_nxt && next != endpoint.rcv_nxt {
        return endpoint.unchanged(Outcome::RxDropFin, endpoint.ack(Sent::ChallengeAck));
    }
    let over = Endpoint {
        rcv_nxt: next,
        ..endpoint.closed()
    };
    if matches!(endpoint.state, State::FinSent) {
        return over.unchanged(Outcome::RxFin, over.ack(Sent::Ack));
    }
    let fin = over.fin(over.snd_nxt);
    // Our FIN takes a sequence number of its own.
    let over = Endpoint {
        snd_nxt: over.snd_nxt.wrapping_add(1),
        ..over
    };
    over.unchanged(Outcome::RxFin, fin)
}
