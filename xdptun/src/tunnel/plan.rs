//! The plan of a group of interfaces: what the configuration asks for.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use xdptun_common::tunnel::proof::KeySet;

use super::daemon::Timers;
use super::keys::Keys;
use super::resolve::{self, Addresses, Names};
use super::secret::{self, InterfaceKeys};
use super::settings::{PhantunPeers, Settings};
use crate::config::{Compat, InterfaceConfig, Peer, PeerConfig, TcChoice, peers_fit};
use crate::error::Result;
use crate::group::{Options, Trace};
use crate::host::preflight;

/// The plan of a group of interfaces. Two plans are equal if they come from the same configuration,
/// even if host names in it resolve to other addresses by now.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What to attach, without the peers given by host name.
    options: Options<Settings>,
    /// The addresses of these peers.
    addresses: Addresses,
    /// Their keys, if one of the peers has a secret of its own.
    name_keys: BTreeMap<String, KeySet>,
    /// Those among them that are phantuns.
    name_phantuns: BTreeSet<String>,
    /// Timers of its flows.
    pub(super) timers: Timers,
}

impl PartialEq for Plan {
    fn eq(&self, other: &Self) -> bool {
        self.options == other.options
            && self.addresses.keys().eq(other.addresses.keys())
            && self.name_keys == other.name_keys
            && self.name_phantuns == other.name_phantuns
            && self.timers == other.timers
    }
}

impl Plan {
    /// What `config` asks for; `names` are those among its peers.
    ///
    /// # Errors
    ///
    /// Of these [kinds](crate::error::Kind):
    ///
    /// * `Invalid`: there are too many peers, or too many different secrets;
    /// * `Secret`: a secret cannot be read, or is too short;
    /// * `Unsupported`: the kernel is too old for this configuration, or for any;
    /// * `Permission`: this process lacks a capability.
    pub fn new(config: &InterfaceConfig, names: &Names, trace: Trace) -> Result<Self> {
        preflight::check()?;
        if config.tc == TcChoice::Tcx {
            preflight::check_tcx()?;
        }
        if config.secret.is_some() {
            preflight::check_tai()?;
        }
        if config.veil.is_some() {
            preflight::check_btf()?;
        }
        let networks = config.peers().filter_map(|peer| match peer {
            Peer::Net(network) => Some(*network),
            Peer::Host(_) => None,
        });
        let networks: Vec<IpNet> = networks.collect();
        let addresses = names.addresses();
        let found = addresses.values().flatten().count();
        peers_fit(networks.len() + found)?;
        let (mut keys, mut name_keys) = (None, BTreeMap::new());
        if let Some(InterfaceKeys { everyone, peers }) = secret::read_all(config)? {
            let of = keys.insert(Keys::from(everyone));
            for (peer, set) in peers {
                match peer {
                    Peer::Net(network) => drop(of.of.insert(network, set)),
                    Peer::Host(name) => drop(name_keys.insert(name, set)),
                }
            }
        }
        let (phantuns, name_phantuns) = phantuns(config);
        Ok(Self {
            options: Options {
                ingress: config.ingress,
                gro: config.gro,
                tc: config.tc,
                trace,
                record: None,
                settings: Settings {
                    ports: config.ports.clone(),
                    peers: networks,
                    only_peers: !config.peers.is_empty(),
                    phantuns,
                    max_flows: config.max_flows.get(),
                    keys,
                    veil: config.veil,
                },
            },
            addresses,
            name_keys,
            name_phantuns,
            timers: Timers {
                keepalive: config.keepalive.into(),
                idle: config.idle_timeout.into(),
            },
        })
    }

    /// Uses these addresses of peers that are given by host name.
    pub fn set_addresses(&mut self, addresses: Addresses) {
        self.addresses = addresses;
    }

    /// What to attach. As long as a host name is not resolved, every address counts as a
    /// peer: else datagrams to that peer would leave undisguised. Only known addresses have
    /// keys of their own.
    #[must_use]
    pub fn options(&self) -> Options<Settings> {
        let mut options = self.options.clone();
        let settings = &mut options.settings;
        if let Some(keys) = &mut settings.keys {
            for (name, set) in &self.name_keys {
                for address in self.addresses.get(name).into_iter().flatten() {
                    // A name server must not change the keys of an address that the
                    // file names.
                    keys.of.entry(*address).or_insert(*set);
                }
            }
        }
        for name in &self.name_phantuns {
            let addresses = self.addresses.get(name).into_iter().flatten();
            // A name server must not change what runs at an address that the file names.
            let others = addresses.filter(|one| !settings.peers.contains(one));
            settings.phantuns.networks.extend(others);
        }
        match resolve::all(&self.addresses) {
            Some(addresses) => settings.peers.extend(addresses),
            None => {
                // Those are phantuns all the same.
                settings.peers.clone_from(&settings.phantuns.networks);
                settings.only_peers = false;
            }
        }
        options
    }
}

/// The peers that run phantun, and those of them that are given by host name.
fn phantuns(config: &InterfaceConfig) -> (PhantunPeers, BTreeSet<String>) {
    let mut phantuns = PhantunPeers {
        all: !config.peers_run(Compat::Xdptun),
        some: config.peers_run(Compat::Phantun),
        networks: Vec::new(),
    };
    let mut names = BTreeSet::new();
    let runs_phantun = |one: &&PeerConfig| one.compat.unwrap_or(config.compat) == Compat::Phantun;
    for one in config.peers.iter().filter(runs_phantun) {
        match &one.peer {
            Peer::Net(network) => phantuns.networks.push(*network),
            Peer::Host(name) => drop(names.insert(name.clone())),
        }
    }
    (phantuns, names)
}

#[cfg(test)]
mod tests {
    use xdptun_common::tunnel::config::{Phantuns, peer};

    use super::*;
    use crate::config::Config;

    #[test]
    fn a_peer_may_run_something_else_than_the_others() {
        let of = |keys: &str| {
            let text = format!("[interface.eth0]\nports = [1]\n{keys}");
            phantuns(&Config::parse(&text).unwrap().interfaces["eth0"])
        };
        assert_eq!(of("").0.choice(), Phantuns::None);
        assert_eq!(of("peers = [\"10.0.0.1\"]").0.choice(), Phantuns::None);
        assert_eq!(of("compat = \"phantun\"").0.choice(), Phantuns::All);
        let all = of("compat = \"phantun\"\npeers = [\"10.0.0.1\"]").0;
        assert_eq!(all.choice(), Phantuns::All);
        let [one, other]: [IpNet; 2] =
            ["10.0.0.1/32", "10.0.0.2/32"].map(|net| net.parse().unwrap());
        for keys in [
            "peers = [{ peer = \"10.0.0.1\", compat = \"phantun\" }, \"10.0.0.2\", \
             { peer = \"gateway.example\", compat = \"phantun\" }]",
            "compat = \"phantun\"\npeers = [\"10.0.0.1\", \"gateway.example\", \
             { peer = \"10.0.0.2\", compat = \"xdptun\" }]",
        ] {
            let (some, names) = of(keys);
            assert_eq!(some.choice(), Phantuns::Some, "{keys}");
            assert_eq!(some.kind_of(&one), peer::PHANTUN, "{keys}");
            assert_eq!(some.kind_of(&other), peer::XDPTUN, "{keys}");
            assert!(names.iter().eq(["gateway.example"]), "{keys}");
        }
    }
}
