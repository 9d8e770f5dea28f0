//! The programs and maps in the kernel, loaded but attached to nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray, PerCpuValues, RingBuf};
use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions, Xdp};
use aya::util::nr_cpus;
use aya::{Ebpf, EbpfLoader, Pod};
use xdptun_common::address::Local;
use xdptun_common::address::address_bytes;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::global::{LINK_LEN, SHRINK_TWICE};
use xdptun_common::member::{self, Member};
use xdptun_common::tunnel::config::{Phantuns, global, peer};
use xdptun_common::tunnel::event::Event;
use xdptun_common::tunnel::fragment::First;
use xdptun_common::tunnel::isn::{self, SYNS, epoch_of_syn};
use xdptun_common::tunnel::outcome::{COUNTERS, Sent};
use xdptun_common::tunnel::proof::{KeySet, ProofKey};
use xdptun_common::tunnel::replay::{PAGE, PAGES};
use xdptun_common::tunnel::sent::{SentSegment, slot};
use xdptun_common::tunnel::share::Tally;
use xdptun_common::tunnel::state::Flow;
use xdptun_common::tunnel::veil::{self, VeilKey};
use xdptun_common::{Plain, read_plain};
use xdptun_lab::workspace;

use crate::counters::{Counters, Moved};
use crate::moment::{
    Moment, OWN_KEY, OWN_VEIL_KEY, PROOF_KEY, Remembered, SECOND_KEY, SECRET, VEIL_KEY,
};
use crate::packet::Fragmented;
use crate::path::{Family, HTTPS, OWNED};
use crate::program::{Config, Program, Skb};

/// Flows that the table has room for.
pub const MAX_FLOWS: u32 = 4;
/// Proofs whose addresses are remembered; the map throws out the oldest, a few at a
/// time.
pub const MAX_PROOFS: u32 = 256;
/// Index of the loopback device, where packets are if a run names no other.
const LOOPBACK: u32 = 1;
/// The MTU that the programs are told unless a test says otherwise.
pub const MTU: u16 = 1500;

/// A value that the kernel side shares, as aya wants it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Record<T>(pub T);

// SAFETY: `Plain` promises what `Pod` asks for: no padding, any bytes valid.
unsafe impl<T: Plain> Pod for Record<T> {}

/// A reset as the programs remember it.
#[derive(Clone, Copy)]
#[repr(C, align(4))]
struct Reset {
    flow: FlowKey,
    number: [u8; 4],
}

// SAFETY: 36 and 4 bytes without padding, of which any are valid.
unsafe impl Plain for Reset {}

/// No segment.
const NOTHING: SentSegment = SentSegment {
    sequence: 0,
    tag: 0,
    at: 0,
    len: 0,
    checksum: [0; 2],
};

/// A part of the filter of proofs.
type SeenPage = [u8; PAGE as usize];
const SEEN_NOTHING: SeenPage = [0; PAGE as usize];

/// The result of a run.
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
    /// An `xdptun_common::tunnel::event::Kind`.
    pub kind: u32,
    /// When.
    pub at: u64,
    /// The flow it is about.
    pub flow: FlowKey,
    /// The frame that came with it.
    pub frame: Vec<u8>,
}

/// A rate limit, by its index in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Limited {
    /// SYN-ACKs.
    SynAcks = 0,
    /// Resets.
    Resets = 1,
    /// Resets of flows that are about to open.
    Openings = 2,
    /// ICMP errors.
    Errors = 3,
    /// Flows that this host opens.
    Opens = 4,
}

impl Limited {
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::SynAcks,
        Self::Resets,
        Self::Openings,
        Self::Errors,
        Self::Opens,
    ];

    /// How many may be sent at once after a pause.
    #[must_use]
    pub const fn burst(self) -> u64 {
        match self {
            Self::SynAcks | Self::Resets | Self::Openings => 4096,
            Self::Opens => 32768,
            Self::Errors => 256,
        }
    }
}

/// A token bucket: tokens, and when it was last filled (nanoseconds).
pub type Bucket = [u64; 2];

/// How often each counter moved.
pub type Counted = BTreeMap<&'static str, u64>;

/// The programs and their maps.
pub struct Datapath {
    ebpf: Ebpf,
    /// The interface as the programs know it, and the devices where they meet its packets.
    member: Member,
    met_at: BTreeSet<u32>,
    interfaces: Array<MapData, Record<Member>>,
    loaded: Vec<Program>,
    remembered: Remembered<5>,
    flows: HashMap<MapData, Record<FlowKey>, Record<Flow>>,
    counters: Counters,
    buckets: PerCpuArray<MapData, Bucket>,
    proofs: HashMap<MapData, u64, [u8; 16]>,
    seen: Array<MapData, SeenPage>,
    resets: HashMap<MapData, Record<Reset>, u64>,
    fragments: HashMap<MapData, Fragmented, Record<First>>,
    calls: HashMap<MapData, Record<FlowKey>, u32>,
    sent: Array<MapData, Record<SentSegment>>,
    answered: Array<MapData, u64>,
    /// Whether it may hold any.
    has_answered: bool,
    remotes: HashMap<MapData, [u8; 16], u32>,
    opened: Array<MapData, Record<Tally>>,
    networks: HashMap<MapData, [u8; 16], u64>,
    events: RingBuf<MapData>,
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
        let shrink_twice = u32::from(config.shrink_twice);
        let log_level: u8 = if config.trace { u8::MAX } else { 0 };
        let mut ebpf = EbpfLoader::new()
            .override_global(global::SECRET, &SECRET.0, true)
            .override_global(global::HIDDEN, &u32::from(config.hidden), true)
            .override_global(
                global::VEIL,
                &config
                    .veil
                    .map_or(0, |most| veil::word(most, config.veil_by_peer)),
                true,
            )
            .override_global(LINK_LEN, &config.link_len, true)
            .override_global(global::PEERS_ONLY, &peers_only, true)
            .override_global(global::PHANTUNS, &(config.phantuns as u32), true)
            .override_global(SHRINK_TWICE, &shrink_twice, true)
            .override_global(aya_log::LEVEL, &log_level, true)
            .map_max_entries("FLOWS", MAX_FLOWS)
            .map_max_entries("PROOFS", MAX_PROOFS)
            .map_max_entries("SEEN", if config.hidden { PAGES } else { 1 })
            .map_max_entries("COUNTERS", COUNTERS)
            .load_file(workspace::object("tunnel"))
            .unwrap_or_else(|error| panic!("cannot load the object: {error:?}"));
        set_ports(&mut ebpf);
        set_peers(&mut ebpf, config);
        set_keys(&mut ebpf);
        set_local(&mut ebpf);
        let member = Member {
            met_at: 0,
            index: config.ifindex,
            mtu: config.mtu.into(),
            near_end: config.near_end,
            far_end: 0,
            ingress: config.ingress as u32,
            row: 0,
        };
        let mut datapath = Self {
            member,
            met_at: BTreeSet::new(),
            interfaces: take(&mut ebpf, "INTERFACES"),
            remembered: Remembered::take(&mut ebpf),
            flows: take(&mut ebpf, "FLOWS"),
            counters: Counters::take(&mut ebpf, COUNTERS as usize),
            buckets: take(&mut ebpf, "RATE_LIMITS"),
            fragments: take(&mut ebpf, "FRAGMENTS"),
            calls: take(&mut ebpf, "CALLS"),
            sent: take(&mut ebpf, "SENT"),
            answered: take(&mut ebpf, "ANSWERED"),
            has_answered: false,
            remotes: take(&mut ebpf, "REMOTES"),
            opened: take(&mut ebpf, "OPENED"),
            networks: take(&mut ebpf, "NETWORKS"),
            proofs: take(&mut ebpf, "PROOFS"),
            seen: take(&mut ebpf, "SEEN"),
            resets: take(&mut ebpf, "RESETS"),
            events: take(&mut ebpf, "EVENTS"),
            loaded: Vec::new(),
            ebpf,
        };
        datapath.admit(LOOPBACK);
        datapath.admit(config.ifindex);
        datapath
    }

    /// Makes a device one where the programs meet packets of the interface.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn admit(&mut self, met_at: u32) {
        if self.met_at.insert(met_at) {
            let member = Member {
                met_at,
                ..self.member
            };
            self.interfaces
                .set(member::slot(met_at, 0), Record(member), 0)
                .expect("the interfaces can be written");
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
            Program::Xdp | Program::XdpFrags => self.xdp(program).load(),
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
    /// or longer than a page, unless the program takes several buffers).
    pub fn run(&mut self, program: Program, packet: &[u8], skb: Skb) -> Ran {
        self.remembered.forget();
        self.load(program);
        if skb.ifindex != 0 {
            self.admit(skb.ifindex);
        }
        let mut data_out = vec![0; packet.len() + 4096];
        let (context, mut context_out) = (skb.context(), [0; Skb::LEN]);
        let mut options = TestRunOptions {
            data_in: Some(packet),
            data_out: Some(&mut data_out),
            ..TestRunOptions::default()
        };
        let result = match program {
            Program::Xdp | Program::XdpFrags => self.xdp(program).test_run(options),
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

    /// Makes these the datagrams of which it is known what became of the first fragment.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn set_fragmented<'a>(
        &mut self,
        fragmented: impl IntoIterator<Item = (&'a Fragmented, &'a First)>,
    ) {
        for key in self.fragmented().into_keys() {
            self.fragments
                .remove(&key)
                .expect("the datagram was there a moment ago");
        }
        for (key, first) in fragmented {
            self.fragments
                .insert(key, Record(*first), 0)
                .expect("the map of fragments can be written");
        }
    }

    /// What became of the first fragments of datagrams.
    ///
    /// # Panics
    ///
    /// If the map cannot be read.
    #[must_use]
    pub fn fragmented(&self) -> BTreeMap<Fragmented, First> {
        let entries: Result<Vec<_>, _> = self.fragments.iter().collect();
        let entries = entries.expect("nobody else writes to the map").into_iter();
        entries.map(|(key, Record(first))| (key, first)).collect()
    }

    /// Makes these the connections that were opened from owned ports, and when each sent
    /// last, and no others.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn set_calls<'a>(&mut self, calls: impl IntoIterator<Item = (&'a FlowKey, &'a u32)>) {
        for key in self.calls().into_keys() {
            self.calls
                .remove(&Record(key))
                .expect("the connection was there a moment ago");
        }
        for (key, last) in calls {
            self.calls
                .insert(Record(*key), last, 0)
                .expect("the map of connections can be written");
        }
    }

    /// The connections that were opened from owned ports, and when each sent last (ticks).
    ///
    /// # Panics
    ///
    /// If the map cannot be read.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<FlowKey, u32> {
        let entries = self.calls.iter();
        let entries = entries.map(|entry| entry.map(|(key, last)| (key.0, last)));
        let entries: Result<_, _> = entries.collect();
        entries.expect("nobody else writes to the map")
    }

    /// Makes the map of proofs hold one, from this address, or none; the filter forgets
    /// all.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn set_proof(&mut self, proof: Option<(u64, IpAddr)>) {
        let known: Result<Vec<u64>, _> = self.proofs.keys().collect();
        for proof in known.expect("nobody else writes to the map") {
            self.proofs.remove(&proof).expect("it was there");
        }
        for page in 0..self.seen.len() {
            self.seen
                .set(page, SEEN_NOTHING, 0)
                .expect("the filter can be written");
        }
        if let Some((proof, from)) = proof {
            self.proofs
                .insert(proof, address_bytes(from), 0)
                .expect("the map of proofs can be written");
        }
    }

    /// Makes the map of resets hold one, at this time, or none.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn set_reset(&mut self, reset: Option<(FlowKey, u32, u64)>) {
        let known: Result<Vec<_>, _> = self.resets.keys().collect();
        for key in known.expect("nobody else writes to the map") {
            self.resets.remove(&key).expect("it was there");
        }
        if let Some((flow, number, at)) = reset {
            let number = number.to_be_bytes();
            self.resets
                .insert(Record(Reset { flow, number }), at, 0)
                .expect("the map of resets can be written");
        }
    }

    /// Makes the programs know no SYN that they answered.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn forget_answered(&mut self) {
        if std::mem::take(&mut self.has_answered) {
            for index in 0..SYNS {
                self.answered
                    .set(index, 0, 0)
                    .expect("the map of answered SYNs can be written");
            }
        }
    }

    /// Makes the programs know a SYN of this sequence number, which was answered with this number.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn set_answered(&mut self, answered: Option<(FlowKey, u32, u32)>) {
        if let Some((flow, sequence, number)) = answered {
            let syn = syn(&flow, sequence);
            self.answered
                .set(syn % SYNS, isn::answered(syn, number), 0)
                .expect("the map of answered SYNs can be written");
            self.has_answered = true;
        }
    }

    /// The number that a SYN of this sequence number was answered with.
    ///
    /// # Panics
    ///
    /// If the map cannot be read.
    #[must_use]
    pub fn answered(&self, flow: &FlowKey, sequence: u32) -> Option<u32> {
        let syn = syn(flow, sequence);
        let word = self.answered.get(&(syn % SYNS), 0);
        let word = word.expect("the map of answered SYNs can be read");
        let number = word as u32;
        (word == isn::answered(syn, number)).then_some(number)
    }

    /// Makes the programs remember these segments, and none near the numbers that the
    /// flows of tests have.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn set_sent(&mut self, sent: &[SentSegment]) {
        let around_zero = (0..8).map(|kilobyte: u32| slot((kilobyte << 10).wrapping_sub(4096)));
        let entries = around_zero.map(|slot| (slot, NOTHING)).chain(
            sent.iter()
                .map(|segment| (slot(segment.sequence), *segment)),
        );
        for (slot, segment) in entries {
            self.sent
                .set(slot, Record(segment), 0)
                .expect("the map of sent segments can be written");
        }
    }

    /// Makes the programs remember no segment with a number near this one.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn forget_sent(&mut self, sequence: u32) {
        self.sent
            .set(slot(sequence), Record(NOTHING), 0)
            .expect("the map of sent segments can be written");
    }

    /// Makes these the addresses that flows were established with.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn set_remotes(&mut self, remotes: &[IpAddr]) {
        let known: Result<Vec<_>, _> = self.remotes.keys().collect();
        for address in known.expect("nobody else writes to the map") {
            self.remotes.remove(&address).expect("it was there");
        }
        for address in remotes {
            self.remotes
                .insert(address_bytes(*address), 1, 0)
                .expect("the map of remotes can be written");
        }
    }

    /// Makes the programs count these flows as made and answered, and no network of peers
    /// as charged for one but these, each until then (nanoseconds).
    ///
    /// # Panics
    ///
    /// If a map cannot be written.
    pub fn set_opened(&mut self, opened: Tally, networks: &[([u8; 16], u64)]) {
        self.opened
            .set(0, Record(opened), 0)
            .expect("the counts can be written");
        let known: Result<Vec<_>, _> = self.networks.keys().collect();
        for network in known.expect("nobody else writes to the map") {
            self.networks.remove(&network).expect("it was there");
        }
        for (network, earned_at) in networks {
            self.networks
                .insert(network, earned_at, 0)
                .expect("the map of networks can be written");
        }
    }

    /// How many flows the programs counted as made and answered.
    ///
    /// # Panics
    ///
    /// If the map cannot be read.
    #[must_use]
    pub fn opened(&self) -> Tally {
        let opened = self.opened.get(&0, 0);
        opened.expect("the counts can be read").0
    }

    /// When a network of peers will have earned its share back, if it was charged.
    #[must_use]
    pub fn earned_at(&self, network: [u8; 16]) -> Option<u64> {
        self.networks.get(&network, 0).ok()
    }

    /// Sets a bucket of every CPU.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn set_bucket(&mut self, limited: Limited, bucket: Bucket) {
        let cpus = nr_cpus().expect("the number of CPUs");
        let values = PerCpuValues::try_from(vec![bucket; cpus]).expect("one for each CPU");
        self.buckets
            .set(limited as u32, values, 0)
            .expect("the map of rate limits can be written");
    }

    /// The buckets of one kind, one for each CPU.
    ///
    /// # Panics
    ///
    /// If the map cannot be read.
    #[must_use]
    pub fn buckets(&self, limited: Limited) -> Vec<Bucket> {
        let values = self.buckets.get(&(limited as u32), 0);
        values.expect("the map of rate limits can be read").to_vec()
    }

    /// Which counters moved since the last call, and how far.
    ///
    /// # Panics
    ///
    /// If they cannot be read.
    pub fn moved(&mut self) -> Moved {
        self.counters.moved()
    }

    /// The same by name.
    ///
    /// # Panics
    ///
    /// If they cannot be read.
    pub fn counted(&mut self) -> Counted {
        let Moved { outcomes, sent, .. } = self.moved();
        self.has_answered |= sent.iter().any(|(sent, _)| *sent == Sent::SynAck);
        let outcomes = outcomes.iter().map(|(outcome, by)| (outcome.name(), *by));
        let sent = sent.iter().map(|(sent, by)| (sent.name(), *by));
        outcomes.chain(sent).collect()
    }

    /// The events for the daemon since the last call.
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

    /// Forgets flows, fragments, connections, counts and events, and fills the buckets.
    pub fn reset(&mut self) {
        self.set_flows([]);
        self.set_fragmented([]);
        self.set_calls([]);
        self.set_proof(None);
        self.set_reset(None);
        self.set_sent(&[]);
        self.set_remotes(&[]);
        self.set_opened(Tally::default(), &[]);
        let now = Moment::now().ns();
        for limited in Limited::ALL {
            self.set_bucket(limited, [limited.burst(), now]);
        }
        self.counted();
        self.reported();
    }
}

/// What tells a SYN from others.
fn syn(flow: &FlowKey, sequence: u32) -> u32 {
    SECRET.isn_of_epoch(flow, epoch_of_syn(sequence))
}

/// A map of a loaded object.
///
/// # Panics
///
/// If the object has none of that name, or it is of another type.
pub fn take<T: TryFrom<Map, Error: std::fmt::Debug>>(ebpf: &mut Ebpf, name: &str) -> T {
    let map = ebpf.take_map(name);
    let map = map.unwrap_or_else(|| panic!("the object has no map {name}"));
    map.try_into().expect("the map has its type")
}

/// A map of an object that goes on to hold it: its programs are not loaded yet.
///
/// # Panics
///
/// If the object has none of that name and type.
pub fn within<'a, T>(ebpf: &'a mut Ebpf, name: &str) -> T
where
    T: TryFrom<&'a mut Map, Error: std::fmt::Debug>,
{
    let map = ebpf.map_mut(name);
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

fn set_peers(ebpf: &mut Ebpf, config: &Config) {
    let kind = match config.phantuns {
        Phantuns::Some => peer::PHANTUN,
        Phantuns::None | Phantuns::All => peer::XDPTUN,
    };
    let map = ebpf.map_mut("PEERS").expect("the object has a map PEERS");
    let mut peers: LpmTrie<_, [u8; 16], u32> = map.try_into().expect("a trie");
    for family in Family::ALL {
        let address = u128::from_be_bytes(address_bytes(family.peer()));
        // A network of four addresses, so that a prefix is looked up.
        let network = Key::new(126, (address & !3).to_be_bytes());
        peers
            .insert(&network, kind, 0)
            .expect("the peers can be written");
    }
}

/// The addresses of this host, with a network all of which is its own, and in it one that
/// is not.
fn set_local(ebpf: &mut Ebpf) {
    let map = ebpf.map_mut("LOCAL").expect("the object has a map LOCAL");
    let mut local: LpmTrie<_, [u8; 16], u32> = map.try_into().expect("a trie");
    for family in Family::ALL {
        let (network, bits) = family.own_network();
        let many = Key::new(128, address_bytes(family.to_all()));
        for (key, kind) in [
            (Key::new(128, address_bytes(family.host())), Local::Host),
            (Key::new(bits, address_bytes(network)), Local::Host),
            (many, Local::Many),
        ] {
            local
                .insert(&key, kind as u32, 0)
                .expect("the addresses can be written");
        }
    }
}

/// Two keys for all peers, one more for the peer of [`Family::with_own_key`].
fn set_keys(ebpf: &mut Ebpf) {
    let set = |keys: &[ProofKey], veil| {
        let set = KeySet::new(keys).expect("up to four keys");
        Record(set.with_veil(veil))
    };
    let map = ebpf.map_mut("VEIL_KEY");
    let mut veil: Array<_, Record<VeilKey>> = map
        .expect("the object has a map VEIL_KEY")
        .try_into()
        .expect("an array");
    veil.set(0, Record(VEIL_KEY), 0)
        .expect("the key can be written");
    let map = ebpf.map_mut("KEYS").expect("the object has a map KEYS");
    let mut sets: Array<_, Record<KeySet>> = map.try_into().expect("an array");
    for (index, keys) in [
        set(&[PROOF_KEY, SECOND_KEY], VEIL_KEY),
        set(&[OWN_KEY], OWN_VEIL_KEY),
    ]
    .into_iter()
    .enumerate()
    {
        sets.set(index as u32, keys, 0)
            .expect("the keys can be written");
    }
    let map = ebpf
        .map_mut("KEYS_OF")
        .expect("the object has a map KEYS_OF");
    let mut of: LpmTrie<_, [u8; 16], u32> = map.try_into().expect("a trie");
    let own = Family::ALL.map(|family| Key::new(128, address_bytes(family.with_own_key())));
    let everyone = [Key::new(0, [0; 16])];
    for (networks, index) in [(&everyone[..], 0), (&own[..], 1)] {
        for network in networks {
            of.insert(network, index, 0)
                .expect("the networks can be written");
        }
    }
}
