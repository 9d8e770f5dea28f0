//! The programs of the policy, and packets through them.

use std::collections::BTreeMap;

use aya::maps::{Array, HashMap, MapData, PerCpuArray, RingBuf};
use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions};
use aya::{Ebpf, EbpfLoader};
use xdptun_common::global::LINK_LEN;
use xdptun_common::member::{self, Member};
use xdptun_common::policy::compile::compile;
use xdptun_common::policy::event::{Event, Kind};
use xdptun_common::policy::outcome::{Count, Outcome};
use xdptun_common::policy::rule::{
    Action, Direction, MAX_RULES, NAME, NO_END, Network, PLACES, Rule, Set, SetKey,
};
use xdptun_common::policy::table::Table;
use xdptun_common::wire::LINK_ETHERNET;
use xdptun_lab::workspace;

use crate::case::Verdict;
use crate::counters::Counters;
use crate::kernel::{Record, require_root, take, within};
use crate::program::{Program, Skb};

/// Index of the loopback device, where all packets are.
const LOOPBACK: u32 = 1;

/// A rule for packets of any address and port that come in.
///
/// # Panics
///
/// If the patterns have no room.
#[must_use]
pub fn rule(action: Action, patterns: &[&[u8]]) -> Box<Rule> {
    folded(action, patterns, false)
}

/// The same, whose letters match in either case if `ignore_case` says so.
///
/// # Panics
///
/// If the patterns have no room.
#[must_use]
pub fn folded(action: Action, patterns: &[&[u8]], ignore_case: bool) -> Box<Rule> {
    let mut rule = Box::new(Rule {
        from: Network::ALL,
        to: Network::ALL,
        name: [0; NAME],
        first: 0,
        end: NO_END,
        port: 0,
        protocol: 0,
        direction: Direction::In as u8,
        action: action as u8,
        dry_run: 0,
        reserved: [0; 2],
        table: Table::EMPTY,
    });
    rule.name[..4].copy_from_slice(b"name");
    compile(&mut rule.table, patterns, ignore_case).expect("patterns that have room");
    rule
}

/// The programs and their maps.
pub struct Policy {
    ebpf: Ebpf,
    loaded: [bool; 2],
    counters: Counters,
    hits: PerCpuArray<MapData, u64>,
    events: RingBuf<MapData>,
}

/// What came of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The verdict.
    pub verdict: Option<Verdict>,
    /// Which counters moved, and how far.
    pub counted: BTreeMap<&'static str, u64>,
}

impl Ended {
    /// With this verdict, and these counted once each.
    #[must_use]
    pub fn so(verdict: Verdict, counters: &[&'static str]) -> Self {
        Self {
            verdict: Some(verdict),
            counted: counters.iter().map(|name| (*name, 1)).collect(),
        }
    }
}

impl Policy {
    /// Loads the programs with these rules, in their order.
    ///
    /// # Panics
    ///
    /// If the kernel refuses.
    #[must_use]
    pub fn new(rules: &[Box<Rule>]) -> Self {
        require_root();
        let mut ebpf = EbpfLoader::new()
            .override_global(LINK_LEN, &LINK_ETHERNET, true)
            .load_file(workspace::object("policy"))
            .unwrap_or_else(|error| panic!("cannot load the object: {error:?}"));
        let mut interfaces: Array<_, Record<Member>> = within(&mut ebpf, "INTERFACES");
        let member = Member {
            met_at: LOOPBACK,
            index: LOOPBACK,
            mtu: 1500,
            ..Member::default()
        };
        interfaces
            .set(member::slot(LOOPBACK, 0), Record(member), 0)
            .expect("the interfaces can be written");
        let mut policy = Self {
            counters: Counters::take(&mut ebpf, Outcome::ALL.len() + Count::ALL.len()),
            hits: take(&mut ebpf, "HITS"),
            events: take(&mut ebpf, "POLICY_EVENTS"),
            loaded: [false; 2],
            ebpf,
        };
        policy.set_rules(rules);
        policy
    }

    /// Puts these rules in the place of those before.
    ///
    /// # Panics
    ///
    /// If the maps cannot be written.
    pub fn set_rules(&mut self, rules: &[Box<Rule>]) {
        let mut sets = [Set {
            count: 0,
            places: [0; MAX_RULES],
        }; 2];
        let mut map: Array<_, Record<Rule>> = within(&mut self.ebpf, "RULES");
        for (place, rule) in (0..).zip(rules) {
            map.set(place.into(), Record(**rule), 0)
                .expect("the rules can be written");
            let set = &mut sets[usize::from(rule.direction)];
            set.places[set.count as usize] = place;
            set.count += 1;
        }
        let mut map: HashMap<_, Record<SetKey>, Record<Set>> = within(&mut self.ebpf, "RULE_SETS");
        for (direction, set) in (0..).zip(sets) {
            let key = SetKey {
                interface: LOOPBACK,
                direction,
            };
            map.insert(Record(key), Record(set), 0)
                .expect("the rules can be written");
        }
    }

    /// How often each of the first rules has matched.
    ///
    /// # Panics
    ///
    /// If the map cannot be read.
    #[must_use]
    pub fn hits(&self, rules: usize) -> Vec<u64> {
        let hits = |place: usize| {
            let hits = self.hits.get(&(place as u32), 0).expect("it can be read");
            hits.iter().sum()
        };
        assert!(rules <= PLACES);
        (0..rules).map(hits).collect()
    }

    /// What the daemon was told since the last call, and the frames that it got.
    ///
    /// # Panics
    ///
    /// If an event is not one.
    pub fn events(&mut self) -> Vec<(Kind, Event, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some(item) = self.events.next() {
            let event: Event = xdptun_common::read_plain(&item).expect("an event");
            let kind = Kind::from_raw(event.kind).expect("a kind that is known");
            let frame = &item[size_of::<Event>()..];
            let frame = frame.get(..event.len as usize).expect("its bytes");
            all.push((kind, event, frame.to_vec()));
        }
        all
    }

    /// What comes of a packet on this side. It stays as it is in any case.
    ///
    /// # Panics
    ///
    /// If the verifier rejects the program, the kernel does not take the packet, or the packet
    /// was changed.
    pub fn meets(&mut self, direction: Direction, packet: &[u8], skb: Skb) -> Ended {
        let name = match direction {
            Direction::In => "policy_ingress",
            Direction::Out => "policy_egress",
        };
        let program = self.ebpf.program_mut(name).expect("the object has it");
        let program: &mut SchedClassifier = program.try_into().expect("a tc program");
        if !self.loaded[direction as usize] {
            if let Err(error) = program.load() {
                panic!("cannot load {name}: {error}");
            }
            self.loaded[direction as usize] = true;
        }
        let mut data_out = vec![0; packet.len() + 4096];
        let (context, mut context_out) = (skb.context(), [0; Skb::LEN]);
        let options = TestRunOptions {
            data_in: Some(packet),
            data_out: Some(&mut data_out),
            ctx_in: Some(&context),
            ctx_out: Some(&mut context_out),
            ..TestRunOptions::default()
        };
        let result = program.test_run(options);
        let result = result.unwrap_or_else(|error| {
            panic!(
                "the kernel does not run {name} on {} bytes: {error:?}",
                packet.len()
            )
        });
        data_out.truncate(result.data_size_out as usize);
        assert!(data_out == packet, "the packet was changed");
        Ended {
            verdict: Verdict::of(Program::Ingress, result.return_value),
            counted: self.counters.moved_by_packet::<Outcome, Count>(&data_out),
        }
    }

    /// What comes of a packet that comes in.
    pub fn comes_in(&mut self, packet: impl Into<Vec<u8>>) -> Ended {
        self.meets(Direction::In, &packet.into(), Skb::default())
    }

    /// What comes of a super-packet that comes in.
    pub fn super_packet_comes_in(&mut self, packet: impl Into<Vec<u8>>) -> Ended {
        let skb = Skb {
            gso_size: 100,
            ..Skb::default()
        };
        self.meets(Direction::In, &packet.into(), skb)
    }

    /// What comes of a packet that leaves.
    pub fn leaves(&mut self, packet: impl Into<Vec<u8>>) -> Ended {
        self.meets(Direction::Out, &packet.into(), Skb::default())
    }
}
