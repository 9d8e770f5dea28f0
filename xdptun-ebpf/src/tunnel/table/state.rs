//! The state of a flow and its numbers, changed word by word.

use xdptun_common::flow::tick::Tick;
use xdptun_common::tunnel::ack::AckMarks;
use xdptun_common::tunnel::handshake::{ANYWHERE, Endpoint};
use xdptun_common::tunnel::state::{
    MOST_SYNS, Opener, REMEMBERED, RESTARTED, SILENCE, State, syn_is_due,
};
use xdptun_common::tunnel::window::MAX_WINDOW;

use super::{Entry, syns_at_first};
use crate::flow::word::Word;
use crate::tunnel::share;

/// How long a flow lives at least, in nanoseconds, for its successor to be opened
/// at once.
pub(super) const HARDLY_LASTED: u64 = 400_000_000;

impl Entry {
    /// The state.
    #[inline(always)]
    pub fn state(self) -> State {
        State::from_raw(word!(self, state).load())
    }

    /// What the state machine looks at.
    #[inline(always)]
    pub fn endpoint(self, now: u64) -> Endpoint {
        Endpoint {
            iss: self.iss(),
            ..self.endpoint_without_iss(now)
        }
    }

    /// The same, with 0 as initial number. That number lies on another cache line, and a
    /// segment of an open flow does not need it.
    #[inline(always)]
    pub fn endpoint_without_iss(self, now: u64) -> Endpoint {
        let snd_una = word!(self, snd_una).load();
        let silence = Tick::at(now).since(Tick::at(word!(self, received_at).load()).0);
        Endpoint {
            state: self.state(),
            iss: 0,
            snd_una,
            snd_nxt: word!(self, snd_nxt).load(),
            rcv_nxt: word!(self, rcv_nxt).load(),
            oldest_ack: self.ack_marks().oldest(snd_una, Tick::at(now)),
            reach: if silence > SILENCE {
                ANYWHERE
            } else {
                MAX_WINDOW
            },
        }
    }

    /// The initial sequence number.
    #[inline(always)]
    pub fn iss(self) -> u32 {
        word!(self, iss).load()
    }

    /// The next sequence number expected from the peer.
    #[inline(always)]
    pub fn rcv_nxt(self) -> u32 {
        word!(self, rcv_nxt).load()
    }

    /// The next sequence number to send.
    #[inline(always)]
    pub fn snd_nxt(self) -> u32 {
        word!(self, snd_nxt).load()
    }

    #[inline(always)]
    pub(super) fn ack_marks(self) -> AckMarks {
        AckMarks {
            numbers: [
                word!(self, ack_marks.numbers[0]).load(),
                word!(self, ack_marks.numbers[1]).load(),
            ],
            since: word!(self, ack_marks.since).load(),
        }
    }

    #[inline(always)]
    pub(super) fn set_ack_marks(self, marks: AckMarks) {
        word!(self, ack_marks.numbers[0]).store(marks.numbers[0]);
        word!(self, ack_marks.numbers[1]).store(marks.numbers[1]);
        word!(self, ack_marks.since).store(marks.since);
    }

    /// Moves from the state `before` to `after`. `false` if another CPU
    /// changed the state meanwhile; then what it decided holds.
    ///
    /// A subprogram: it is rare, and its caller has no stack to spare.
    #[inline(never)]
    pub fn advance(self, before: State, after: &Endpoint, now: u64) -> bool {
        let state = word!(self, state);
        if state.load() != before as u32 {
            return false;
        }
        // The numbers first: a CPU that sees the new state must see them. Those that
        // datagrams change are left to these while the connection is the same.
        if after.iss != self.iss() {
            word!(self, iss).store(after.iss);
            word!(self, snd_una).store(after.snd_una);
            word!(self, snd_nxt).store(after.snd_nxt);
            // Nothing of the connection before is to be acknowledged.
            self.set_ack_marks(AckMarks::new(after.snd_una, Tick::at(now)));
        } else if matches!(after.state, State::Closed) && after.snd_nxt != self.snd_nxt() {
            // A FIN takes a number.
            word!(self, snd_nxt).store(after.snd_nxt);
        }
        word!(self, rcv_nxt).store(after.rcv_nxt);
        if matches!(after.state, State::Closed) {
            // The daemon keeps the entry for a while from now on. A peer that opens the flow again
            // needs nothing of its share then.
            self.received(now);
        }
        if matches!(before, State::Closed) && after.state != before {
            self.forget_peer();
            word!(self, opened_at).store(now);
            word!(self, syn_at).store(0);
            word!(self, syns).store(syns_at_first(after.state));
        }
        if after.state != before && matches!(after.state, State::Established) {
            // The handshake acknowledged what it brought.
            word!(self, acked).store(after.rcv_nxt);
            word!(self, established_at).store(now);
        }
        let answers = self.is_called(before) && matches!(after.state, State::Established);
        let is_done = state.replace(before as u32, after.state as u32);
        if is_done && answers {
            share::count_answered(Opener::Host);
        }
        is_done
    }

    /// Whether this host opened the flow, in this state, and no datagram left on it yet.
    #[inline(always)]
    fn is_called(self, state: State) -> bool {
        let is_called = match state {
            State::SynSent => true,
            State::SynReceived => word!(self, syns).load() != REMEMBERED,
            State::Closed | State::Established | State::FinSent => false,
        };
        is_called && word!(self, tx_packets).load() == 0
    }

    /// Opens again a flow that is in state `from`, with the initial sequence
    /// number `iss`. If several CPUs try, one does, and the others may still see
    /// the old state.
    ///
    /// If it was opened a moment ago and did not last, its SYN has to wait as if
    /// it were the second: something on the path ends the flows that we open.
    #[inline(always)]
    pub fn reopen(self, from: State, iss: u32, now: u64) {
        let fresh = Endpoint::opening(iss);
        let opened_at = word!(self, opened_at);
        let before = opened_at.load();
        // A clock reading that equals the last one must still differ from it.
        let after = if now == before {
            before.wrapping_add(1)
        } else {
            now
        };
        if !opened_at.replace(before, after) {
            return;
        }
        // The numbers first: a reader that sees the new state must see them.
        word!(self, iss).store(fresh.iss);
        word!(self, snd_una).store(fresh.snd_una);
        word!(self, snd_nxt).store(fresh.snd_nxt);
        word!(self, rcv_nxt).store(fresh.rcv_nxt);
        self.set_ack_marks(AckMarks::new(fresh.snd_una, Tick::at(now)));
        let (syns, syn_at) = match now.saturating_sub(before) < HARDLY_LASTED {
            true => (1, before),
            false => (0, 0),
        };
        word!(self, syns).store(syns);
        word!(self, syn_at).store(syn_at);
        word!(self, established_at).store(0);
        self.forget_peer();
        word!(self, state).replace(from as u32, fresh.state as u32);
    }

    /// Whether it is this packet's turn to be the next SYN. At most one packet
    /// of all CPUs gets a turn.
    #[inline(always)]
    pub fn claim_syn(self, now: u64) -> bool {
        if !matches!(self.state(), State::SynSent | State::SynReceived) {
            return false;
        }
        let (at, syns) = (word!(self, syn_at), word!(self, syns));
        let (last, sent) = (at.load(), syns.load());
        if !syn_is_due(last, sent, now) || !at.replace(last, now) {
            return false;
        }
        if sent & !RESTARTED < MOST_SYNS {
            syns.store(sent.wrapping_add(1));
        }
        true
    }

    /// Its count of SYNs.
    #[inline(always)]
    pub fn syns(self) -> u16 {
        word!(self, syns).load()
    }

    /// When the entry was made or opened anew.
    #[inline(always)]
    pub fn opened_at(self) -> u64 {
        word!(self, opened_at).load()
    }

    /// Whether a fresh SYN is owed after a reset: an answer to an older SYN would complete
    /// a connection that firewalls have just seen reset.
    #[inline(always)]
    pub fn owes_syn(self) -> bool {
        self.state() == State::SynSent && word!(self, syns).load() == RESTARTED
    }

    /// Starts the count of SYNs anew, once, so that the next one follows soon: the peer
    /// had a flow of its own in the way, and gives it up now.
    #[inline(always)]
    pub fn restart_syns(self) {
        let syns = word!(self, syns);
        if syns.load() & RESTARTED == 0 {
            syns.store(RESTARTED);
        }
    }

    /// Starts a clean end: from now on no datagram leaves. Returns the sequence
    /// number of the FIN, also if it was sent before; `None` if there is nothing
    /// to end.
    #[inline(always)]
    pub fn finish(self, now: u64) -> Option<u32> {
        match self.state() {
            State::Established => {
                if word!(self, state).replace(State::Established as u32, State::FinSent as u32) {
                    word!(self, syn_at).store(now);
                    Some(word!(self, snd_nxt).fetch_add(1))
                } else {
                    None
                }
            }
            State::FinSent => Some(self.snd_nxt().wrapping_sub(1)),
            State::SynSent | State::SynReceived => {
                word!(self, state).store(State::Closed as u32);
                None
            }
            State::Closed => None,
        }
    }
}
