//! The programs in every configuration, ready to meet a scene.

use std::collections::BTreeMap;
use std::net::IpAddr;

use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::sent::SentSegment;
use xdptun_common::tunnel::share::Tally;
use xdptun_common::tunnel::state::Flow;

use super::scene::{Scene, Setup};
use crate::case::Verdict;
use crate::counters::Moved;
use crate::kernel::{Bucket, Datapath, Limited, Ran, Reported};
use crate::moment::Moment;
use crate::program::{Program, Skb};

/// As many answers as a CPU may ever have in store; it is cut to what it may.
const FULL: Bucket = [4096, 0];
/// None, and none earned before the end of time.
const EMPTY: Bucket = [0, u64::MAX];
/// Runs after which the bucket is filled again: a run takes one at most.
const RUNS_ON_A_BUCKET: usize = 1000;
/// Runs after which all proofs are forgotten. Each run adds one at most, and the filter
/// takes a new proof for a seen one only when it holds many thousands.
const RUNS_ON_A_FILTER: usize = 1000;

/// All that came of one run.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The result of the program.
    pub ran: Ran,
    /// Its verdict; `None` if the number means nothing.
    pub verdict: Option<Verdict>,
    /// The counters that moved.
    pub moved: Moved,
    /// The flow table afterwards.
    pub flows: BTreeMap<FlowKey, Flow>,
    /// The events for the daemon.
    pub reports: Vec<Reported>,
    /// The clock before the run.
    pub at: Moment,
}

/// Loaded programs.
pub struct Rig {
    datapaths: Vec<Loaded>,
    narrow: u32,
}

/// The programs in one configuration.
struct Loaded {
    setup: Setup,
    datapath: Datapath,
    /// Runs since the bucket was filled.
    on_bucket: usize,
    /// Runs since all proofs were forgotten.
    on_filter: usize,
    /// Segments that the programs were made to remember, or will.
    remembered: Vec<u32>,
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
            Loaded {
                setup,
                datapath,
                on_bucket: 0,
                on_filter: 0,
                remembered: Vec::new(),
            }
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
        let narrow = self.narrow;
        let loaded = self.loaded(scene.setup);
        loaded.fill_bucket(scene.may_reply);
        loaded.on_filter += 1;
        let datapath = &mut loaded.datapath;
        datapath.set_flows(&scene.flows);
        datapath.set_fragmented([]);
        datapath.set_reset(None);
        datapath.set_calls([]);
        if let Some(sent) = scene.sent {
            datapath.set_sent(&[sent]);
        }
        datapath.set_opened(Tally::default(), &[]);
        let skb = Skb {
            ifindex: if scene.narrow { narrow } else { 0 },
            ..scene.skb
        };
        let at = Moment::now();
        let ran = datapath.run(scene.program, &scene.frame, skb);
        if let Some(sent) = scene.sent {
            datapath.forget_sent(sent.sequence);
        }
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
        for loaded in &mut self.datapaths {
            loaded.datapath.load(program);
        }
    }

    /// Forgets all proofs, if there were so many runs since that it is time.
    ///
    /// # Panics
    ///
    /// If the maps cannot be written.
    pub fn forget_proofs(&mut self, setup: Setup) {
        let loaded = self.loaded(setup);
        if setup == Setup::Hidden && loaded.on_filter >= RUNS_ON_A_FILTER {
            loaded.datapath.set_proof(None);
            loaded.on_filter = 0;
        }
    }

    /// Makes the programs remember that a flow with `remote` sent these segments, and no
    /// others since the last call.
    ///
    /// # Panics
    ///
    /// If the maps cannot be written.
    pub fn remember(&mut self, setup: Setup, flow: &Flow, sent: &[SentSegment], remote: IpAddr) {
        let loaded = self.loaded(setup);
        let datapath = &mut loaded.datapath;
        for sequence in loaded.remembered.drain(..) {
            datapath.forget_sent(sequence);
        }
        datapath.set_sent(sent);
        let sequences = sent.iter().map(|segment| segment.sequence);
        loaded.remembered.extend(sequences.chain([flow.snd_nxt]));
        datapath.set_remotes(&[remote]);
    }

    fn loaded(&mut self, setup: Setup) -> &mut Loaded {
        let mut datapaths = self.datapaths.iter_mut();
        datapaths
            .find(|loaded| loaded.setup == setup)
            .expect("every setup has its datapath")
    }
}

impl Loaded {
    /// Lets the next run answer, or not.
    fn fill_bucket(&mut self, may_reply: bool) {
        if !may_reply {
            set_buckets(&mut self.datapath, EMPTY);
            self.on_bucket = 0;
            return;
        }
        if self.on_bucket.is_multiple_of(RUNS_ON_A_BUCKET) {
            set_buckets(&mut self.datapath, FULL);
            self.on_bucket = 0;
        }
        self.on_bucket += 1;
    }
}

/// Sets what may be sent in answer to anything.
fn set_buckets(datapath: &mut Datapath, bucket: Bucket) {
    for limited in Limited::ALL {
        datapath.set_bucket(limited, bucket);
    }
}
