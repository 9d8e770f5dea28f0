//! The flow table as the programs use it: look-ups, and changes word by word.

use core::mem::MaybeUninit;

use aya_ebpf::bindings::{BPF_F_NO_PREALLOC, BPF_NOEXIST};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{HashMap, PerCpuArray};
use xdptun_common::flow::key::FlowKey;
use xdptun_common::flow::seq::{after, distance};
use xdptun_common::flow::tick::Tick;
use xdptun_common::tunnel::ack::{ACK_BYTES, ACK_DELAY_NS, AckMarks};
use xdptun_common::tunnel::handshake::{ANYWHERE, Endpoint, Segment, next_expected};
use xdptun_common::tunnel::state::Opener;
use xdptun_common::tunnel::state::{
    Flow, KeptFields, MOST_SYNS, REMEMBERED, RESTARTED, SILENCE, State, answer, syn_is_due,
};
use xdptun_common::tunnel::window::MAX_WINDOW;
use xdptun_common::wire::IpFields;

use crate::flow::word::Word;
use crate::tunnel::cookie::{first_identification, label};
use crate::tunnel::share;
use crate::tunnel::share::Refusal;

/// Every flow. Not preallocated, so that closed flows give their memory back;
/// not LRU, so that a flood cannot push a live flow out. User space sets the
/// capacity.
#[map]
pub static FLOWS: HashMap<FlowKey, Flow> = HashMap::with_max_entries(65536, BPF_F_NO_PREALLOC);

/// The flow entry that this program run is about to insert. Not on the stack, which is
/// full.
#[map]
pub static NEW_FLOW: PerCpuArray<Flow> = PerCpuArray::with_max_entries(1, 0);

/// An entry of the table. Stays readable for the whole program run: the kernel
/// frees it only after an RCU grace period, and the daemon removes only entries
/// that have been closed, idle or unanswered for a while.
#[derive(Clone, Copy)]
pub struct Entry(*mut Flow);

/// A word of the entry by its field name.
macro_rules! word {
    ($entry:expr, $($field:tt)+) => {
        // SAFETY: a field of a map value that the look-up returned; `Flow` is
        // `repr(C)` and its words are aligned.
        unsafe { Word::new(&raw mut (*$entry.0).$($field)+) }
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

/// Why an entry was not made. Another CPU may have made it meanwhile, whatever the reason.
pub enum InsertError {
    /// The table is full, or for a peer what is left of it is kept.
    Full,
    /// Peers have their share of it.
    Share,
}

/// What [`insert_new`] returns where the kernel has no error of its own.
const EDQUOT: i32 = -122;

/// Makes an entry for a flow whose endpoint is `endpoint`.
#[inline(always)]
pub fn insert(
    key: &FlowKey,
    endpoint: &Endpoint,
    link: [u8; 14],
    now: u64,
) -> Result<(), InsertError> {
    match insert_new(key, endpoint, &link, now) {
        0 => Ok(()),
        EDQUOT => Err(InsertError::Share),
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

/// A subprogram. The new entry does not fit on the stack, and is put together in a map.
#[inline(never)]
fn insert_new(key: &FlowKey, endpoint: &Endpoint, link: &[u8; 14], now: u64) -> i32 {
    const ENOMEM: i32 = -12;
    let opener = Opener::of_new(endpoint.state);
    if opener == Opener::Peer {
        match share::admit_peer(key, now) {
            Ok(()) => {}
            Err(Refusal::Kept) => return ENOMEM,
            Err(Refusal::Share) => return EDQUOT,
        }
    }
    let Some(flow) = NEW_FLOW.get_ptr_mut(0) else {
        return ENOMEM;
    };
    // SAFETY: a per-CPU value, which only this program run touches; all-zero bytes are a
    // valid `Flow`.
    let flow = unsafe {
        flow.write(MaybeUninit::zeroed().assume_init());
        &mut *flow
    };
    flow.state = endpoint.state as u32;
    flow.iss = endpoint.iss;
    flow.snd_una = endpoint.snd_una;
    flow.snd_nxt = endpoint.snd_nxt;
    flow.rcv_nxt = endpoint.rcv_nxt;
    flow.acked = endpoint.rcv_nxt;
    flow.ack_marks = AckMarks::new(endpoint.snd_una, Tick::at(now));
    flow.opened_at = now;
    flow.sent_at = now;
    flow.received_at = now;
    flow.data_at = now;
    flow.link = *link;
    flow.syns = syns_at_first(endpoint.state);
    flow.kept_fields = KeptFields::new(first_identification(key, endpoint.iss));
    if !matches!(endpoint.state, State::SynSent) {
        // The SYN-ACK, which was sent without a flow, had this one.
        flow.label = label(key);
    }
    if matches!(endpoint.state, State::Established) {
        flow.established_at = now;
    }
    // By reference: a copy would be on the stack.
    let flow: &Flow = flow;
    match FLOWS.insert(key, flow, u64::from(BPF_NOEXIST)) {
        Ok(()) => {
            share::count_opened(opener);
            if opener == Opener::Peer {
                share::charge_network(key, now);
            }
            0
        }
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

    /// The next sequence number to send.
    #[inline(always)]
    pub fn snd_nxt(self) -> u32 {
        word!(self, snd_nxt).load()
    }

    #[inline(always)]
    fn ack_marks(self) -> AckMarks {
        AckMarks {
            numbers: [
                word!(self, ack_marks.numbers[0]).load(),
                word!(self, ack_marks.numbers[1]).load(),
            ],
            since: word!(self, ack_marks.since).load(),
        }
    }

    #[inline(always)]
    fn set_ack_marks(self, marks: AckMarks) {
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
        if matches!(before, State::Closed) && after.state != before {
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

    /// Whether the datagram that has just left is the first answer to a peer that opened
    /// the flow. Two CPUs that send the first two at once may both miss it.
    #[inline(always)]
    pub fn has_just_answered(self) -> bool {
        word!(self, tx_packets).load() == 1 && word!(self, syn_at).load() == 0
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
        self.set_ack_marks(AckMarks::new(fresh.snd_una, Tick::at(now)));
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
            State::FinSent => Some(self.snd_nxt().wrapping_sub(1)),
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

    /// Whether it is time to answer a segment with nothing but the flow's numbers; at most
    /// one of all CPUs is told so.
    #[inline(always)]
    pub fn claim_answer(self, now: u64) -> bool {
        let earned_at = word!(self, answers_earned_at);
        let before = earned_at.load();
        match answer(before, Tick::at(now)) {
            Some(after) => earned_at.replace(before, after),
            None => false,
        }
    }

    /// When an ICMP error last proved nothing.
    #[inline(always)]
    pub fn distrusted_at(self) -> u32 {
        word!(self, distrusted_at).load()
    }

    /// Notes that an ICMP error proved nothing.
    #[inline(always)]
    pub fn distrust(self, now: u64) {
        word!(self, distrusted_at).store(Tick::at(now).0);
    }

    /// Notes what an acceptable segment acknowledges.
    #[inline(always)]
    pub fn acknowledged(self, segment: &Segment, now: u64) {
        let snd_una = word!(self, snd_una);
        let before = snd_una.load();
        if after(segment.acknowledgment, before) {
            if let Some(marks) = self.ack_marks().moved(before, Tick::at(now)) {
                self.set_ack_marks(marks);
            }
            snd_una.store(segment.acknowledgment);
        }
    }

    /// Counts a datagram and moves the acknowledgement number up to its end.
    #[inline(always)]
    pub fn receive_datagram(self, segment: &Segment, now: u64) {
        self.acknowledged(segment, now);
        self.advance_rcv_nxt(segment);
        self.received(now);
        word!(self, data_at).refresh(now);
        word!(self, rx_bytes).fetch_add(u64::from(segment.len));
        word!(self, rx_packets).fetch_add(1);
    }

    #[inline(always)]
    fn advance_rcv_nxt(self, segment: &Segment) {
        let rcv_nxt = word!(self, rcv_nxt);
        // The number must not move back, whichever CPU comes last; after a
        // few lost races the others have moved it further than we would.
        for _ in 0..4 {
            let seen = rcv_nxt.load();
            let next = next_expected(seen, segment);
            if next == seen || rcv_nxt.replace(seen, next) {
                break;
            }
        }
    }

    /// Notes the IP header of a datagram that leaves.
    #[inline(always)]
    pub fn keep_fields(self, fields: IpFields) {
        let kept = word!(self, kept_fields);
        let before = kept.load();
        let after = before.seen(fields);
        if after != before {
            kept.store(after);
        }
    }

    /// Takes the flow label of the datagram that opens the flow.
    #[inline(always)]
    pub fn set_label(self, label: u32) {
        word!(self, label).store(label);
    }

    /// The flow label of its segments, or 0 for that of the datagram.
    #[inline(always)]
    pub fn label(self) -> u32 {
        word!(self, label).load()
    }

    /// The IP header fields of a segment without data that leaves now. `hop_limit` is that
    /// of the host.
    #[inline(always)]
    pub fn fields(self, is_syn: bool, hop_limit: u8) -> IpFields {
        let syns = self.syns() & !RESTARTED;
        let count = if is_syn {
            syns
        } else {
            // One for each that came: the first that leaves may overtake the handshake's ACK.
            let datagrams = word!(self, rx_packets).load() as u16;
            datagrams.wrapping_add(syns).wrapping_add(1)
        };
        let kept = word!(self, kept_fields).load();
        kept.fields(count, hop_limit, self.label())
    }

    /// Remembers the link header that reaches the peer.
    #[inline(always)]
    pub fn set_link(self, link: [u8; 14]) {
        // SAFETY: a field of a map value; torn writes only cost one segment.
        unsafe { (*self.0).link = link }
    }
}
