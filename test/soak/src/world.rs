//! The network with its peers, traffic and wires.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use xdptun_lab::seeded::Random;
use xdptun_lab::topology::Router;
use xdptun_lab::{Routed, path, wait};
use xdptun_test_net::{mode, status};

use crate::journal::{Flaw, Journal};
use crate::ledger::Ledger;
use crate::peer::{OFFLOADS, Peer};
use crate::traffic::{Client, Server};
use crate::wire::{Seen, Wires};

/// Clients behind the router.
pub const CLIENTS: u8 = 2;

/// How long after the last datagram the last flow is gone: the idle time, and
/// what opening or ending may take.
const EXPIRED: Duration = Duration::from_secs(45);

/// The results that a world leaves.
#[derive(Debug)]
pub struct Ended {
    /// The frames that crossed the router, by interface.
    pub wires: BTreeMap<String, Seen>,
    /// The most that a daemon grew by.
    pub growth_kib: u64,
}

/// Everything that a disturbance can meet. Fields are dropped in this order:
/// traffic ends before it could be seen undisguised.
#[derive(Debug)]
pub struct World {
    /// The clients: they ask.
    pub clients: Vec<Client>,
    _server: Server,
    /// The datagrams that were sent and arrived.
    pub ledger: Arc<Ledger>,
    /// Captures of the router's interfaces.
    pub wires: Wires,
    /// The hosts of the clients, then the server's.
    pub peers: Vec<Peer>,
    /// The network.
    pub net: Routed,
}

impl World {
    /// Makes the network, attaches everywhere, and begins to ask.
    pub fn new(seed: u64, ledger: &Arc<Ledger>) -> Result<Self> {
        let journal = &ledger.journal;
        let net = Routed::with_clients(CLIENTS)?;
        let hosts = net.clients.iter().chain([&net.server]);
        let names = (0..CLIENTS).map(|number| format!("client {number}"));
        let peers = names.chain(["server".to_owned()]).zip(hosts);
        let peers: Result<Vec<_>> = peers
            .map(|(name, host)| Peer::new(name, host, mode::TC, journal))
            .collect();
        let peers = peers?;
        let devs = devs(&net);
        path::add_slow_lane(&net.router.netns, devs.iter().map(String::as_str))?;
        let wires = Wires::watch(&net, &devs)?;
        let gate = &peers[usize::from(CLIENTS)].gate;
        let server = Server::start(
            &net.server,
            gate,
            |family| net.router.address(family),
            ledger,
        )?;
        let clients = (1..).zip(net.clients.iter().zip(&peers));
        let clients: Result<Vec<_>> = clients
            .map(|(stream, (host, peer))| {
                let random = Random::new(seed, stream, 0);
                Client::start(host, &net.server, &peer.gate, random, ledger)
            })
            .collect();
        Ok(Self {
            clients: clients?,
            _server: server,
            ledger: Arc::clone(ledger),
            wires,
            peers,
            net,
        })
    }

    /// The interfaces of the router.
    pub fn devs(&self) -> Vec<String> {
        devs(&self.net)
    }

    /// Waits until every flow of every host is gone.
    pub fn expire(&self, journal: &Journal) {
        for peer in &self.peers {
            let mut left = Vec::new();
            let gone = wait::until_some(EXPIRED, "all flows to expire", || {
                left = status::flows(&peer.host.netns)?;
                Ok(left.is_empty().then_some(()))
            });
            let gone =
                gone.with_context(|| format!("{}: {} flows, {left:#?}", peer.name, left.len()));
            journal.check(Flaw::Flows, peer.explain(gone));
        }
    }

    /// Detaches everywhere, and looks for remains.
    pub fn end(self, journal: &Journal) -> Result<Ended> {
        let Self {
            clients,
            _server,
            ledger: _,
            wires,
            mut peers,
            net: _net,
        } = self;
        drop((clients, _server));
        for peer in &mut peers {
            peer.detach()?;
        }
        let wires = wires.stop(journal);
        for peer in &peers {
            for feature in OFFLOADS {
                peer.host.offload(feature, true)?;
            }
        }
        // Native XDP at one end changes features of the other, so all are looked
        // at when all are detached.
        for peer in &peers {
            if let Some(text) = peer.remains()? {
                journal.find(Flaw::Remains, &text);
            }
        }
        Ok(Ended {
            wires,
            growth_kib: peers.iter().map(|peer| peer.growth_kib).max().unwrap_or(0),
        })
    }
}

fn devs(net: &Routed) -> Vec<String> {
    let lans = (0..net.clients.len()).map(Router::lan);
    lans.chain([Router::WAN.to_owned()]).collect()
}
