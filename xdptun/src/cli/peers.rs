//! Which flows are shown: those with some peers, or all.

use std::net::ToSocketAddrs as _;

use anyhow::{Context as _, Result};
use clap::Args;
use ipnet::IpNet;

use crate::config::Peer;
use crate::observe::status::FlowStatus;

/// The peers that were named.
#[derive(Args)]
pub struct WithPeers {
    /// Show only flows with this peer (address, CIDR or host name); may be repeated.
    #[arg(long, value_name = "PEER", value_delimiter = ',')]
    peer: Vec<Peer>,
}

impl WithPeers {
    /// The flows to show. Looks names up, once.
    pub fn wanted(&self) -> Result<Wanted> {
        let mut networks = Vec::new();
        for peer in &self.peer {
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
        Ok(Wanted(networks))
    }
}

/// Networks whose flows are shown; if there are none, all flows.
pub struct Wanted(Vec<IpNet>);

impl Wanted {
    /// Whether a flow is shown.
    pub fn has(&self, flow: &FlowStatus) -> bool {
        let remote = flow.remote.ip();
        self.0.is_empty() || self.0.iter().any(|network| network.contains(&remote))
    }
}
