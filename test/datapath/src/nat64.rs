//! The program of NAT64, and packets through it one after the other.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Array, HashMap, MapData, MapError};
use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions};
use aya::{Ebpf, EbpfLoader};
use xdptun_common::global::LINK_LEN;
use xdptun_common::member::{self, Member};
use xdptun_common::nat64::address::Prefix;
use xdptun_common::nat64::lease::{Lease, NetworkKey, Number};
use xdptun_common::nat64::outcome::{Count, Outcome};
use xdptun_common::nat64::pool::Pool;
use xdptun_common::nat64::translator::{PREFIX_LEN, Translator};
use xdptun_common::wire::LINK_ETHERNET;
use xdptun_lab::workspace;

use crate::case::Verdict;
use crate::counters::Counters;
use crate::diff;
use crate::kernel::{Record, require_root, take, within};
use crate::program::{Program, Skb};

/// Index of the loopback device, where all packets are.
const LOOPBACK: u32 = 1;

/// The network of clients, 64 bits long.
pub const INSIDE: Ipv6Addr = Ipv6Addr::new(0xfd00, 6, 0, 0, 0, 0, 0, 0);

/// What the program translates if a test says nothing else: behind the well-known prefix, with a pool
/// of 256 addresses, all global addresses and private ones.
#[must_use]
pub fn translator() -> Translator {
    let pool = pool(24);
    Translator {
        prefix: Prefix::WELL_KNOWN,
        pool,
        own: pool.own(),
        own_v6: Prefix::WELL_KNOWN.embed(pool.own()),
        only_global: 0,
        mtu_v4: 1480,
        max_unanswered: 64,
        max_per_network: 64,
        answered: 7_000_000,
        unanswered: 300_000,
        key: [7, 8],
    }
}

/// The pool of 100.64.0.0 with a prefix of so many bits.
///
/// # Panics
///
/// If there is no such pool.
#[must_use]
pub fn pool(prefix: u32) -> Pool {
    Pool::new([100, 64, 0, 0], prefix).expect("a pool")
}

/// The program and its maps.
pub struct Nat64 {
    ebpf: Ebpf,
    is_loaded: bool,
    translator: Translator,
    counters: Counters,
    leases: HashMap<MapData, [u8; 4], Record<Lease>>,
    clients: HashMap<MapData, [u8; 16], [u8; 4]>,
    numbers: Array<MapData, u32>,
    networks: HashMap<MapData, Record<NetworkKey>, u32>,
}

impl Nat64 {
    /// Loads the program, which translates this.
    ///
    /// # Panics
    ///
    /// If the kernel refuses.
    #[must_use]
    pub fn new(translator: Translator) -> Self {
        require_root();
        let mut ebpf = EbpfLoader::new()
            .override_global(LINK_LEN, &LINK_ETHERNET, true)
            .override_global(PREFIX_LEN, &translator.prefix.parts().1, true)
            .load_file(workspace::object("nat64"))
            .unwrap_or_else(|error| panic!("cannot load the object: {error:?}"));
        let mut nat64 = Self {
            counters: Counters::take(&mut ebpf, Outcome::ALL.len() + Count::ALL.len()),
            leases: take(&mut ebpf, "LEASES"),
            clients: take(&mut ebpf, "CLIENTS"),
            numbers: take(&mut ebpf, "LEASE_NUMBERS"),
            networks: take(&mut ebpf, "CLIENT_NETWORKS"),
            is_loaded: false,
            translator,
            ebpf,
        };
        let mut interfaces: Array<_, Record<Member>> = within(&mut nat64.ebpf, "INTERFACES");
        let member = Member {
            met_at: LOOPBACK,
            index: LOOPBACK,
            mtu: 65535,
            ..Member::default()
        };
        interfaces
            .set(member::slot(LOOPBACK, 0), Record(member), 0)
            .expect("the interfaces can be written");
        let mut inside: LpmTrie<_, [u8; 16], u32> = within(&mut nat64.ebpf, "INSIDE");
        for (bits, address) in [(64, INSIDE.octets()), (128, translator.own_v6)] {
            inside
                .insert(&Key::new(bits, address), 1, 0)
                .expect("the networks can be written");
        }
        nat64.set(translator);
        nat64
    }

    /// Lets the program translate something else.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn set(&mut self, translator: Translator) {
        let mut map: Array<_, Record<Translator>> = within(&mut self.ebpf, "TRANSLATOR");
        map.set(0, Record(translator), 0)
            .expect("the map can be written");
        self.translator = translator;
    }

    /// Gives a client an address for ever.
    ///
    /// # Panics
    ///
    /// If the maps cannot be written.
    pub fn fix(&mut self, address: Ipv4Addr, client: Ipv6Addr) {
        let (address, client) = (address.octets(), client.octets());
        let lease = Lease::fixed(client);
        let written = self.leases.insert(address, Record(lease), 0);
        let written = written.and_then(|()| self.clients.insert(client, address, 0));
        written.expect("the maps can be written");
    }

    /// The address that a client has, and its lease.
    #[must_use]
    pub fn lease(&self, client: Ipv6Addr) -> Option<(Ipv4Addr, Lease)> {
        let address = self.clients.get(&client.octets(), 0).ok()?;
        let lease = self.leases.get(&address, 0).ok()?;
        Some((address.into(), lease.0))
    }

    /// How many leases there are.
    ///
    /// # Panics
    ///
    /// If the map cannot be read.
    #[must_use]
    pub fn leases(&self) -> usize {
        let keys: Result<Vec<_>, _> = self.leases.keys().collect();
        keys.expect("no other process writes to the map").len()
    }

    /// Removes the lease of an address, and not what is known of its client.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn remove_lease(&mut self, address: Ipv4Addr) {
        let removed = self.leases.remove(&address.octets());
        removed.expect("the lease was there a moment ago");
    }

    /// Sets one of the numbers of leases.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn set_number(&mut self, number: Number, value: u32) {
        let set = self.numbers.set(number as u32, value, 0);
        set.expect("the numbers can be written");
    }

    /// Says how many leases of a client's network are gone.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn set_gone(&mut self, client: Ipv6Addr, gone: u32) {
        let key = NetworkKey::began(client.octets()).gone();
        let set = self.networks.insert(Record(key), gone, 0);
        set.expect("the numbers can be written");
    }

    /// Makes all leases so many ticks older.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn age(&mut self, ticks: u32) {
        let entries: Result<Vec<_>, MapError> = self.leases.iter().collect();
        for (key, Record(mut lease)) in entries.expect("no other process writes to the map") {
            lease.seen = lease.seen.wrapping_sub(ticks);
            let set = self.leases.insert(key, Record(lease), 0);
            set.expect("the lease was there a moment ago");
        }
    }

    /// The IPv6 address that stands for an IPv4 one.
    #[must_use]
    pub fn v6(&self, address: Ipv4Addr) -> IpAddr {
        IpAddr::V6(self.translator.prefix.embed(address.octets()).into())
    }

    /// Runs the program; what it returned, and the packet after it.
    ///
    /// # Panics
    ///
    /// If the verifier rejects the program, or the kernel does not take the packet.
    pub fn run(&mut self, packet: &[u8], skb: Skb) -> (u32, Vec<u8>) {
        let program = self.ebpf.program_mut("nat64_egress");
        let program = program.expect("the object has it");
        let program: &mut SchedClassifier = program.try_into().expect("a tc program");
        if !self.is_loaded {
            program
                .load()
                .unwrap_or_else(|error| panic!("cannot load nat64_egress: {error}"));
            self.is_loaded = true;
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
            panic!("the kernel does not run the program on {packet:02x?}: {error:?}")
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

    /// Begins a step: this packet is met.
    pub fn meets(&mut self, packet: impl Into<Vec<u8>>) -> Step<'_> {
        self.moved();
        Step {
            packet: packet.into(),
            skb: Skb::default(),
            nat64: self,
        }
    }
}

/// A packet at the hook.
#[must_use]
pub struct Step<'a> {
    nat64: &'a mut Nat64,
    packet: Vec<u8>,
    skb: Skb,
}

impl Step<'_> {
    /// It holds several segments of this size.
    pub const fn in_segments(mut self, size: u32) -> Self {
        self.skb.gso_size = size;
        self
    }

    /// It goes back as this one, and these are counted, once each.
    ///
    /// # Panics
    ///
    /// If anything else comes of it.
    #[track_caller]
    pub fn becomes(self, expected: impl Into<Vec<u8>>, counters: &[&str]) {
        let expected = expected.into();
        let made = self.made(counters);
        assert!(expected == made, "{}", diff::hexdump(&expected, &made));
    }

    /// It goes back as another one, which this returns, and these are counted, once each.
    ///
    /// # Panics
    ///
    /// If anything else comes of it.
    #[track_caller]
    pub fn made(self, counters: &[&str]) -> Vec<u8> {
        self.judge(Verdict::Redirect, counters)
    }

    /// It is dropped.
    ///
    /// # Panics
    ///
    /// If anything else comes of it.
    #[track_caller]
    pub fn is_dropped(self, outcome: Outcome) {
        self.judge(Verdict::Drop, &[outcome.name()]);
    }

    #[track_caller]
    fn judge(self, verdict: Verdict, counters: &[&str]) -> Vec<u8> {
        let (value, after) = self.nat64.run(&self.packet, self.skb);
        let moved = self.nat64.moved_by_packet(&after);
        let found = Verdict::of(Program::Egress, value);
        assert_eq!(found, Some(verdict), "verdict; counted {moved:?}");
        let expected = counters.iter().map(|name| (*name, 1)).collect();
        assert_eq!(moved, expected, "counted");
        after
    }
}
