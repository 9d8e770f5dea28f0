//! The changes that a packet makes to its flow's entry.

use xdptun_common::flow::tick::Tick;
use xdptun_common::tunnel::ack::AckMarks;
use xdptun_common::tunnel::state::{Flow, State};
use xdptun_test_datapath::Moment;

/// A datagram of `len` payload bytes left.
pub fn sent(flow: &mut Flow, at: Moment, len: usize) {
    flow.snd_nxt = flow.snd_nxt.wrapping_add(len as u32);
    flow.data_at = at.ns();
    flow.tx_packets += 1;
    flow.tx_bytes += len as u64;
    unanswered(flow, at);
    acknowledged(flow, at);
}

/// Something left that the peer answers.
pub fn unanswered(flow: &mut Flow, at: Moment) {
    if flow.unanswered_at <= flow.received_at {
        flow.unanswered_at = at.ns();
    }
}

/// A segment left that acknowledges all that came.
pub fn acknowledged(flow: &mut Flow, at: Moment) {
    flow.acked = flow.rcv_nxt;
    flow.sent_at = at.ns();
}

/// A datagram of `len` payload bytes came, the next one that was expected.
pub fn received(flow: &mut Flow, at: Moment, len: usize) {
    flow.rcv_nxt = flow.rcv_nxt.wrapping_add(len as u32);
    restored(flow, at, len);
}

/// A datagram of `len` payload bytes came, and nothing new is expected.
pub fn restored(flow: &mut Flow, at: Moment, len: usize) {
    flow.data_at = at.ns();
    flow.received_at = at.ns();
    flow.rx_packets += 1;
    flow.rx_bytes += len as u64;
}

/// The same flow in another state.
pub fn in_state(mut flow: Flow, state: State) -> Flow {
    flow.state = state as u32;
    flow
}

/// The peer ended the flow.
pub fn closed(flow: &mut Flow, at: Moment) {
    flow.state = State::Closed as u32;
    flow.received_at = at.ns();
}

/// The flow begins again with this number.
pub fn begun(flow: &mut Flow, at: Moment, iss: u32) {
    flow.iss = iss;
    flow.snd_una = iss.wrapping_add(1);
    flow.snd_nxt = flow.snd_una;
    flow.ack_marks = AckMarks::new(flow.snd_una, Tick(at.tick()));
}
