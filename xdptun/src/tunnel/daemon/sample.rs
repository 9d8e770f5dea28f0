//! Sample flows for tests.

use xdptun_common::tunnel::state::{Flow, State};

pub const SECOND: u64 = 1_000_000_000;
pub const NOW: u64 = 100_000 * SECOND;

pub fn flow(state: State, ago: u64) -> Flow {
    let then = NOW - ago * SECOND;
    let mut flow: Flow = xdptun_common::read_plain(&[0; size_of::<Flow>()]).unwrap();
    flow.state = state as u32;
    (flow.sent_at, flow.received_at, flow.data_at) = (then, then, then);
    (flow.opened_at, flow.syn_at, flow.syns) = (then, then, 1);
    flow.tx_packets = 1;
    flow
}
