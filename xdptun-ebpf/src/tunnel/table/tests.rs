//! Entries of the table, on the host.

use xdptun_common::Plain;
use xdptun_common::flow::tick::Tick;
use xdptun_common::wire::Flags;

use xdptun_common::tunnel::ack::{ACK_BYTES, ACK_DELAY_NS, EARLY_BYTES, EARLY_NS};
use xdptun_common::tunnel::handshake::Segment;
use xdptun_common::tunnel::state::MOST_SYNS;

use super::state::HARDLY_LASTED;
use super::*;

const NOW: u64 = 100_000_000_000;
const ISS: u32 = u32::MAX - 1;

/// An entry that was opened a minute ago and is in this state.
fn flow(state: State) -> Flow {
    // SAFETY: all-zero bytes are a valid `Flow`.
    let zero: Flow = unsafe { MaybeUninit::zeroed().assume_init() };
    Flow {
        state: state as u32,
        iss: ISS,
        snd_una: ISS.wrapping_add(1),
        snd_nxt: ISS.wrapping_add(1),
        rcv_nxt: 5000,
        acked: 5000,
        opened_at: NOW - 60_000_000_000,
        ..zero
    }
}

fn entry(flow: &mut Flow) -> Entry {
    Entry(flow)
}

fn bytes(flow: &Flow) -> &[u8] {
    fn plain<T: Plain>(_: &T) {}
    plain(flow);
    let first = core::ptr::from_ref(flow).cast();
    // SAFETY: a plain value is its bytes.
    unsafe { core::slice::from_raw_parts(first, size_of::<Flow>()) }
}

fn datagram(sequence: u32, acknowledgment: u32, len: u32) -> Segment {
    Segment {
        flags: Flags::PSH.with(Flags::ACK),
        sequence,
        acknowledgment,
        len,
        asks: false,
        exact: false,
    }
}

#[test]
fn a_state_that_another_cpu_has_changed_stays() {
    let mut flow = flow(State::Closed);
    let before = flow;
    let entry = entry(&mut flow);
    assert!(!entry.advance(State::Established, &Endpoint::opening(1), NOW));
    assert_eq!(bytes(&flow), bytes(&before));
}

#[test]
fn a_new_connection_takes_all_numbers() {
    let mut flow = flow(State::Closed);
    let after = Endpoint {
        state: State::Established,
        rcv_nxt: 77,
        ..Endpoint::opening(4711)
    };
    assert!(entry(&mut flow).advance(State::Closed, &after, NOW));
    assert_eq!(flow.state(), State::Established);
    assert_eq!((flow.iss, flow.snd_una, flow.snd_nxt), (4711, 4712, 4712));
    assert_eq!((flow.rcv_nxt, flow.acked), (77, 77));
    assert_eq!((flow.opened_at, flow.established_at), (NOW, NOW));
}

/// Datagrams of other CPUs move these numbers while the state changes.
#[test]
fn the_same_connection_keeps_the_numbers_of_its_datagrams() {
    let mut flow = flow(State::SynSent);
    flow.snd_nxt = 900;
    flow.tx_packets = 1;
    let after = Endpoint {
        state: State::Established,
        rcv_nxt: 78,
        ..Endpoint::opening(ISS)
    };
    assert!(entry(&mut flow).advance(State::SynSent, &after, NOW));
    assert_eq!((flow.snd_nxt, flow.rcv_nxt), (900, 78));
    assert_eq!(flow.opened_at, NOW - 60_000_000_000);
}

#[test]
fn a_flow_opens_again_with_new_numbers_and_a_syn_at_once() {
    let mut flow = flow(State::Established);
    let entry = entry(&mut flow);
    entry.reopen(State::Established, 4711, NOW);
    assert_eq!(entry.state(), State::SynSent);
    assert_eq!((entry.iss(), entry.snd_nxt()), (4711, 4712));
    assert_eq!(entry.opened_at(), NOW);
    assert!(entry.claim_syn(NOW));
}

#[test]
fn a_flow_that_hardly_lasted_waits_with_its_syn() {
    let mut flow = flow(State::Established);
    flow.opened_at = NOW - HARDLY_LASTED + 1;
    let entry = entry(&mut flow);
    entry.reopen(State::Established, 4711, NOW);
    assert!(!entry.claim_syn(NOW));
    assert!(entry.claim_syn(NOW + HARDLY_LASTED));
}

/// The coarse clock may not have moved since the entry was made.
#[test]
fn a_flow_opened_twice_in_one_tick_of_the_clock_has_two_times() {
    let mut flow = flow(State::Closed);
    flow.opened_at = NOW;
    let entry = entry(&mut flow);
    entry.reopen(State::Closed, 4711, NOW);
    assert_eq!(entry.opened_at(), NOW + 1);
}

#[test]
fn one_packet_has_the_turn_to_be_the_syn() {
    let mut flow = flow(State::SynSent);
    let entry = entry(&mut flow);
    assert!(entry.claim_syn(NOW));
    assert!(!entry.claim_syn(NOW));
    assert_eq!(entry.syns(), 1);
    // Far from standing for `REMEMBERED`, however long no daemon ends it.
    for second in 1..2 * u64::from(MOST_SYNS) {
        assert!(entry.claim_syn(NOW + second * 1_000_000_000));
    }
    assert_eq!(entry.syns(), MOST_SYNS);
}

#[test]
fn no_other_state_sends_a_syn() {
    for state in [State::Closed, State::Established, State::FinSent] {
        assert!(!entry(&mut flow(state)).claim_syn(NOW), "{state:?}");
    }
}

#[test]
fn the_count_of_syns_starts_anew_once() {
    let mut flow = flow(State::SynSent);
    let entry = entry(&mut flow);
    entry.claim_syn(NOW);
    assert!(!entry.owes_syn());
    entry.restart_syns();
    assert!(entry.owes_syn());
    assert!(entry.claim_syn(NOW + 50_000_000));
    entry.restart_syns();
    assert!(!entry.owes_syn());
}

#[test]
fn a_datagram_takes_its_bytes_and_acknowledges_what_came() {
    let mut flow = flow(State::Established);
    let entry = entry(&mut flow);
    assert_eq!(entry.send_datagram(100, NOW), (ISS.wrapping_add(1), 5000));
    assert_eq!(entry.send_datagram(0, NOW), (ISS.wrapping_add(101), 5000));
    assert!(entry.is_unanswered());
    entry.received(NOW);
    assert!(!entry.is_unanswered());
    assert_eq!((flow.tx_packets, flow.tx_bytes), (2, 100));
}

#[test]
fn what_is_expected_does_not_move_back() {
    let mut flow = flow(State::Established);
    flow.snd_nxt = 900;
    let entry = entry(&mut flow);
    entry.receive_datagram(&datagram(5100, 800, 50), NOW);
    entry.receive_datagram(&datagram(5000, 700, 100), NOW);
    assert_eq!((flow.rcv_nxt, flow.snd_una), (5150, 800));
    assert_eq!((flow.rx_packets, flow.rx_bytes), (2, 150));
}

#[test]
fn an_acknowledgement_is_due_for_enough_bytes_or_after_a_while() {
    let mut flow = flow(State::Established);
    flow.sent_at = NOW;
    flow.established_at = NOW - EARLY_NS;
    // What this host sends is acknowledged: its marks are new.
    flow.ack_marks.since = Tick::at(NOW).0;
    let entry = entry(&mut flow);
    assert!(!entry.ack_due(&datagram(5000, 0, 100), NOW));
    assert!(!entry.ack_due(&datagram(5000, 0, EARLY_BYTES), NOW));
    assert!(entry.ack_due(&datagram(5000, 0, EARLY_BYTES), NOW - 1));
    assert!(entry.ack_due(&datagram(5000, 0, ACK_BYTES), NOW));
    assert!(entry.ack_due(&datagram(5000, 0, 100), NOW + ACK_DELAY_NS));
    assert!(!entry.ack_due(&datagram(4900, 0, 100), NOW + ACK_DELAY_NS));
}

#[test]
fn a_fin_takes_one_number_however_often_it_is_sent() {
    let mut flow = flow(State::Established);
    let entry = entry(&mut flow);
    assert_eq!(entry.finish(NOW), Some(ISS.wrapping_add(1)));
    assert_eq!(entry.finish(NOW), Some(ISS.wrapping_add(1)));
    assert_eq!(entry.snd_nxt(), ISS.wrapping_add(2));
}

#[test]
fn a_flow_that_was_not_established_ends_without_a_fin() {
    for state in [State::SynSent, State::SynReceived, State::Closed] {
        let mut flow = flow(state);
        assert_eq!(entry(&mut flow).finish(NOW), None);
        assert_eq!(flow.state(), State::Closed);
    }
}
