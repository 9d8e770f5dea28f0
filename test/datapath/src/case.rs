//! One run of a program and all that must come of it.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::net::IpAddr;

use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::event::Kind;
use xdptun_common::tunnel::fragment::First;
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::sent::SentSegment;
use xdptun_common::tunnel::share::Tally;
use xdptun_common::tunnel::state::Opener;
use xdptun_common::tunnel::state::{Flow, State};

use crate::diff;
use crate::kernel::{Bucket, Counted, Datapath, Limited, Ran, Reported};
use crate::moment::Moment;
use crate::packet::{Fragmented, Packet};
use crate::program::{Program, Skb};

/// The expected fate of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on its way.
    Pass,
    /// It ends, and the sender hears of it.
    Drop,
    /// tc: it goes elsewhere, to the wire or to nowhere.
    Redirect,
}

impl Verdict {
    /// The meaning of the number that a program returned; `None` if that has no
    /// meaning here.
    #[must_use]
    pub fn of(program: Program, value: u32) -> Option<Self> {
        [Self::Pass, Self::Drop, Self::Redirect]
            .into_iter()
            .find(|verdict| verdict.value(program) == value)
    }

    /// `TC_ACT_*` and `XDP_*` of the kernel's headers.
    const fn value(self, program: Program) -> u32 {
        match (program.is_xdp(), self) {
            (true, Self::Pass) => 2,
            (true, Self::Drop) => 1,
            (true, Self::Redirect) => 4,
            (false, Self::Pass) => u32::MAX,
            (false, Self::Drop) => 2,
            (false, Self::Redirect) => 7,
        }
    }
}

/// One run. A new case expects that the packet passes untouched and that
/// nothing else changes; the other methods add to that.
#[derive(Clone, Debug)]
pub struct Case {
    program: Program,
    packet: Vec<u8>,
    skb: Skb,
    flows: BTreeMap<FlowKey, Flow>,
    buckets: BTreeMap<Limited, Bucket>,
    fragmented: BTreeMap<Fragmented, First>,
    calls: BTreeMap<FlowKey, u32>,
    proof: Option<(u64, IpAddr)>,
    reset: Option<(FlowKey, u32, u64)>,
    answered: Option<(FlowKey, u32, u32)>,
    expected_answered: Option<(FlowKey, u32, Option<u32>)>,
    sent: Vec<SentSegment>,
    remotes: Vec<IpAddr>,
    opened: Tally,
    networks: Vec<([u8; 16], u64)>,
    verdict: Verdict,
    expected_packet: Option<Vec<u8>>,
    expected_mark: u32,
    expected_counters: Counted,
    expected_flows: BTreeMap<FlowKey, Flow>,
    /// Its first fragment was dropped now, or had these ports, if nothing else is given.
    expected_fragmented: BTreeMap<Fragmented, Result<First, (u16, u16)>>,
    /// When each sent last; now, if no time is given.
    expected_calls: BTreeMap<FlowKey, Option<u32>>,
    expected_reports: Vec<(Kind, FlowKey, Vec<u8>)>,
}

impl Case {
    /// The program meets the packet.
    #[must_use]
    pub fn new(program: Program, packet: impl Into<Vec<u8>>) -> Self {
        let packet = packet.into();
        Self {
            program,
            skb: Skb::default(),
            flows: BTreeMap::new(),
            buckets: BTreeMap::new(),
            fragmented: BTreeMap::new(),
            calls: BTreeMap::new(),
            proof: None,
            reset: None,
            answered: None,
            expected_answered: None,
            sent: Vec::new(),
            remotes: Vec::new(),
            opened: Tally::default(),
            networks: Vec::new(),
            verdict: Verdict::Pass,
            expected_packet: Some(packet.clone()),
            expected_mark: 0,
            expected_counters: Counted::new(),
            expected_flows: BTreeMap::new(),
            expected_fragmented: BTreeMap::new(),
            expected_calls: BTreeMap::new(),
            expected_reports: Vec::new(),
            packet,
        }
    }

    /// The egress program meets the packet.
    #[must_use]
    pub fn egress(packet: impl Into<Vec<u8>>) -> Self {
        Self::new(Program::Egress, packet)
    }

    /// The ingress program meets the packet.
    #[must_use]
    pub fn ingress(packet: impl Into<Vec<u8>>) -> Self {
        Self::new(Program::Ingress, packet)
    }

    /// A SYN of this sequence number for the flow was answered with this number.
    #[must_use]
    pub const fn was_answered(mut self, key: FlowKey, sequence: u32, number: u32) -> Self {
        self.answered = Some((key, sequence, number));
        self
    }

    /// A segment of the flow was answered with a reset of this number at this time.
    #[must_use]
    pub const fn was_reset(mut self, key: FlowKey, number: u32, at: u64) -> Self {
        self.reset = Some((key, number, at));
        self
    }

    /// The proof of a SYN with this number has been seen before, from this address.
    #[must_use]
    pub fn proven(mut self, isn: u32, proof: u32, from: IpAddr) -> Self {
        self.proof = Some((u64::from(isn) << 32 | u64::from(proof), from));
        self
    }

    /// This segment, without IP options, left so many ticks before `at`.
    ///
    /// # Panics
    ///
    /// If it is no segment.
    #[must_use]
    pub fn left(mut self, segment: &Packet, at: Moment, ticks: u32) -> Self {
        self.sent
            .push(segment.remembered(at.tick().wrapping_sub(ticks)));
        self
    }

    /// A flow was established with this address.
    #[must_use]
    pub fn knows(mut self, remote: IpAddr) -> Self {
        self.remotes.push(remote);
        self
    }

    /// So many flows were made and answered before.
    #[must_use]
    pub const fn after(mut self, opened: Tally) -> Self {
        self.opened = opened;
        self
    }

    /// This network of peers will have earned its share back then (nanoseconds).
    #[must_use]
    pub fn charged(mut self, network: [u8; 16], earned_at: u64) -> Self {
        self.networks.push((network, earned_at));
        self
    }

    /// The program meets this packet; what is expected stays.
    #[must_use]
    pub fn meets(mut self, packet: impl Into<Vec<u8>>) -> Self {
        self.packet = packet.into();
        self
    }

    /// The packet carries a mark, before and after.
    #[must_use]
    pub fn marked(mut self, mark: u32) -> Self {
        self.skb.mark = mark;
        self.expected_mark = mark;
        self
    }

    /// The packet carries this mark afterwards.
    #[must_use]
    pub const fn marks(mut self, mark: u32) -> Self {
        self.expected_mark = mark;
        self
    }

    /// The mark is gone afterwards.
    #[must_use]
    pub fn unmarks(mut self) -> Self {
        self.expected_mark = 0;
        self
    }

    /// The packet belongs to this interface.
    #[must_use]
    pub fn on(mut self, ifindex: u32) -> Self {
        self.skb.ifindex = ifindex;
        self
    }

    /// The buffer holds several segments.
    #[must_use]
    pub fn merged(mut self, gso_size: u32) -> Self {
        self.skb.gso_size = gso_size;
        self
    }

    /// The table holds this flow, before and after.
    #[must_use]
    pub fn flow(mut self, key: FlowKey, flow: Flow) -> Self {
        self.flows.insert(key, flow);
        self.expected_flows.insert(key, flow);
        self
    }

    /// The flow changes.
    ///
    /// # Panics
    ///
    /// If it is not in the table.
    #[must_use]
    pub fn changes(mut self, key: FlowKey, change: impl FnOnce(&mut Flow)) -> Self {
        change(self.expected_flows.get_mut(&key).expect("in the table"));
        self
    }

    /// A flow is added to the table.
    #[must_use]
    pub fn adds(mut self, key: FlowKey, flow: Flow) -> Self {
        self.expected_flows.insert(key, flow);
        self
    }

    /// Every CPU has this bucket.
    #[must_use]
    pub fn bucket(mut self, limited: Limited, bucket: Bucket) -> Self {
        self.buckets.insert(limited, bucket);
        self
    }

    /// With the way that packets go which the program meets.
    fn its_way(&self, mut datagram: Fragmented) -> Fragmented {
        datagram[37] = u8::from(self.program == Program::Egress);
        datagram
    }

    /// The first fragment of this datagram was dropped then (nanoseconds).
    #[must_use]
    pub fn refused(self, datagram: Fragmented, then: u64) -> Self {
        self.after_first(datagram, First::dropped(then))
    }

    /// That became of the first fragment of this datagram.
    #[must_use]
    pub fn after_first(self, datagram: Fragmented, first: First) -> Self {
        let datagram = self.its_way(datagram);
        self.after_first_in(datagram, first)
    }

    /// That became of the first fragment of this datagram, which came in.
    #[must_use]
    pub fn after_first_in(mut self, datagram: Fragmented, first: First) -> Self {
        self.fragmented.insert(datagram, first);
        self.expected_fragmented.insert(datagram, Ok(first));
        self
    }

    /// What became of the first fragment of this datagram is forgotten.
    #[must_use]
    pub fn forgets(mut self, datagram: Fragmented) -> Self {
        let datagram = self.its_way(datagram);
        self.expected_fragmented.remove(&datagram);
        self
    }

    /// From now on, the other fragments of this datagram are dropped.
    #[must_use]
    pub fn remembers(self, datagram: Fragmented) -> Self {
        self.remembers_ports(datagram, (0, 0))
    }

    /// From now on, the other fragments of this datagram are carried with these ports.
    #[must_use]
    pub fn remembers_ports(mut self, datagram: Fragmented, ports: (u16, u16)) -> Self {
        let datagram = self.its_way(datagram);
        self.expected_fragmented.insert(datagram, Err(ports));
        self
    }

    /// This connection was opened from an owned port, and sent something at this tick.
    #[must_use]
    pub fn called(mut self, key: FlowKey, then: u32) -> Self {
        self.calls.insert(key, then);
        self.expected_calls.insert(key, Some(then));
        self
    }

    /// This connection was remembered as one that sent something at `then`, and is no more.
    #[must_use]
    pub fn forgets_call(mut self, key: FlowKey, then: u32) -> Self {
        self.calls.insert(key, then);
        self
    }

    /// This connection is remembered as one that sent something now.
    #[must_use]
    pub fn notes_call(mut self, key: FlowKey) -> Self {
        self.expected_calls.insert(key, None);
        self
    }

    /// The packet goes on as this one.
    #[must_use]
    pub fn passes_as(mut self, packet: impl Into<Vec<u8>>) -> Self {
        self.verdict = Verdict::Pass;
        self.expected_packet = Some(packet.into());
        self
    }

    /// The packet goes back where it came from as this one.
    #[must_use]
    pub fn answers(mut self, packet: impl Into<Vec<u8>>) -> Self {
        self.verdict = Verdict::Redirect;
        self.expected_packet = Some(packet.into());
        self
    }

    /// The packet ends, and its sender believes that it left.
    #[must_use]
    pub fn swallows(mut self) -> Self {
        self.verdict = Verdict::Redirect;
        self.expected_packet = None;
        self
    }

    /// The packet is dropped and nothing counted.
    #[must_use]
    pub fn ends(mut self) -> Self {
        self.verdict = Verdict::Drop;
        self.expected_packet = None;
        self
    }

    /// The packet is dropped and counted.
    #[must_use]
    pub fn drops(self, outcome: Outcome) -> Self {
        self.ends().counts(outcome)
    }

    /// The outcome is counted, once.
    #[must_use]
    pub fn counts(mut self, outcome: Outcome) -> Self {
        *self.expected_counters.entry(outcome.name()).or_default() += 1;
        self
    }

    /// Afterwards the programs know this number, or none, as what a SYN of this sequence number
    /// for the flow was answered with.
    #[must_use]
    pub const fn keeps_answer(mut self, key: FlowKey, sequence: u32, number: Option<u32>) -> Self {
        self.expected_answered = Some((key, sequence, number));
        self
    }

    /// The control segment is counted, once.
    #[must_use]
    pub fn sends(mut self, sent: Sent) -> Self {
        *self.expected_counters.entry(sent.name()).or_default() += 1;
        self
    }

    /// The daemon hears of the flow.
    #[must_use]
    pub fn reports(mut self, kind: Kind, key: FlowKey) -> Self {
        self.expected_reports.push((kind, key, Vec::new()));
        self
    }

    /// The daemon is given the frame to send it later.
    #[must_use]
    pub fn queues(mut self, key: FlowKey, frame: impl Into<Vec<u8>>) -> Self {
        self.expected_reports
            .push((Kind::Queued, key, frame.into()));
        self
    }

    /// Runs the program; what is wrong with the result, or `None` if the clock
    /// ticked meanwhile, so that nothing can be said.
    fn run(&self, datapath: &mut Datapath, at: Moment) -> Option<String> {
        datapath.reset();
        datapath.set_flows(&self.flows);
        datapath.set_fragmented(&self.fragmented);
        datapath.set_calls(&self.calls);
        datapath.set_proof(self.proof);
        datapath.set_reset(self.reset);
        datapath.set_answered(self.answered);
        datapath.set_sent(&self.sent);
        datapath.set_remotes(&self.remotes);
        datapath.set_opened(self.opened, &self.networks);
        for (limited, bucket) in &self.buckets {
            datapath.set_bucket(*limited, *bucket);
        }
        datapath.load(self.program);
        let ran = datapath.run(self.program, &self.packet, self.skb);
        if Moment::now() != at {
            return None;
        }
        let mut wrong = self.judge(&ran);
        wrong += &section("counters", &self.expected_counters, &datapath.counted());
        let reports: Vec<Reported> = self
            .expected_reports
            .iter()
            .map(|(kind, flow, frame)| Reported {
                kind: *kind as u32,
                at: at.ns(),
                flow: *flow,
                frame: frame.clone(),
            })
            .collect();
        wrong += &section("events", &reports, &datapath.reported());
        wrong += &section("flows", &self.expected_flows, &datapath.flows());
        wrong += &section(
            "counts of flows",
            &self.expected_tally(),
            &datapath.opened(),
        );
        let first = |expected: &Result<First, _>| match *expected {
            Ok(first) => first,
            Err(ports) => First::carried(at.ns(), ports),
        };
        let fragmented: BTreeMap<_, _> = self
            .expected_fragmented
            .iter()
            .map(|(key, expected)| (*key, first(expected)))
            .collect();
        wrong += &section("fragments", &fragmented, &datapath.fragmented());
        if let Some((key, sequence, number)) = &self.expected_answered {
            let answered = datapath.answered(key, *sequence);
            wrong += &section("number of the SYN", number, &answered);
        }
        let calls = by_time(&self.expected_calls, at.tick());
        wrong += &section("connections", &calls, &datapath.calls());
        Some(wrong)
    }

    /// Each flow that is added counts as made, and each that does not wait for its first
    /// answer any more as answered.
    fn expected_tally(&self) -> Tally {
        let mut tally = self.opened;
        for (key, after) in &self.expected_flows {
            let Some(before) = self.flows.get(key) else {
                tally.opened[Opener::of_new(after.state()) as usize] += 1;
                continue;
            };
            let is_answered = match before.waits() {
                Some(Opener::Host) => after.state() == State::Established,
                Some(Opener::Peer) => before.is_unanswered_call() && after.tx_packets == 1,
                None => false,
            };
            if let (Some(opener), true) = (before.waits(), is_answered) {
                tally.answered[opener as usize] += 1;
            }
        }
        tally
    }

    fn judge(&self, ran: &Ran) -> String {
        let mut wrong = section("verdict", &self.verdict.value(self.program), &ran.verdict);
        if let Some(expected) = &self.expected_packet {
            if *expected != ran.packet {
                writeln!(wrong, "packet: {}", diff::hexdump(expected, &ran.packet))
                    .expect("a string");
            }
            if !self.program.is_xdp() {
                wrong += &section("mark", &self.expected_mark, &ran.mark);
            }
        }
        wrong
    }
}

/// With the present in the place of no time.
fn by_time<K: Copy + Ord, T: Copy>(expected: &BTreeMap<K, Option<T>>, now: T) -> BTreeMap<K, T> {
    let expected = expected.iter();
    expected
        .map(|(key, then)| (*key, then.unwrap_or(now)))
        .collect()
}

fn section(name: &str, expected: &impl std::fmt::Debug, actual: &impl std::fmt::Debug) -> String {
    let difference = diff::fields(expected, actual);
    if difference.is_empty() {
        difference
    } else {
        format!("{name}:\n{difference}")
    }
}

/// A case with a name. It is built again for each attempt, because sequence
/// numbers, windows and time stamps depend on the time.
pub struct Row {
    name: String,
    case: Box<dyn Fn(Moment) -> Case + Send>,
}

/// A row of a table.
pub fn row(name: impl Into<String>, case: impl Fn(Moment) -> Case + Send + 'static) -> Row {
    Row {
        name: name.into(),
        case: Box::new(case),
    }
}

/// The variable of the environment that selects rows by a part of their names.
const SELECTED: &str = "XDPTUN_ROW";

/// Runs every row of a table, or those that `XDPTUN_ROW` selects, and shows all that fail.
///
/// # Panics
///
/// If a row fails, or none is selected.
pub fn check(datapath: &mut Datapath, rows: impl IntoIterator<Item = Row>) {
    let mut rows: Vec<Row> = rows.into_iter().collect();
    assert!(!rows.is_empty(), "a table without rows proves nothing");
    if let Ok(part) = env::var(SELECTED) {
        let names: Vec<_> = rows.iter().map(|row| row.name.clone()).collect();
        rows.retain(|row| row.name.contains(&part));
        assert!(
            !rows.is_empty(),
            "{SELECTED} is {part:?}, which is in the name of no row:\n{}",
            names.join("\n")
        );
    }
    let total = rows.len();
    let failures = failures(datapath, rows);
    assert!(
        failures.is_empty(),
        "{} of {total} rows failed\n{}",
        failures.len(),
        failures.join("\n")
    );
    println!("{total} rows");
}

/// Runs every row of a table; the reports of those that fail.
pub fn failures(datapath: &mut Datapath, rows: impl IntoIterator<Item = Row>) -> Vec<String> {
    rows.into_iter()
        .filter_map(|row| {
            let wrong = attempt(datapath, &row);
            (!wrong.is_empty()).then(|| format!("--- {}\n{wrong}", row.name))
        })
        .collect()
}

/// A run takes microseconds and a tick milliseconds; so many misses in a row
/// mean that the two clocks are not the same.
const ATTEMPTS: usize = 1000;

fn attempt(datapath: &mut Datapath, row: &Row) -> String {
    for _ in 0..ATTEMPTS {
        // Takes longer than a tick.
        datapath.forget_answered();
        let at = Moment::now();
        if let Some(wrong) = (row.case)(at).run(datapath, at) {
            return wrong;
        }
    }
    panic!("{}: never ran within one tick of the clock", row.name)
}
