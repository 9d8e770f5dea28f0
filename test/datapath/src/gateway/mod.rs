//! The gateway's programs, and packets through them one after the other.
//!
//! A session is made by packets, so a test is a conversation: each step says what goes in, and
//! all that comes out: verdict, bytes, counters.

mod nat;
mod requests;
mod step;

pub use nat::NatRow;
pub use step::Step;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Array, HashMap, MapData, MapError, RingBuf};
use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions};
use aya::{Ebpf, EbpfLoader};
use xdptun_common::address::{Local, address_bytes};
use xdptun_common::gateway::global;
use xdptun_common::gateway::nat::{Binding, HostKey, InsideKey, OutsideKey};
use xdptun_common::gateway::outcome::{Count, Outcome};
use xdptun_common::gateway::rule::{BackEnd, Listen, ListenKey, Set};
use xdptun_common::gateway::session::Entry;
use xdptun_common::gateway::timer::Timers;
use xdptun_common::gateway::tuple::{Side, Tuple};
use xdptun_common::global::LINK_LEN;
use xdptun_common::member::{self, Member};
use xdptun_common::wire::{LINK_ETHERNET, Protocol};
use xdptun_lab::workspace;

use crate::counters::Counters;
use crate::kernel::{Record, require_root, take, within};
use crate::moment::Remembered;
use crate::path::Family;
use crate::program::Skb;

/// Sessions that last for which there is room.
pub const MAX_SESSIONS: u32 = 4;

/// Index of the loopback device, where all packets are.
const LOOPBACK: u32 = 1;

/// Index of the interface that packets are met at if a step names no other.
pub const OWN: u32 = LOOPBACK;

/// The set that the rules are in.
const SET: Set = 3;

/// What is forwarded.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The listen address; any of this host's own if there is none.
    pub address: Option<IpAddr>,
    /// The port there.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
    /// The back end.
    pub to: SocketAddr,
    /// The source that the back end sees, and the ports that it may have.
    pub source: Option<(IpAddr, [u16; 2])>,
}

impl Rule {
    /// Forwards a port of any own address, for both protocols, the client's address kept.
    #[must_use]
    pub fn both(port: u16, to: SocketAddr) -> [Self; 2] {
        [Protocol::TCP, Protocol::UDP].map(|protocol| Self {
            address: None,
            port,
            protocol,
            to,
            source: None,
        })
    }
}

/// Capacities of the maps of `nat`.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// How many outside ends may be bound.
    pub bindings: u32,
    /// Of how many inside ends the port is known.
    pub outside_ports: u32,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            bindings: 65_536,
            outside_ports: 65_536,
        }
    }
}

/// The programs and their maps.
pub struct Gateway {
    ebpf: Ebpf,
    met_at: u32,
    loaded: [bool; 2],
    remembered: Remembered<2>,
    counters: Counters,
    sessions: HashMap<MapData, Record<Tuple>, Record<Entry>>,
    embryonic: HashMap<MapData, Record<Tuple>, Record<Entry>>,
    lasting: Array<MapData, u64>,
    back_ends: Array<MapData, Record<BackEnd>>,
    bindings: HashMap<MapData, Record<OutsideKey>, Record<Binding>>,
    outside_ports: HashMap<MapData, Record<InsideKey>, u32>,
    hosts: HashMap<MapData, Record<HostKey>, u32>,
    requests: RingBuf<MapData>,
}

impl Gateway {
    /// Loads the programs with these rules, each with one back end.
    ///
    /// # Panics
    ///
    /// If the kernel refuses.
    #[must_use]
    pub fn new(rules: &[Rule]) -> Self {
        Self::with_room(rules, Room::default())
    }

    /// The same with these capacities.
    ///
    /// # Panics
    ///
    /// If the kernel refuses.
    #[must_use]
    pub fn with_room(rules: &[Rule], room: Room) -> Self {
        require_root();
        let mut ebpf = EbpfLoader::new()
            .override_global(LINK_LEN, &LINK_ETHERNET, true)
            .override_global(global::MAX_SESSIONS, &MAX_SESSIONS, true)
            .map_max_entries("SESSIONS", 8 * MAX_SESSIONS)
            .map_max_entries("BINDINGS", room.bindings)
            .map_max_entries("OUTSIDE_PORTS", room.outside_ports)
            .load_file(workspace::object("gateway"))
            .unwrap_or_else(|error| panic!("cannot load the object: {error:?}"));
        let mut local: LpmTrie<_, [u8; 16], u32> = within(&mut ebpf, "LOCAL");
        for family in Family::ALL {
            let key = Key::new(128, address_bytes(family.host()));
            local
                .insert(&key, Local::Host as u32, 0)
                .expect("the addresses can be written");
        }
        let mut gateway = Self {
            remembered: Remembered::take(&mut ebpf),
            counters: Counters::take(&mut ebpf, Outcome::ALL.len() + Count::ALL.len()),
            sessions: take(&mut ebpf, "SESSIONS"),
            embryonic: take(&mut ebpf, "EMBRYONIC"),
            lasting: take(&mut ebpf, "LASTING"),
            back_ends: take(&mut ebpf, "BACK_ENDS"),
            bindings: take(&mut ebpf, "BINDINGS"),
            outside_ports: take(&mut ebpf, "OUTSIDE_PORTS"),
            hosts: take(&mut ebpf, "HOSTS"),
            requests: take(&mut ebpf, "REQUESTS"),
            loaded: [false; 2],
            met_at: 0,
            ebpf,
        };
        gateway.meet_at(OWN);
        gateway.set_timers(Timers::DEFAULT);
        gateway.set_rules(rules);
        gateway.listens(true);
        gateway
    }

    /// Lets the programs meet packets at this interface. They know it only by the row of the
    /// device where a packet is, so that another row for that device is another interface to them.
    fn meet_at(&mut self, index: u32) {
        if self.met_at == index {
            return;
        }
        let mut interfaces: Array<_, Record<Member>> = within(&mut self.ebpf, "INTERFACES");
        let member = Member {
            met_at: LOOPBACK,
            index,
            mtu: 1500,
            ..Member::default()
        };
        interfaces
            .set(member::slot(LOOPBACK, 0), Record(member), 0)
            .expect("the interfaces can be written");
        self.met_at = index;
    }

    /// Sets how long sessions live without a packet.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn set_timers(&mut self, timers: Timers) {
        let mut map: Array<_, Record<Timers>> = within(&mut self.ebpf, "TIMERS");
        map.set(0, Record(timers), 0)
            .expect("the timers can be written");
    }

    fn set_rules(&mut self, rules: &[Rule]) {
        let mut listen: HashMap<_, Record<ListenKey>, Record<Listen>> =
            within(&mut self.ebpf, "LISTEN");
        let mut back_ends = Vec::new();
        for (place, rule) in (0..).zip(rules) {
            let key = ListenKey::new(SET, address_bytes(rule.to.ip()), rule.port, rule.protocol);
            let key = match rule.address {
                Some(address) => {
                    ListenKey::new(SET, address_bytes(address), rule.port, rule.protocol)
                }
                None => key.of_any(),
            };
            let value = Listen {
                first: place,
                places: 1,
                offset: 0,
            };
            listen
                .insert(Record(key), Record(value), 0)
                .expect("the rules can be written");
            back_ends.push((place, rule));
        }
        for (place, rule) in back_ends {
            let (source, ports) = rule.source.map_or(([0; 16], [0; 2]), |(source, ports)| {
                (address_bytes(source), ports)
            });
            self.set_back_end(
                place,
                BackEnd {
                    to: rule.to.into(),
                    ports,
                    source,
                    unreachable: 0,
                },
            );
        }
    }

    /// Sets the back end at a place.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn set_back_end(&mut self, place: u32, back_end: BackEnd) {
        self.back_ends
            .set(place, Record(back_end), 0)
            .expect("the back ends can be written");
    }

    /// Whether sessions may begin on the interface.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn listens(&mut self, listens: bool) {
        let mut listeners: HashMap<_, u32, Set> = within(&mut self.ebpf, "LISTENERS");
        let written = match listens {
            true => listeners.insert(LOOPBACK, SET, 0),
            false => listeners.remove(&LOOPBACK),
        };
        written.expect("the interfaces can be written");
    }

    /// How many entries there are that last, and that wait for proof.
    ///
    /// # Panics
    ///
    /// If the maps cannot be read.
    #[must_use]
    pub fn entries(&self) -> [usize; 2] {
        [&self.sessions, &self.embryonic].map(|map| {
            let keys: Result<Vec<_>, _> = map.keys().collect();
            keys.expect("no other process writes to the map").len()
        })
    }

    /// How many sessions began to last, and how many of these were removed.
    ///
    /// # Panics
    ///
    /// If the map cannot be read.
    #[must_use]
    pub fn lasting(&self) -> [u64; 2] {
        [0, 1].map(|index| self.lasting.get(&index, 0).expect("it can be read"))
    }

    /// The entry for a packet, in whichever table it is.
    #[must_use]
    pub fn entry(&self, tuple: &Tuple) -> Option<Entry> {
        let found = self.sessions.get(&Record(*tuple), 0);
        let found = found.or_else(|_| self.embryonic.get(&Record(*tuple), 0));
        found.ok().map(|entry| entry.0)
    }

    /// Removes one entry of a session that waits for proof, as the kernel does.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn evict(&mut self, tuple: &Tuple) {
        let removed = self.embryonic.remove(&Record(*tuple));
        removed.expect("the entry was there a moment ago");
    }

    /// Makes all sessions so many ticks older, but no binding.
    ///
    /// # Panics
    ///
    /// If the maps cannot be written.
    pub fn age(&mut self, ticks: u32) {
        for map in [&mut self.sessions, &mut self.embryonic] {
            let entries: Result<Vec<_>, MapError> = map.iter().collect();
            for (key, Record(mut entry)) in entries.expect("no other process writes to the map") {
                entry.seen = entry.seen.wrapping_sub(ticks);
                map.insert(key, Record(entry), 0)
                    .expect("the entry was there a moment ago");
            }
        }
    }

    /// Runs the program of a side; what it returned, and the packet after it.
    ///
    /// # Panics
    ///
    /// If the verifier rejects the program, or the kernel does not take the packet.
    pub fn run(&mut self, side: Side, packet: &[u8], skb: Skb) -> (u32, Vec<u8>) {
        let name = match side {
            Side::In => "gateway_ingress",
            Side::Out => "gateway_egress",
        };
        let program = self.ebpf.program_mut(name).expect("the object has it");
        let program: &mut SchedClassifier = program.try_into().expect("a tc program");
        if !self.loaded[side as usize] {
            if let Err(error) = program.load() {
                panic!("cannot load {name}: {error}");
            }
            self.loaded[side as usize] = true;
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
        self.remembered.forget();
        let result = program.test_run(options);
        let result = result.unwrap_or_else(|error| {
            panic!("the kernel does not run {name} on {packet:02x?}: {error:?}")
        });
        data_out.truncate(result.data_size_out as usize);
        (result.return_value, data_out)
    }

    /// Which counters moved since the last call, and how far.
    ///
    /// # Panics
    ///
    /// If they cannot be read.
    pub fn moved(&mut self) -> BTreeMap<&'static str, u64> {
        self.counters.moved_by_name::<Outcome, Count>()
    }

    /// The same for one packet that became `after`.
    ///
    /// # Panics
    ///
    /// If they cannot be read, or other bytes were counted than those of `after`.
    #[track_caller]
    pub fn moved_by_packet(&mut self, after: &[u8]) -> BTreeMap<&'static str, u64> {
        self.counters.moved_by_packet::<Outcome, Count>(after)
    }

    /// Begins a step: this packet is met on this side.
    pub fn meets(&mut self, side: Side, packet: impl Into<Vec<u8>>) -> Step<'_> {
        Step::new(self, side, packet.into())
    }

    /// Begins a step: this packet comes in.
    pub fn comes_in(&mut self, packet: impl Into<Vec<u8>>) -> Step<'_> {
        Step::new(self, Side::In, packet.into())
    }

    /// Begins a step: this packet leaves.
    pub fn leaves(&mut self, packet: impl Into<Vec<u8>>) -> Step<'_> {
        Step::new(self, Side::Out, packet.into())
    }
}
