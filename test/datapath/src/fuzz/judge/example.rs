//! Runs that never were, to judge the rules by.

use std::collections::BTreeMap;

use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::state::Flow;

use super::Violation;
use crate::case::Verdict;
use crate::counters::Moved;
use crate::fuzz::rig::Seen;
use crate::fuzz::scene::{Scene, Setup};
use crate::kernel::Ran;
use crate::moment::Moment;
use crate::program::{Program, Skb};

/// A packet meets a program, with these flows in the table.
pub fn scene<const N: usize>(
    program: Program,
    frame: impl Into<Vec<u8>>,
    flows: [(FlowKey, Flow); N],
) -> Scene {
    let frame = frame.into();
    Scene {
        program,
        setup: Setup::Open,
        flows: BTreeMap::from(flows),
        sent: None,
        skb: Skb::default(),
        narrow: false,
        may_reply: true,
        intact: frame.clone(),
        frame,
    }
}

/// The packet is this one afterwards, and nothing else happened.
pub fn seen(scene: &Scene, packet: impl Into<Vec<u8>>) -> Seen {
    Seen {
        ran: Ran {
            verdict: 0,
            packet: packet.into(),
            mark: scene.skb.mark,
        },
        verdict: Some(Verdict::Pass),
        moved: Moved::default(),
        flows: scene.flows.clone(),
        reports: Vec::new(),
        at: Moment::now(),
    }
}

/// The rule that is broken.
pub fn broken(judgement: Result<(), Violation>) -> Option<&'static str> {
    judgement.err().map(|violation| violation.rule)
}
