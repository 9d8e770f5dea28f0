//! The maps of the kernel side, typed.

use std::collections::HashSet;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use aya::maps::{Array, HashMap, LpmTrie, Map, MapData, MapError, MapType, RingBuf};
use ipnet::IpNet;
use xdptun_common::address::ip_addr;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::ports::PORT_WORDS;
use xdptun_common::tunnel::config::{Phantuns, peer};
use xdptun_common::tunnel::group::Group;
use xdptun_common::tunnel::share::{Settled, Tally};
use xdptun_common::tunnel::state::Flow;

use crate::datapath::batch;
use crate::datapath::map::{Shape, Source, absent, take_map};
use crate::datapath::network::{NetworkKey, network_key};
use crate::datapath::pod::AsPod;
use crate::error::{Context as _, Result, bail};
use crate::host::ports::{PortRange, from_words, to_words};
use crate::tunnel::settings::Settings;

/// The maps that outlive the daemon.
pub struct Maps {
    group: Array<MapData, AsPod<Group>>,
    flows: HashMap<MapData, AsPod<FlowKey>, AsPod<Flow>>,
    /// The same map.
    table: OwnedFd,
    max_flows: u32,
    ports: Array<MapData, u64>,
    peers: LpmTrie<MapData, [u8; 16], u32>,
    /// Which peers are phantuns.
    phantuns: Phantuns,
    remotes: HashMap<MapData, [u8; 16], u32>,
    opened: Array<MapData, AsPod<Tally>>,
    settled: Array<MapData, AsPod<Settled>>,
    /// The events that the programs tell, as long as the daemon does not read them; none of
    /// pins.
    pub(super) events: Option<RingBuf<MapData>>,
}

/// Their names, as pins and in the object.
const GROUP: &str = "GROUP";
const FLOWS: &str = "FLOWS";
const PORTS: &str = "PORTS";
const PEERS: &str = "PEERS";
const REMOTES: &str = "REMOTES";
const OPENED: &str = "OPENED";
const SETTLED: &str = "SETTLED";
const EVENTS: &str = "EVENTS";

/// Pinned only if there is a secret: the last proofs, and all that were seen.
pub const PROOFS: [&str; 2] = ["PROOFS", "SEEN"];

/// The pinned maps beside [those of any function](crate::datapath::engine_maps::NAMES): a later process
/// reads them, or goes on with them.
pub const PINNED: [&str; 11] = [
    GROUP,
    FLOWS,
    PORTS,
    PEERS,
    REMOTES,
    OPENED,
    SETTLED,
    EVENTS,
    "RATE_LIMITS",
    "FRAGMENTS",
    "CALLS",
];

impl Maps {
    /// The maps of this source.
    ///
    /// # Errors
    ///
    /// If one is missing or not what its name says.
    pub fn open(source: &mut Source<'_>) -> Result<Self> {
        let flows = source.map(FLOWS, Shape::hash::<FlowKey, Flow>())?;
        let Map::HashMap(data) = &flows else {
            bail!(Other, "{FLOWS} is not a hash map");
        };
        let table = data.fd().as_fd().try_clone_to_owned()?;
        let max_flows = data.info()?.max_entries();
        let peers = Shape(MapType::LpmTrie, size_of::<NetworkKey>(), size_of::<u32>());
        let events = match source {
            Source::Object(ebpf) => Some(take_map(ebpf, EVENTS)?.try_into()?),
            Source::Pins(_) => None,
        };
        let mut map = |name, shape| source.map(name, shape);
        Ok(Self {
            group: map(GROUP, Shape::array::<Group>())?.try_into()?,
            flows: flows.try_into()?,
            table,
            max_flows,
            ports: map(PORTS, Shape::array::<u64>())?.try_into()?,
            peers: map(PEERS, peers)?.try_into()?,
            phantuns: Phantuns::None,
            remotes: map(REMOTES, Shape::hash::<[u8; 16], u32>())?.try_into()?,
            opened: map(OPENED, Shape::array::<Tally>())?.try_into()?,
            settled: map(SETTLED, Shape::array::<Settled>())?.try_into()?,
            events,
        })
    }

    /// What the interfaces of the group have in common.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn group(&self) -> Result<Group> {
        read_group(&self.group)
    }

    /// Writes what the interfaces of the group have in common.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn set_group(&mut self, group: Group) -> Result<(), MapError> {
        self.group.set(0, AsPod(group), 0)
    }

    /// Every flow. A flow that comes or goes meanwhile may be left out.
    ///
    /// # Errors
    ///
    /// If the table cannot be read.
    pub fn flows(&self) -> Result<Vec<(FlowKey, Flow)>> {
        batch::entries(&self.table).context("cannot read the flow table")
    }

    /// One flow, if it is in the table.
    ///
    /// # Errors
    ///
    /// If the table cannot be read.
    pub fn flow(&self, key: &FlowKey) -> Result<Option<Flow>, MapError> {
        absent(self.flows.get(&AsPod(*key), 0).map(|flow| flow.0))
    }

    /// Removes a flow, and tells what it was at that moment; none if it is gone already.
    ///
    /// # Errors
    ///
    /// If the table cannot be written.
    pub fn take_flow(&mut self, key: &FlowKey) -> Result<Option<Flow>> {
        batch::take(&self.table, key).context("cannot write the flow table")
    }

    /// Puts a flow back that was taken, unless there is another one in its place.
    ///
    /// # Errors
    ///
    /// If the table cannot be written.
    pub fn put_back(&mut self, key: &FlowKey, flow: &Flow) -> Result<()> {
        const NOEXIST: u64 = 1;
        match self.flows.insert(AsPod(*key), AsPod(*flow), NOEXIST) {
            Err(MapError::SyscallError(error))
                if error.io_error.raw_os_error() == Some(libc::EEXIST) =>
            {
                Ok(())
            }
            put => put.context("cannot write the flow table"),
        }
    }

    /// The addresses that flows were established with.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn remotes(&self) -> Result<Vec<[u8; 16]>, MapError> {
        self.remotes.keys().collect()
    }

    /// Removes those of `remotes` that no flow of `flows` leads to. `flows` must have been
    /// read after `remotes`: the programs make a flow first and note its address then.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn remove_unused_remotes(
        &mut self,
        remotes: &[[u8; 16]],
        flows: &[(FlowKey, Flow)],
    ) -> Result<(), MapError> {
        let used: HashSet<[u8; 16]> = flows.iter().map(|(key, _)| key.remote_address()).collect();
        let unused = remotes.iter().filter(|address| !used.contains(*address));
        for address in unused {
            absent(self.remotes.remove(address))?;
        }
        Ok(())
    }

    /// Sets the owned ports.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn set_ports(&mut self, ports: &[PortRange]) -> Result<(), MapError> {
        (0..)
            .zip(to_words(ports))
            .try_for_each(|(index, word)| self.ports.set(index, word, 0))
    }

    /// The owned ports.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn ports(&self) -> Result<Vec<PortRange>, MapError> {
        let words: Result<Vec<u64>, MapError> = (0..PORT_WORDS)
            .map(|index| self.ports.get(&index, 0))
            .collect();
        Ok(from_words(&words?))
    }

    /// Adds networks of peers, and notes which of them are phantuns.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn add_peers(&mut self, settings: &Settings) -> Result<()> {
        self.phantuns = settings.phantuns.choice();
        for peer in &settings.peers {
            let kind = settings.phantuns.kind_of(peer);
            self.peers.insert(&network_key(*peer), kind, 0)?;
        }
        Ok(())
    }

    /// Whether the peer of a flow is a phantun. If the map cannot be read, it is none.
    #[must_use]
    pub fn leads_to_phantun(&self, flow: &FlowKey) -> bool {
        match self.phantuns {
            Phantuns::None => false,
            Phantuns::All => true,
            Phantuns::Some => {
                let address = NetworkKey::new(u128::BITS, flow.remote_address());
                self.peers.get(&address, 0).ok() == Some(peer::PHANTUN)
            }
        }
    }

    /// Removes all networks of peers but these.
    ///
    /// # Errors
    ///
    /// If the map cannot be read or written.
    pub fn retain_peers(&mut self, peers: &[IpNet]) -> Result<()> {
        let retained = |key: &NetworkKey| {
            peers.iter().map(|peer| network_key(*peer)).any(|wanted| {
                wanted.prefix_len() == key.prefix_len() && wanted.data() == key.data()
            })
        };
        let present: Vec<_> = self.peers.keys().collect::<Result<_, _>>()?;
        let mut others = present.iter().filter(|key| !retained(key));
        Ok(others.try_for_each(|key| self.peers.remove(key))?)
    }

    /// Capacity of the flow table.
    #[must_use]
    pub const fn max_flows(&self) -> u32 {
        self.max_flows
    }

    /// The networks of peers; empty if every address is one.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn peers(&self) -> Result<Vec<IpNet>> {
        self.peers
            .keys()
            .map(|key| {
                let key = key?;
                let prefix_len = key.prefix_len();
                Ok(match ip_addr(key.data()) {
                    IpAddr::V4(address) if prefix_len >= 96 => {
                        IpNet::new(address.into(), (prefix_len - 96) as u8)?
                    }
                    _ => IpNet::new(
                        std::net::Ipv6Addr::from(key.data()).into(),
                        prefix_len as u8,
                    )?,
                })
            })
            .collect()
    }

    /// How many flows the programs have made and answered.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn opened(&self) -> Result<Tally, MapError> {
        Ok(self.opened.get(&0, 0)?.0)
    }

    /// Notes how far these numbers are off by now.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn settle(&mut self, settled: Settled) -> Result<(), MapError> {
        self.settled.set(0, AsPod(settled), 0)
    }
}

/// What the interfaces of the group whose pins are in `directory` have in common.
///
/// # Errors
///
/// If the map cannot be read.
pub fn group(directory: &Path) -> Result<Group> {
    let group = Source::Pins(directory).map(GROUP, Shape::array::<Group>())?;
    read_group(&group.try_into()?)
}

fn read_group(group: &Array<MapData, AsPod<Group>>) -> Result<Group> {
    let group = group.get(&0, 0);
    Ok(group.context("cannot read what is attached")?.0)
}
