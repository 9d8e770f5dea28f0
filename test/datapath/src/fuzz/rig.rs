//! The programs in every configuration, ready to meet a scene.

use std::collections::BTreeMap;

use xdptun_common::flow::{Flow, FlowKey};

use super::scene::{Scene, Setup};
use crate::case::Verdict;
use crate::counters::Moved;
use crate::kernel::{Budget, Datapath, Limited, Ran, Reported};
use crate::moment::Moment;
use crate::program::{Program, Skb};

/// As many answers as a CPU may ever have in store; it is cut to what it may.
const FULL: Budget = [4096, 0];
/// None, and none earned before the end of time.
const EMPTY: Budget = [0, u64::MAX];
/// Runs after which the budget is filled again: a run takes one at most.
const RUNS_ON_A_BUDGET: usize = 1000;

/// All that came of one run.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What the program gave back.
    pub ran: Ran,
    /// Its verdict; `None` if the number means nothing.
    pub verdict: Option<Verdict>,
    /// The counters that moved.
    pub moved: Moved,
    /// The flow table afterwards.
    pub flows: BTreeMap<FlowKey, Flow>,
    /// What the daemon was told.
    pub reports: Vec<Reported>,
    /// The clock before the run.
    pub at: Moment,
}

/// Loaded programs.
pub struct Rig {
    datapaths: Vec<(Setup, Datapath, usize)>,
    narrow: u32,
}

impl Rig {
    /// Loads the programs in every configuration. `narrow` is an interface of
    /// this network namespace with an MTU of 1500.
    ///
    /// # Panics
    ///
    /// If the kernel refuses.
    #[must_use]
    pub fn new(narrow: u32) -> Self {
        let datapaths = Setup::ALL.map(|setup| {
            let mut datapath = Datapath::new(&setup.config());
            datapath.reset();
            (setup, datapath, 0)
        });
        Self {
            datapaths: datapaths.into(),
            narrow,
        }
    }

    /// Runs the program of a scene.
    ///
    /// # Panics
    ///
    /// If the kernel does not take the packet.
    pub fn run(&mut self, scene: &Scene) -> Seen {
        let mut datapaths = self.datapaths.iter_mut();
        let (_, datapath, runs) = datapaths
            .find(|(setup, ..)| *setup == scene.setup)
            .expect("every setup has its datapath");
        if !scene.may_reply {
            set_budgets(datapath, EMPTY);
            *runs = 0;
        } else if *runs % RUNS_ON_A_BUDGET == 0 {
            set_budgets(datapath, FULL);
            *runs = 0;
        }
        *runs += usize::from(scene.may_reply);
        datapath.set_flows(&scene.flows);
        datapath.set_fragmented([]);
        datapath.set_reset(None);
        let skb = Skb {
            ifindex: if scene.narrow { self.narrow } else { 0 },
            ..scene.skb
        };
        let at = Moment::now();
        let ran = datapath.run(scene.program, &scene.frame, skb);
        Seen {
            verdict: Verdict::of(scene.program, ran.verdict),
            moved: datapath.moved(),
            flows: datapath.flows(),
            reports: datapath.reported(),
            at,
            ran,
        }
    }

    /// Loads a program now, rather than when it is first run.
    ///
    /// # Panics
    ///
    /// If the verifier rejects it.
    pub fn load(&mut self, program: Program) {
        for (_, datapath, _) in &mut self.datapaths {
            datapath.load(program);
        }
    }
}

/// Sets what may be sent in answer to anything.
fn set_budgets(datapath: &mut Datapath, budget: Budget) {
    for limited in Limited::ALL {
        datapath.set_budget(limited, budget);
    }
}
