//! The programs and maps in the kernel, loaded but attached to nothing.

use std::collections::BTreeMap;

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray, PerCpuValues, RingBuf};
use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions, Xdp};
use aya::util::nr_cpus;
use aya::{Ebpf, EbpfLoader, Pod};
use xdptun_common::config::{LINK_ETHERNET, global};
use xdptun_common::counter::{Outcome, Sent};
use xdptun_common::event::Event;
use xdptun_common::flow::{Flow, FlowKey};
use xdptun_common::{Plain, read_plain};

use crate::moment::{Moment, SECRET};
use crate::path::{Family, HTTPS, OWNED};

/// Flows that the table has room for.
pub const MAX_FLOWS: u32 = 4;
/// The MTU that the programs are told, for the MSS option.
pub const MTU: u16 = 1500;

/// A shared record as aya wants it.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Record<T>(T);

// SAFETY: `Plain` promises what `Pod` asks for: no padding, any bytes valid.
unsafe impl<T: Plain> Pod for Record<T> {}

/// One of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// tc egress.
    Egress,
    /// tc ingress.
    Ingress,
    /// tc ingress of the splitter's far end.
    Splitter,
    /// XDP.
    FastIn,
}

impl Program {
    /// Those on the interface itself, which meet every packet.
    pub const ALL: [Self; 3] = [Self::Egress, Self::Ingress, Self::FastIn];

    const fn name(self) -> &'static str {
        match self {
            Self::Egress => "xdptun_egress",
            Self::Ingress => "xdptun_ingress",
            Self::Splitter => "xdptun_splitter",
            Self::FastIn => "xdptun_fast_in",
        }
    }
}

/// What the programs are told when they are loaded.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Only the configured peers are ours.
    pub peers_only: bool,
    /// XDP has refused plain UDP before tc sees a packet.
    pub xdp: bool,
    /// Length of the link header.
    pub link_len: u32,
    /// The interface that answers leave by.
    pub ifindex: u32,
    /// The near end of the splitter; 0 if there is none.
    pub splitter: u32,
    /// Whether every packet is traced.
    pub trace: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            peers_only: false,
            xdp: false,
            link_len: LINK_ETHERNET,
            // No such interface: clones that a program sends are lost at once.
            ifindex: i32::MAX.cast_unsigned(),
            splitter: 0,
            trace: false,
        }
    }
}

/// What goes with a packet to a tc program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skb {
    /// The packet mark.
    pub mark: u32,
    /// Index of the packet's interface; 0 is the loopback, MTU 65536.
    pub ifindex: u32,
    /// Not zero if the buffer holds several segments.
    pub gso_size: u32,
}

impl Skb {
    /// `sizeof(struct __sk_buff)`, `include/uapi/linux/bpf.h`.
    const LEN: usize = 192;
    // Where the fields are in it.
    const MARK: usize = 8;
    const IFINDEX: usize = 40;
    const GSO_SEGS: usize = 164;
    const GSO_SIZE: usize = 176;

    fn context(self) -> [u8; Self::LEN] {
        let mut context = [0; Self::LEN];
        let mut put = |at: usize, value: u32| {
            context[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        };
        put(Self::MARK, self.mark);
        put(Self::IFINDEX, self.ifindex);
        put(Self::GSO_SIZE, self.gso_size);
        put(Self::GSO_SEGS, if self.gso_size == 0 { 0 } else { 2 });
        context
    }
}

/// What a run gave back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The program's return value.
    pub verdict: u32,
    /// The packet after it.
    pub packet: Vec<u8>,
    /// Its mark after it.
    pub mark: u32,
}

/// A record for the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reported {
    /// An `xdptun_common::event::Kind`.
    pub kind: u32,
    /// When.
    pub at: u64,
    /// The flow it is about.
    pub flow: FlowKey,
    /// The frame that came with it.
    pub frame: Vec<u8>,
}

/// A CPU's budget of replies: tokens, and when it was last filled (nanoseconds).
pub type ReplyBudget = [u64; 2];

/// How often each counter moved.
pub type Counted = BTreeMap<&'static str, u64>;

/// The programs and their maps.
pub struct Datapath {
    ebpf: Ebpf,
    loaded: Vec<Program>,
    flows: HashMap<MapData, Record<FlowKey>, Record<Flow>>,
    counters: PerCpuArray<MapData, u64>,
    replies: PerCpuArray<MapData, ReplyBudget>,
    events: RingBuf<MapData>,
    counted: Vec<u64>,
}

/// Panics if the process is not root's, with the way out.
///
/// # Panics
///
/// If the process is not root's.
pub fn require_root() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "loading eBPF programs needs root; \
         start the tests through `cargo xtask test datapath`, which uses sudo for them"
    );
}

impl Datapath {
    /// The maps; programs are loaded when they are first run, because the
    /// verifier takes a second for each.
    ///
    /// # Panics
    ///
    /// If the kernel refuses.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        require_root();
        let peers_only = u32::from(config.peers_only);
        let xdp = u32::from(config.xdp);
        let log_level: u8 = if config.trace { u8::MAX } else { 0 };
        let mut ebpf = EbpfLoader::new()
            .override_global(global::SECRET, &SECRET.0, true)
            .override_global(global::IFINDEX, &config.ifindex, true)
            .override_global(global::LINK_LEN, &config.link_len, true)
            .override_global(global::MTU, &u32::from(MTU), true)
            .override_global(global::PEERS_ONLY, &peers_only, true)
            .override_global(global::XDP, &xdp, true)
            .override_global(global::SPLITTER, &config.splitter, true)
            .override_global(aya_log::LEVEL, &log_level, true)
            .map_max_entries("FLOWS", MAX_FLOWS)
            .load(xdptun::datapath::OBJECT)
            .unwrap_or_else(|error| panic!("cannot load the object: {error:?}"));
        set_ports(&mut ebpf);
        set_peers(&mut ebpf);
        Self {
            flows: take(&mut ebpf, "FLOWS"),
            counters: take(&mut ebpf, "COUNTERS"),
            replies: take(&mut ebpf, "REPLIES"),
            events: take(&mut ebpf, "EVENTS"),
            counted: vec![0; Outcome::ALL.len() + Sent::ALL.len()],
            loaded: Vec::new(),
            ebpf,
        }
    }

    /// Loads a program, unless it is.
    ///
    /// # Panics
    ///
    /// If the verifier rejects it; prints its log.
    pub fn load(&mut self, program: Program) {
        if self.loaded.contains(&program) {
            return;
        }
        let result = match program {
            Program::FastIn => self.xdp(program).load(),
            Program::Egress | Program::Ingress | Program::Splitter => {
                self.classifier(program).load()
            }
        };
        if let Err(error) = result {
            panic!("cannot load {}: {error}", program.name());
        }
        self.loaded.push(program);
    }

    /// A tc program, to attach it.
    ///
    /// # Panics
    ///
    /// If it is none.
    pub fn classifier(&mut self, program: Program) -> &mut SchedClassifier {
        let program = self.ebpf.program_mut(program.name());
        program
            .expect("the object has all programs")
            .try_into()
            .expect("a tc program")
    }

    fn xdp(&mut self, program: Program) -> &mut Xdp {
        let program = self.ebpf.program_mut(program.name());
        program
            .expect("the object has all programs")
            .try_into()
            .expect("an XDP program")
    }

    /// Runs a program on one packet.
    ///
    /// # Panics
    ///
    /// If the kernel does not take the packet (shorter than an Ethernet header,
    /// longer than a page).
    pub fn run(&mut self, program: Program, packet: &[u8], skb: Skb) -> Ran {
        self.load(program);
        let mut data_out = vec![0; 2 * 4096];
        let (context, mut context_out) = (skb.context(), [0; Skb::LEN]);
        let mut options = TestRunOptions {
            data_in: Some(packet),
            data_out: Some(&mut data_out),
            ..TestRunOptions::default()
        };
        let result = match program {
            Program::FastIn => self.xdp(program).test_run(options),
            Program::Egress | Program::Ingress | Program::Splitter => {
                options.ctx_in = Some(&context);
                options.ctx_out = Some(&mut context_out);
                self.classifier(program).test_run(options)
            }
        };
        let result = result.unwrap_or_else(|error| {
            panic!(
                "the kernel does not run {} on {} bytes: {error:?}",
                program.name(),
                packet.len()
            )
        });
        data_out.truncate(result.data_size_out as usize);
        let mark = context_out[Skb::MARK..].first_chunk();
        Ran {
            verdict: result.return_value,
            packet: data_out,
            mark: u32::from_ne_bytes(*mark.expect("four bytes")),
        }
    }

    /// Makes the flow table hold these flows and no others.
    ///
    /// # Panics
    ///
    /// If the table cannot be written.
    pub fn set_flows<'a>(&mut self, flows: impl IntoIterator<Item = (&'a FlowKey, &'a Flow)>) {
        for key in self.flows().into_keys() {
            self.flows
                .remove(&Record(key))
                .expect("the flow was there a moment ago");
        }
        for (key, flow) in flows {
            self.flows
                .insert(Record(*key), Record(*flow), 0)
                .expect("the table has room");
        }
    }

    /// The flow table.
    ///
    /// # Panics
    ///
    /// If it cannot be read.
    #[must_use]
    pub fn flows(&self) -> BTreeMap<FlowKey, Flow> {
        self.flows
            .iter()
            .map(|entry| entry.map(|(key, flow)| (key.0, flow.0)))
            .collect::<Result<_, _>>()
            .expect("nobody else writes to the table")
    }

    /// Sets the budget of replies of every CPU.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn set_replies(&mut self, budget: ReplyBudget) {
        let cpus = nr_cpus().expect("the number of CPUs");
        let values = PerCpuValues::try_from(vec![budget; cpus]).expect("one for each CPU");
        self.replies
            .set(0, values, 0)
            .expect("the map of replies can be written");
    }

    /// The budgets of replies, one for each CPU.
    ///
    /// # Panics
    ///
    /// If the map cannot be read.
    #[must_use]
    pub fn replies(&self) -> Vec<ReplyBudget> {
        let values = self.replies.get(&0, 0);
        values.expect("the map of replies can be read").to_vec()
    }

    /// Which counters moved since the last call, and how far.
    ///
    /// # Panics
    ///
    /// If they cannot be read.
    pub fn counted(&mut self) -> Counted {
        let outcomes = Outcome::ALL.iter().map(|counter| counter.name());
        let names = outcomes.chain(Sent::ALL.iter().map(|counter| counter.name()));
        let mut moved = Counted::new();
        for (index, (name, before)) in (0..).zip(names.zip(&mut self.counted)) {
            let values = self.counters.get(&index, 0);
            let now = values.expect("counters can be read").iter().sum();
            if now != *before {
                moved.insert(name, now - *before);
                *before = now;
            }
        }
        moved
    }

    /// The records for the daemon since the last call.
    ///
    /// # Panics
    ///
    /// If one is shorter than it says.
    pub fn reported(&mut self) -> Vec<Reported> {
        let mut reported = Vec::new();
        while let Some(record) = self.events.next() {
            let event: Event = read_plain(&record).expect("a whole record");
            let frame = record[size_of::<Event>()..].get(..event.len as usize);
            reported.push(Reported {
                kind: event.kind,
                at: event.at,
                flow: event.flow,
                frame: frame.expect("as long as it says").to_vec(),
            });
        }
        reported
    }

    /// Forgets flows, counts and records, and lets replies go.
    pub fn reset(&mut self) {
        self.set_flows([]);
        self.set_replies([4096, Moment::now().ns()]);
        self.counted();
        self.reported();
    }
}

fn take<T: TryFrom<Map, Error: std::fmt::Debug>>(ebpf: &mut Ebpf, name: &str) -> T {
    let map = ebpf.take_map(name);
    let map = map.unwrap_or_else(|| panic!("the object has no map {name}"));
    map.try_into().expect("the map has its type")
}

fn set_ports(ebpf: &mut Ebpf) {
    let map = ebpf.map_mut("PORTS").expect("the object has a map PORTS");
    let mut ports: Array<_, u64> = map.try_into().expect("an array");
    for port in [OWNED, HTTPS] {
        ports
            .set(u32::from(port / 64), 1u64 << (port % 64), 0)
            .expect("the ports can be written");
    }
}

fn set_peers(ebpf: &mut Ebpf) {
    let map = ebpf.map_mut("PEERS").expect("the object has a map PEERS");
    let mut peers: LpmTrie<_, [u8; 16], u32> = map.try_into().expect("a trie");
    for family in Family::ALL {
        let address = match family.peer() {
            std::net::IpAddr::V4(address) => address.to_ipv6_mapped(),
            std::net::IpAddr::V6(address) => address,
        };
        // A network of four addresses, so that a prefix is looked up.
        let network = Key::new(126, (u128::from(address) & !3).to_be_bytes());
        peers
            .insert(&network, 1, 0)
            .expect("the peers can be written");
    }
}
