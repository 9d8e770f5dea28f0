//! The plan of a group of interfaces: what the configuration asks for.

use std::collections::BTreeMap;

use ipnet::IpNet;
use xdptun_common::tunnel::proof::KeySet;

use super::daemon::Timers;
use super::keys::Keys;
use super::resolve::{self, Addresses, Names};
use super::secret::{self, InterfaceKeys};
use super::settings::Settings;
use crate::config::{InterfaceConfig, Peer, TcChoice, peers_fit};
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
    /// Timers of its flows.
    pub(super) timers: Timers,
}

impl PartialEq for Plan {
    fn eq(&self, other: &Self) -> bool {
        self.options == other.options
            && self.addresses.keys().eq(other.addresses.keys())
            && self.name_keys == other.name_keys
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
                    max_flows: config.max_flows.get(),
                    keys,
                },
            },
            addresses,
            name_keys,
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
        match resolve::all(&self.addresses) {
            Some(addresses) => settings.peers.extend(addresses),
            None => {
                settings.peers.clear();
                settings.only_peers = false;
            }
        }
        options
    }
}
