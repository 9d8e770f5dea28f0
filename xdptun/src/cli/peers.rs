//! The option `--peer`: which flows and sessions are listed.

use std::net::{IpAddr, ToSocketAddrs as _};

use anyhow::{Context as _, Result};
use clap::Args;
use ipnet::IpNet;

use crate::config::Peer;

/// The peers that were named.
#[derive(Args)]
pub struct PeerOption {
    /// List only flows, or sessions, with this peer (address, CIDR or host name); may be repeated.
    #[arg(long = "peer", value_name = "PEER", value_delimiter = ',')]
    peers: Vec<Peer>,
}

impl PeerOption {
    /// The addresses of the peers; `None` if none was named. Names are looked up now, once.
    pub fn look_up(&self) -> Result<Option<PeerFilter>> {
        let mut networks = Vec::new();
        for peer in &self.peers {
            match peer {
                Peer::Net(network) => networks.push(*network),
                Peer::Host(name) => {
                    let found = (name.as_str(), 0).to_socket_addrs();
                    let found =
                        found.with_context(|| format!("--peer {name}: no address is known"))?;
                    networks.extend(found.map(|address| IpNet::from(address.ip())));
                }
            }
        }
        Ok((!self.peers.is_empty()).then_some(PeerFilter(networks)))
    }
}

/// The networks of some peers.
pub struct PeerFilter(Vec<IpNet>);

impl PeerFilter {
    /// Whether an address is that of one of the peers.
    pub fn has(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }
}
