//! Flow tables.

use std::collections::BTreeMap;

use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::state::{ANSWER_AGAIN, ANSWERS, Flow, State};

use crate::fuzz::judge::fragment::TAKES;
use crate::kernel::MAX_FLOWS;
use crate::moment::Moment;
use crate::path::{Family, OLDEST_ACK, OWNED, Path};
use xdptun_lab::seeded::Random;

/// A table with the flow of `path` or without, and with others.
pub fn table(random: &mut Random, path: Path, at: Moment) -> BTreeMap<FlowKey, Flow> {
    let mut table = BTreeMap::new();
    if !random.once_in(5) {
        table.insert(path.key(), flow(random, path, at));
    }
    let others = random.weighted(&[(8, 0), (4, 1), (1, MAX_FLOWS as usize)]);
    for port in 1.. {
        if table.len() == MAX_FLOWS as usize || usize::from(port) > others {
            return table;
        }
        let other = Path::new(random.pick(&Family::ALL), OWNED, port);
        table.insert(other.key(), other.established(at));
    }
    table
}

/// A flow in any state, with any numbers.
fn flow(random: &mut Random, path: Path, at: Moment) -> Flow {
    let mut flow = path.established(at);
    flow.state = random.weighted(&[
        (6, State::Established as u32),
        (1, State::Closed as u32),
        (1, State::SynSent as u32),
        (1, State::SynReceived as u32),
        (1, State::FinSent as u32),
    ]);
    if random.once_in(2) {
        flow.iss = random.number();
        flow.snd_nxt = random.number();
        flow.rcv_nxt = random.number();
        flow.tx_packets = random.number().into();
    }
    // Nothing under way, little, and more than may be reordered.
    let under_way = random.weighted(&[(4, 0), (1, 1), (1, 70_000), (1, 3 << 20)]);
    flow.snd_una = flow.snd_nxt.wrapping_sub(under_way);
    flow.ack_marks.numbers =
        [OLDEST_ACK, OLDEST_ACK / 2].map(|behind| flow.snd_una.wrapping_sub(behind));
    if flow.state == State::SynSent as u32 || flow.state == State::SynReceived as u32 {
        flow.iss = at.isn(&path.key());
        flow.snd_nxt = flow.iss.wrapping_add(1);
    }
    // Below, at and above what makes an acknowledgement due.
    let behind = random.weighted(&[
        (6, 0),
        (1, 1000),
        (1, 262_143),
        (1, 262_144),
        (1, 400_000),
        (1, 1 << 31),
    ]);
    flow.acked = flow.rcv_nxt.wrapping_sub(behind);
    // On both sides of the delayed ACK and of the steps of the back-off of SYNs,
    // no nearer than the clock may tick before the program looks at it.
    flow.sent_at = at.before_ms(random.pick(&[0, 5, 400, 481, 100_000]));
    flow.syn_at = at.before_ms(random.pick(&[0, 450, 501, 950, 1001, 2001]));
    flow.syns = random.pick(&[0, 1, 2, 3, 100]);
    if random.once_in(2) {
        flow.label = TAKES;
    }
    if random.once_in(8) {
        flow.answers_earned_at = at.tick().wrapping_add(ANSWERS * ANSWER_AGAIN);
    }
    flow
}
