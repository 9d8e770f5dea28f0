//! The way of one packet: through XDP, where that is in front, and tc.

use std::collections::BTreeMap;

use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::state::Flow;

use super::Attack;
use crate::case::Verdict;
use crate::fuzz::judge::{Ended, Judgement, observe};
use crate::fuzz::rig::{Rig, Seen};
use crate::fuzz::scene::{Scene, Setup};
use crate::program::{Program, Skb};

/// The flow table.
pub type Flows = BTreeMap<FlowKey, Flow>;

/// The result of a packet.
pub struct Met {
    /// How it ended, by the program that counted it.
    pub ended: Ended,
    /// The state seen when it ended.
    pub seen: Seen,
}

impl Attack {
    /// The programs that an inbound packet meets.
    fn inbound(&self) -> Vec<Program> {
        match self.setup {
            Setup::Guarded => vec![self.xdp, Program::Ingress],
            Setup::Open | Setup::Hidden => vec![Program::Ingress],
        }
    }

    /// Lets a packet come in; the table is what it is afterwards.
    pub fn arrives(&self, rig: &mut Rig, flows: &mut Flows, frame: &[u8]) -> Judgement<Met> {
        self.meets(rig, flows, frame, &self.inbound())
    }

    /// Lets a packet leave.
    pub fn leaves(&self, rig: &mut Rig, flows: &mut Flows, frame: &[u8]) -> Judgement<Met> {
        self.meets(rig, flows, frame, &[Program::Egress])
    }

    fn meets(
        &self,
        rig: &mut Rig,
        flows: &mut Flows,
        frame: &[u8],
        programs: &[Program],
    ) -> Judgement<Met> {
        let [first, rest @ ..] = programs else {
            unreachable!("a packet meets a program");
        };
        let scene = Scene {
            program: *first,
            setup: self.setup,
            flows: flows.clone(),
            sent: None,
            skb: Skb::default(),
            narrow: false,
            may_reply: self.may_reply,
            frame: frame.to_vec(),
            intact: frame.to_vec(),
        };
        let (seen, ended) = observe(rig, &scene)?;
        flows.clone_from(&seen.flows);
        if rest.is_empty() || ended.verdict != Verdict::Pass {
            return Ok(Met { ended, seen });
        }
        let mut met = self.meets(rig, flows, &seen.ran.packet, rest)?;
        // XDP counted it, and tc saw a datagram that is right where XDP is in front.
        met.ended.outcome = ended.outcome.or(met.ended.outcome);
        Ok(met)
    }
}
