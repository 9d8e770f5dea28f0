//! The flow table as the programs use it: look-ups, and changes word by word.

use core::mem::MaybeUninit;

use aya_ebpf::bindings::BPF_NOEXIST;
use xdptun_common::flow::{
    ACK_BYTES, ACK_DELAY_NS, Flow, FlowKey, REMEMBERED, RESTARTED, State, syn_is_due,
};
use xdptun_common::handshake::{Endpoint, Segment};
use xdptun_common::seq::distance;

use crate::atomic::Word;
use crate::maps::FLOWS;

/// An entry of the table. Stays readable for the whole program run: the kernel
/// frees it only after an RCU grace period, and the daemon removes only entries
/// that have been closed or idle for a while.
#[derive(Clone, Copy)]
pub struct Entry(*mut Flow);

/// A word of the entry by its field name.
macro_rules! word {
    ($entry:expr, $field:ident) => {
        // SAFETY: a field of a map value that the look-up returned; `Flow` is
        // `repr(C)` and its words are aligned.
        unsafe { Word::new(&raw mut (*$entry.0).$field) }
    };
}

/// The entry of a flow.
#[inline(always)]
pub fn find(key: &FlowKey) -> Option<Entry> {
    FLOWS.get_ptr_mut(key).map(Entry)
}

/// How long a flow lives at least, in nanoseconds, for its successor to be opened
/// at once.
const HARDLY_LASTED: u64 = 400_000_000;

/// Why an entry could not be made.
pub enum InsertError {
    /// Another CPU was faster.
    Exists,
    /// The table is full.
    Full,
}

/// Makes an entry for a flow whose endpoint is `endpoint`.
#[inline(always)]
pub fn insert(
    key: &FlowKey,
    endpoint: Endpoint,
    link: [u8; 14],
    now: u64,
) -> Result<(), InsertError> {
    const EEXIST: i32 = -17;
    match insert_new(key, &endpoint, &link, now) {
        0 => Ok(()),
        EEXIST => Err(InsertError::Exists),
        _ => Err(InsertError::Full),
    }
}

/// The count of SYNs in an entry that is made in this state.
#[inline(always)]
const fn syns_at_first(state: State) -> u16 {
    match state {
        State::SynReceived => REMEMBERED,
        State::Closed | State::SynSent | State::Established | State::FinSent => 0,
    }
}

/// A subprogram, because the new entry takes a quarter of the stack.
#[inline(never)]
fn insert_new(key: &FlowKey, endpoint: &Endpoint, link: &[u8; 14], now: u64) -> i32 {
    // SAFETY: all-zero bytes are a valid `Flow`.
    let mut flow: Flow = unsafe { MaybeUninit::zeroed().assume_init() };
    flow.state = endpoint.state as u32;
    flow.iss = endpoint.iss;
    flow.snd_una = endpoint.snd_una;
    flow.snd_nxt = endpoint.snd_nxt;
    flow.rcv_nxt = endpoint.rcv_nxt;
    flow.acked = endpoint.rcv_nxt;
    flow.opened_at = now;
    flow.sent_at = now;
    flow.received_at = now;
    flow.data_at = now;
    flow.link = *link;
    flow.syns = syns_at_first(endpoint.state);
    if matches!(endpoint.state, State::Established) {
        flow.established_at = now;
    }
    match FLOWS.insert(key, flow, u64::from(BPF_NOEXIST)) {
        Ok(()) => 0,
        Err(error) => error,
    }
}

impl Entry {
    /// The state.
    #[inline(always)]
    pub fn state(self) -> State {
        State::from_raw(word!(self, state).load())
    }

    /// What the state machine looks at.
    #[inline(always)]
    pub fn endpoint(self) -> Endpoint {
        Endpoint {
            state: self.state(),
            iss: word!(self, iss).load(),
            snd_una: word!(self, snd_una).load(),
            snd_nxt: word!(self, snd_nxt).load(),
            rcv_nxt: word!(self, rcv_nxt).load(),
        }
    }

    /// Moves from the endpoint `before` to `after`. `false` if another CPU
    /// changed the state meanwhile; then what it decided holds.
    ///
    /// A subprogram: it is rare, and its caller has no stack to spare.
    #[inline(never)]
    pub fn advance(self, before: &Endpoint, after: &Endpoint, now: u64) -> bool {
        let state = word!(self, state);
        if state.load() != before.state as u32 {
            return false;
        }
        // The numbers first: whoever sees the new state must see them.
        if after.iss != before.iss {
            word!(self, iss).store(after.iss);
        }
        if after.snd_una != before.snd_una {
            word!(self, snd_una).store(after.snd_una);
        }
        if after.snd_nxt != before.snd_nxt {
            word!(self, snd_nxt).store(after.snd_nxt);
        }
        if after.rcv_nxt != before.rcv_nxt {
            word!(self, rcv_nxt).store(after.rcv_nxt);
        }
        if matches!(before.state, State::Closed) && after.state != before.state {
            word!(self, opened_at).store(now);
            word!(self, syn_at).store(0);
            word!(self, syns).store(syns_at_first(after.state));
        }
        if after.state != before.state && matches!(after.state, State::Established) {
            // The handshake acknowledged what it brought.
            word!(self, acked).store(after.rcv_nxt);
            word!(self, established_at).store(now);
        }
        state.replace(before.state as u32, after.state as u32)
    }

    /// Opens again a flow that is in state `from`, with the initial sequence
    /// number `iss`. If several CPUs try, one does, and the others may still see
    /// the old state.
    ///
    /// If it was opened a moment ago and did not last, its SYN has to wait as if
    /// it were the second: somebody on the way ends what we open.
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
        // The numbers first: whoever sees the new state must see them.
        word!(self, iss).store(fresh.iss);
        word!(self, snd_una).store(fresh.snd_una);
        word!(self, snd_nxt).store(fresh.snd_nxt);
        word!(self, rcv_nxt).store(fresh.rcv_nxt);
        let (syns, syn_at) = match now.saturating_sub(before) < HARDLY_LASTED {
            true => (1, before),
            false => (0, 0),
        };
        word!(self, syns).store(syns);
        word!(self, syn_at).store(syn_at);
        word!(self, established_at).store(0);
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
        syns.store(sent.wrapping_add(1));
        true
    }

    /// When the entry was made or opened anew.
    #[inline(always)]
    pub fn opened_at(self) -> u64 {
        word!(self, opened_at).load()
    }

    /// Whether its SYN has to leave again after a reset. What answers one of before would complete a connection that firewalls between have
    /// just seen reset.
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

    /// Takes the sequence numbers of a datagram of `len` bytes and counts it.
    /// Returns sequence number, acknowledgement number, and the count before.
    #[inline(always)]
    pub fn send_datagram(self, len: u32, now: u64) -> (u32, u32, u64) {
        let sequence = word!(self, snd_nxt).fetch_add(len);
        let acknowledgment = self.acknowledge(now);
        self.expect_answer(now);
        word!(self, data_at).refresh(now);
        word!(self, tx_bytes).fetch_add(u64::from(len));
        (
            sequence,
            acknowledgment,
            word!(self, tx_packets).fetch_add(1),
        )
    }

    /// Notes that something was sent that the peer answers at the latest when it
    /// is asked to.
    #[inline(always)]
    pub fn expect_answer(self, now: u64) {
        if !self.is_unanswered() {
            word!(self, unanswered_at).refresh(now);
        }
    }

    /// Whether something was sent since the peer was last heard of.
    #[inline(always)]
    pub fn is_unanswered(self) -> bool {
        word!(self, unanswered_at).load() > word!(self, received_at).load()
    }

    /// The acknowledgement number for a segment that leaves now.
    #[inline(always)]
    pub fn acknowledge(self, now: u64) -> u32 {
        let acknowledgment = word!(self, rcv_nxt).load();
        word!(self, acked).store(acknowledgment);
        word!(self, sent_at).refresh(now);
        acknowledgment
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
            State::FinSent => Some(word!(self, snd_nxt).load().wrapping_sub(1)),
            State::SynSent | State::SynReceived => {
                word!(self, state).store(State::Closed as u32);
                None
            }
            State::Closed => None,
        }
    }

    /// Whether, with `segment` taken, an acknowledgement of its own is due.
    #[inline(always)]
    pub fn ack_due(self, segment: &Segment, now: u64) -> bool {
        let unacknowledged = distance(segment.end(), word!(self, acked).load());
        unacknowledged > 0
            && (unacknowledged.unsigned_abs() >= ACK_BYTES
                || now.saturating_sub(word!(self, sent_at).load()) >= ACK_DELAY_NS)
    }

    /// Notes a valid segment without data.
    #[inline(always)]
    pub fn received(self, now: u64) {
        word!(self, received_at).refresh(now);
    }

    /// Notes what an acceptable segment acknowledges; whether that is the latest
    /// ([`Endpoint::is_latest`]).
    #[inline(always)]
    pub fn acknowledged(self, segment: &Segment) -> bool {
        let snd_una = word!(self, snd_una);
        let news = distance(segment.acknowledgment, snd_una.load());
        if news > 0 {
            snd_una.store(segment.acknowledgment);
        }
        news >= 0
    }

    /// Counts a datagram and moves the acknowledgement number up to its end.
    #[inline(always)]
    pub fn receive_datagram(self, segment: &Segment, now: u64) {
        if self.acknowledged(segment) {
            self.advance_rcv_nxt(segment);
        }
        self.received(now);
        word!(self, data_at).refresh(now);
        word!(self, rx_bytes).fetch_add(u64::from(segment.len));
        word!(self, rx_packets).fetch_add(1);
    }

    #[inline(always)]
    fn advance_rcv_nxt(self, segment: &Segment) {
        let rcv_nxt = word!(self, rcv_nxt);
        // The number must never move back, whichever CPU comes last; after a
        // few lost races the others have moved it further than we would.
        for _ in 0..4 {
            let seen = rcv_nxt.load();
            if distance(segment.end(), seen) <= 0 || rcv_nxt.replace(seen, segment.end()) {
                break;
            }
        }
    }

    /// Remembers the link header that reaches the peer.
    #[inline(always)]
    pub fn set_link(self, link: [u8; 14]) {
        // SAFETY: a field of a map value; torn writes only cost one segment.
        unsafe { (*self.0).link = link }
    }
}
