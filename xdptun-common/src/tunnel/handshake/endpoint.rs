//! This host's side of a flow: its numbers, and its checks of a segment.

use super::segment::{Reply, Segment};
use super::{Admission, CONTROL, Reaction, complete_by_cookie};
use crate::flow::seq::{after, distance, near};
use crate::tunnel::isn;
use crate::tunnel::outcome::{Outcome, Sent};
use crate::tunnel::state::{MAX_STEP, State};
use crate::tunnel::window::MAX_WINDOW;
use crate::wire::Flags;

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

    /// What a SYN makes of a listener: the other end of the one that sent it. The next number expected
    /// of that is `rcv_nxt`.
    #[inline(always)]
    pub(super) const fn asked(iss: u32, rcv_nxt: u32) -> Self {
        Self {
            state: State::SynReceived,
            rcv_nxt,
            ..Self::opening(iss)
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
    pub(super) const fn ack(&self, kind: Sent) -> Reply {
        Reply {
            kind,
            flags: Flags::ACK,
            sequence: self.snd_nxt,
            acknowledgment: self.rcv_nxt,
        }
    }

    #[inline(always)]
    pub(super) const fn fin(&self, sequence: u32) -> Reply {
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
    pub(super) const fn owes_fin(&self, segment: &Segment) -> bool {
        matches!(self.state, State::FinSent)
            && segment.exact
            && segment.acknowledgment != self.snd_nxt
    }

    #[inline(always)]
    pub(super) const fn syn_ack(&self) -> Reply {
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
    pub(super) const fn advanced(mut self, segment: &Segment) -> Self {
        self.rcv_nxt = next_expected(self.rcv_nxt, segment);
        self.acknowledged(segment)
    }

    /// The same endpoint after an acceptable segment without data. A probe or challenge
    /// names its sender's latest number. If ours is ahead, a forged segment moved it there,
    /// and the peer takes nothing that we send: the peer's holds.
    ///
    /// If ours is behind, the data between was lost, and ours stays: firewalls that have not
    /// seen that data drop all that acknowledges it (`nf_conntrack_proto_tcp.c`,
    /// `tcp_in_window`). After a FIN it does not stay: a peer that does not take our FIN for its
    /// number would answer each one with a challenge, and we each challenge with a FIN, without
    /// end.
    #[inline(always)]
    pub(super) const fn corrected(mut self, segment: &Segment) -> Self {
        let named = segment.sequence.wrapping_add(segment.asks as u32);
        let has_finished = matches!(self.state, State::FinSent);
        if segment.exact && (has_finished || after(self.rcv_nxt, named)) {
            self.rcv_nxt = named;
        }
        self.acknowledged(segment)
    }

    /// Whether a segment acknowledges our SYN and nothing after it.
    #[inline(always)]
    pub(super) const fn syn_is_acknowledged(&self, segment: &Segment) -> bool {
        segment.flags.contains(Flags::ACK) && segment.acknowledgment == self.iss.wrapping_add(1)
    }

    /// [`complete_by_cookie`] while our own SYN is under way. The numbers of the
    /// flow that this one replaces are good cookies for a while, but
    /// [far](isn::far_from) from its own: a firewall that forgot that flow knows
    /// the new SYN alone.
    #[inline(always)]
    pub(super) fn complete_by_cookie(
        &self,
        segment: &Segment,
        admission: &impl Admission,
    ) -> Option<Reaction> {
        const QUARTER: u32 = 1 << 30;
        if near(segment.acknowledgment, self.iss, QUARTER) {
            complete_by_cookie(segment, admission)
        } else {
            None
        }
    }

    /// The reaction to the SYN-ACK that completes the handshake.
    #[inline(always)]
    pub(super) const fn complete(mut self, rcv_nxt: u32) -> Reaction {
        self.state = State::Established;
        self.rcv_nxt = rcv_nxt;
        self.unchanged(Outcome::RxSynAck, self.ack(Sent::Ack))
    }

    /// While our SYN is under way, the peer believes in a flow that is not there:
    /// tell it, and stay. Nothing is said to a segment that acknowledges nothing
    /// (RFC 9293 section 3.10.7.3).
    #[inline(always)]
    pub(super) const fn contradicts(self, segment: &Segment) -> Reaction {
        self.unchanged(Outcome::RxDropNoFlow, segment.reset())
    }

    /// Unknown sender: reset, or ignored if the port is hidden.
    #[inline(always)]
    pub(super) fn turned_away(self, segment: &Segment, admission: &impl Admission) -> Reaction {
        if admission.is_hidden() {
            return self.unchanged(Outcome::RxDropUnproven, Reply::NONE);
        }
        self.unchanged(Outcome::RxDropNoFlow, segment.reset())
    }

    #[inline(always)]
    pub(super) const fn closed(mut self) -> Self {
        self.state = State::Closed;
        self
    }

    #[inline(always)]
    pub(super) const fn unchanged(self, outcome: Outcome, reply: Reply) -> Reaction {
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
