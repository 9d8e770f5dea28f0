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

use crate::flow::seq::{after, distance, near};
use crate::tunnel::isn;
use crate::tunnel::outcome::{Outcome, Sent};
use crate::tunnel::state::{MAX_STEP, State};
use crate::tunnel::window::MAX_WINDOW;
use crate::wire::Flags;

/// Whom a host answers.
pub trait Door {
    /// Whether we gave out this number lately, to the flow at hand.
    fn gave(&self, iss: u32) -> bool;

    /// Whether a SYN may come in. If callers need not prove anything, any may.
    fn admits(&self, syn: &Segment) -> bool;

    /// Whether somebody else answers segments of the flow as long as it is in no
    /// table. Then it comes into the table with the SYN.
    fn is_contested(&self) -> bool;

    /// Whether whoever may not come in gets no answer at all.
    fn is_hidden(&self) -> bool;
}

/// A door for everyone.
impl<F: Fn(u32) -> bool> Door for F {
    #[inline(always)]
    fn gave(&self, iss: u32) -> bool {
        self(iss)
    }

    #[inline(always)]
    fn admits(&self, _syn: &Segment) -> bool {
        true
    }

    #[inline(always)]
    fn is_contested(&self) -> bool {
        false
    }

    #[inline(always)]
    fn is_hidden(&self) -> bool {
        false
    }
}

/// One end of a flow, as far as the handshake is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Where the flow is in its life.
    pub state: State,
    /// Our initial sequence number.
    pub iss: u32,
    /// The highest acknowledgement number seen.
    pub snd_una: u32,
    /// The next sequence number to send.
    pub snd_nxt: u32,
    /// The next sequence number expected.
    pub rcv_nxt: u32,
    /// The oldest acknowledgement number that is taken ([`crate::tunnel::ack::AckMarks`]).
    pub oldest_ack: u32,
    /// How far a sequence number may lie from `rcv_nxt`: [`MAX_WINDOW`], or
    /// [`ANYWHERE`] after [`crate::tunnel::state::SILENCE`].
    pub reach: u32,
}

/// Stands for any distance ([`Endpoint::reach`]).
pub const ANYWHERE: u32 = u32::MAX;

/// What of an inbound segment matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Control bits.
    pub flags: Flags,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgment: u32,
    /// Payload length in bytes.
    pub len: u32,
    /// Whether its sender asks for an answer ([`crate::tunnel::window::asks`]).
    pub asks: bool,
    /// Whether it names its sender's latest numbers ([`crate::tunnel::window::is_exact`]).
    pub exact: bool,
}

/// A control segment to send back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What it is, and its counter.
    pub kind: Sent,
    /// Control bits.
    pub flags: Flags,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgment: u32,
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

impl Reply {
    /// No reply: no segment has no flags.
    pub const NONE: Self = Self {
        kind: Sent::Ack,
        flags: Flags(0),
        sequence: 0,
        acknowledgment: 0,
    };

    /// Whether there is one.
    #[inline(always)]
    #[must_use]
    pub const fn is_some(&self) -> bool {
        self.flags.0 != 0
    }
}

impl Segment {
    /// The sequence number after its payload.
    #[inline(always)]
    #[must_use]
    pub const fn end(&self) -> u32 {
        self.sequence.wrapping_add(self.len)
    }

    /// Whether it is a challenge: its sender is there, but did not take what we sent.
    #[inline(always)]
    #[must_use]
    pub const fn is_challenge(&self) -> bool {
        self.exact && !self.asks && !self.is_datagram()
    }

    /// Whether it carries a datagram: payload, or PSH for an empty one.
    #[inline(always)]
    #[must_use]
    pub const fn is_datagram(&self) -> bool {
        self.len != 0 || self.flags.contains(Flags::PSH)
    }

    /// The reset that a segment without a flow deserves. One that acknowledges nothing
    /// deserves none: an open port of Linux ignores NULL, FIN and Xmas scans (RFC 9293
    /// section 3.10.7.2, "any other control or data-bearing segment"), and so the port
    /// looks open, as it is. A reset gets none either.
    #[inline(always)]
    const fn reset(&self) -> Reply {
        if !self.flags.contains(Flags::ACK) || self.flags.contains(Flags::RST) {
            return Reply::NONE;
        }
        Reply {
            kind: Sent::Rst,
            flags: Flags::RST,
            sequence: self.acknowledgment,
            acknowledgment: 0,
        }
    }
}

impl Endpoint {
    /// An owned port without a flow.
    pub const LISTENING: Self = Self {
        state: State::Closed,
        iss: 0,
        snd_una: 0,
        snd_nxt: 0,
        rcv_nxt: 0,
        oldest_ack: 0,
        reach: MAX_WINDOW,
    };

    /// An active open: about to send the first SYN.
    #[inline(always)]
    #[must_use]
    pub const fn opening(iss: u32) -> Self {
        Self {
            state: State::SynSent,
            iss,
            snd_una: iss.wrapping_add(1),
            snd_nxt: iss.wrapping_add(1),
            rcv_nxt: 0,
            oldest_ack: iss.wrapping_add(1),
            reach: MAX_WINDOW,
        }
    }

    /// The initial number of the flow that follows this one, if `isn` is what
    /// [`crate::tunnel::isn`] has for it now.
    #[inline(always)]
    #[must_use]
    pub const fn next_iss(&self, isn: u32) -> u32 {
        // Nothing was ever sent.
        if self.snd_nxt == Self::LISTENING.snd_nxt {
            isn
        } else {
            isn::far_from(self.snd_nxt, isn)
        }
    }

    /// Whether a segment of an established flow is a datagram in the window, and
    /// nothing else: the one case that needs no state machine.
    #[inline(always)]
    #[must_use]
    pub const fn takes_datagram(&self, segment: &Segment) -> bool {
        matches!(self.state, State::Established)
            && segment.flags.contains(Flags::ACK)
            && !segment.flags.intersects(CONTROL)
            && segment.is_datagram()
            && self.acceptable(segment)
    }

    /// Whether sequence and acknowledgement number are plausible (RFC 9293
    /// section 3.10.7.4, RFC 5961 section 5.2): it acknowledges something between what
    /// was acknowledged a moment ago and the last byte sent, however many bytes that is
    /// on a long and fast path.
    #[inline(always)]
    #[must_use]
    pub const fn acceptable(&self, segment: &Segment) -> bool {
        let plausible = self.snd_nxt.wrapping_sub(self.oldest_ack);
        segment.acknowledgment.wrapping_sub(self.oldest_ack) <= plausible
            && near(segment.sequence, self.rcv_nxt, self.reach)
    }

    #[inline(always)]
    const fn ack(&self, kind: Sent) -> Reply {
        Reply {
            kind,
            flags: Flags::ACK,
            sequence: self.snd_nxt,
            acknowledgment: self.rcv_nxt,
        }
    }

    #[inline(always)]
    const fn fin(&self, sequence: u32) -> Reply {
        Reply {
            kind: Sent::Fin,
            flags: Flags::FIN.with(Flags::ACK),
            sequence,
            acknowledgment: self.rcv_nxt,
        }
    }

    /// Whether we sent a FIN that the peer cannot take, as it misses what was sent before:
    /// the one it takes has the number that this segment of it acknowledges.
    #[inline(always)]
    const fn owes_fin(&self, segment: &Segment) -> bool {
        matches!(self.state, State::FinSent)
            && segment.exact
            && segment.acknowledgment != self.snd_nxt
    }

    #[inline(always)]
    const fn syn_ack(&self) -> Reply {
        Reply {
            kind: Sent::SynAck,
            flags: Flags::SYN.with(Flags::ACK),
            sequence: self.iss,
            acknowledgment: self.rcv_nxt,
        }
    }

    /// The same endpoint after what an acceptable segment acknowledges.
    #[inline(always)]
    const fn acknowledged(mut self, segment: &Segment) -> Self {
        if after(segment.acknowledgment, self.snd_una) {
            self.snd_una = segment.acknowledgment;
        }
        self
    }

    /// The same endpoint after an acceptable segment with data.
    #[inline(always)]
    const fn advanced(mut self, segment: &Segment) -> Self {
        self.rcv_nxt = next_expected(self.rcv_nxt, segment);
        self.acknowledged(segment)
    }

    /// The same endpoint after an acceptable segment without data. A probe or challenge
    /// names its sender's latest number. If ours is ahead, a forged segment moved it there,
    /// and the peer takes nothing that we send: the peer's holds.
    ///
    /// If ours is behind, the data between was lost, and ours stays: firewalls that have not
    /// seen that data drop all that acknowledges it (`nf_conntrack_proto_tcp.c`,
    /// `tcp_in_window`).
    #[inline(always)]
    const fn corrected(mut self, segment: &Segment) -> Self {
        let named = segment.sequence.wrapping_add(segment.asks as u32);
        if segment.exact && after(self.rcv_nxt, named) {
            self.rcv_nxt = named;
        }
        self.acknowledged(segment)
    }

    /// Whether a segment acknowledges our SYN and nothing after it.
    #[inline(always)]
    const fn syn_is_acknowledged(&self, segment: &Segment) -> bool {
        segment.flags.contains(Flags::ACK) && segment.acknowledgment == self.iss.wrapping_add(1)
    }

    /// [`complete_by_cookie`] while our own SYN is under way. The numbers of the
    /// flow that this one replaces are good cookies for a while, but
    /// [far](isn::far_from) from its own: a firewall that forgot that flow knows
    /// the new SYN alone.
    #[inline(always)]
    fn complete_by_cookie(&self, segment: &Segment, door: &impl Door) -> Option<Reaction> {
        const QUARTER: u32 = 1 << 30;
        if near(segment.acknowledgment, self.iss, QUARTER) {
            complete_by_cookie(segment, door)
        } else {
            None
        }
    }

    /// The reaction to the SYN-ACK that completes the handshake.
    #[inline(always)]
    const fn complete(mut self, rcv_nxt: u32) -> Reaction {
        self.state = State::Established;
        self.rcv_nxt = rcv_nxt;
        self.unchanged(Outcome::RxSynAck, self.ack(Sent::Ack))
    }

    /// While our SYN is under way, the peer believes in a flow that is not there:
    /// tell it, and stay. Nothing is said to a segment that acknowledges nothing
    /// (RFC 9293 section 3.10.7.3).
    #[inline(always)]
    const fn contradicts(self, segment: &Segment) -> Reaction {
        self.unchanged(Outcome::RxDropNoFlow, segment.reset())
    }

    /// Unknown sender: reset, or ignored if the port is hidden.
    #[inline(always)]
    fn turned_away(self, segment: &Segment, door: &impl Door) -> Reaction {
        if door.is_hidden() {
            return self.unchanged(Outcome::RxDropUnproven, Reply::NONE);
        }
        self.unchanged(Outcome::RxDropNoFlow, segment.reset())
    }

    #[inline(always)]
    const fn closed(mut self) -> Self {
        self.state = State::Closed;
        self
    }

    #[inline(always)]
    const fn unchanged(self, outcome: Outcome, reply: Reply) -> Reaction {
        Reaction {
            endpoint: self,
            outcome,
            reply,
        }
    }
}

/// The number expected after an acceptable segment: the segment's end, but never before
/// `expected` and at most [`MAX_STEP`] ahead. A segment outside the window, which is taken
/// only after [`crate::tunnel::state::SILENCE`], sets it to its end.
#[inline(always)]
#[must_use]
pub const fn next_expected(expected: u32, segment: &Segment) -> u32 {
    let end = segment.end();
    let ahead = distance(end, expected);
    if !near(segment.sequence, expected, MAX_WINDOW) {
        end
    } else if ahead <= 0 {
        expected
    } else if ahead.cast_unsigned() > MAX_STEP {
        expected.wrapping_add(MAX_STEP)
    } else {
        end
    }
}

/// The bits that make a segment more than data and acknowledgement.
const CONTROL: Flags = Flags(Flags::SYN.0 | Flags::FIN.0 | Flags::RST.0);

/// A segment for an owned port that has no flow. `isn` is the number that the
/// flow's SYN-ACK carries now. A reaction in another state than [`State::Closed`]
/// means: make the flow.
#[inline(always)]
pub fn listen(segment: &Segment, isn: u32, door: &impl Door) -> Reaction {
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
        return nothing.turned_away(segment, door);
    }
    if segment.flags.contains(Flags::SYN) && !segment.flags.intersects(Flags::ACK.with(Flags::FIN))
    {
        if !door.admits(segment) {
            return nothing.turned_away(segment, door);
        }
        let asked = Endpoint {
            state: State::SynReceived,
            rcv_nxt: segment.sequence.wrapping_add(1),
            ..Endpoint::opening(isn)
        };
        let remembered = if door.is_contested() { asked } else { nothing };
        return remembered.unchanged(Outcome::RxSyn, asked.syn_ack());
    }
    if !segment.flags.intersects(CONTROL)
        && let Some(reaction) = complete_by_cookie(segment, door)
    {
        return reaction;
    }
    nothing.turned_away(segment, door)
}

/// An acknowledgement that names a number we gave out proves that its sender
/// received our SYN-ACK: the flow is established from there.
#[inline(always)]
fn complete_by_cookie(segment: &Segment, door: &impl Door) -> Option<Reaction> {
    let iss = segment.acknowledgment.wrapping_sub(1);
    if !segment.flags.contains(Flags::ACK) || !door.gave(iss) {
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
pub fn receive(endpoint: Endpoint, segment: &Segment, door: &impl Door) -> Reaction {
    match endpoint.state {
        State::Closed => in_closed(endpoint, segment, door),
        State::SynSent => in_syn_sent(endpoint, segment, door),
        State::SynReceived => in_syn_received(endpoint, segment, door),
        State::Established | State::FinSent => in_open_flow(endpoint, segment),
    }
}

#[inline(always)]
fn in_closed(endpoint: Endpoint, segment: &Segment, door: &impl Door) -> Reaction {
    // The last ACK of a clean end; a reset in answer would spoil it.
    if segment.flags == Flags::ACK
        && segment.len == 0
        && !segment.exact
        && segment.acknowledgment == endpoint.snd_nxt
        && near(segment.sequence, endpoint.rcv_nxt, MAX_WINDOW)
    {
        return endpoint.unchanged(Outcome::RxAck, Reply::NONE);
    }
    let reaction = listen(segment, endpoint.iss, door);
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
fn in_syn_sent(endpoint: Endpoint, segment: &Segment, door: &impl Door) -> Reaction {
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
            if !door.admits(segment) {
                return endpoint.turned_away(segment, door);
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
        if let Some(reaction) = endpoint.complete_by_cookie(segment, door) {
            return reaction;
        }
    }
    endpoint.contradicts(segment)
}

#[inline(always)]
fn in_syn_received(endpoint: Endpoint, segment: &Segment, door: &impl Door) -> Reaction {
    if segment.flags.contains(Flags::RST) {
        // As in SYN-SENT, where this flow came from: it stays. The SYN that
        // crossed ours may have been an old one, or anyone's.
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
        if !door.admits(segment) {
            return endpoint.turned_away(segment, door);
        }
        // The peer repeats its SYN, or started over: nothing was promised yet.
        let again = Endpoint {
            rcv_nxt,
            ..endpoint
        };
        return again.unchanged(Outcome::RxSyn, again.syn_ack());
    }
    if acknowledges_syn && !segment.flags.contains(Flags::FIN) {
        // Naming our number proves more than the SYN did, which anyone could
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
        && let Some(reaction) = endpoint.complete_by_cookie(segment, door)
    {
        return reaction;
    }
    endpoint.contradicts(segment)
}

#[inline(always)]
fn in_open_flow(endpoint: Endpoint, segment: &Segment) -> Reaction {
    let challenge = endpoint.ack(Sent::ChallengeAck);
    if segment.flags.contains(Flags::RST) {
        // RFC 5961 section 3.2: exact, in the window, or elsewhere.
        return if segment.sequence == endpoint.rcv_nxt {
            endpoint.closed().unchanged(Outcome::RxRst, Reply::NONE)
        } else if near(segment.sequence, endpoint.rcv_nxt, MAX_WINDOW) {
            endpoint.unchanged(Outcome::RxDropReset, challenge)
        } else {
            endpoint.unchanged(Outcome::RxDropReset, Reply::NONE)
        };
    }
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
