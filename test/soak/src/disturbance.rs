//! What goes wrong, and in which order.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use xdptun_lab::dice::Dice;
use xdptun_lab::topology::Router;
use xdptun_lab::{Host, Netns, link};
use xdptun_test_net::mode::{self, Mode};

use crate::forgery::{self, Burst};
use crate::world::World;

/// Ports that a router gives at a time, and where they begin.
const PORTS: u16 = 1000;
const FIRST_PORTS: [u16; 5] = [20_000, 25_000, 30_000, 40_000, 50_000];

/// Offloads that are switched.
pub const OFFLOADS: [&str; 2] = ["tx", "rx"];

/// The largest burst of forged segments.
const FORGED: usize = 2000;

/// Kinds of disturbances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The router forgets all connections.
    ConntrackFlushed,
    /// The same, and then gives other ports.
    PortsRebound,
    /// A client has new sockets while the router lets no SYN pass.
    SynBlocked,
    /// An interface of the router is down for a while.
    RouterLinkDown,
    /// A client's interface is down for a while.
    ClientLinkDown,
    /// The server's interface is down for a while.
    ServerLinkDown,
    /// xdptun ends and starts anew, without memory.
    Restarted,
    /// The daemon is killed, and started again.
    DaemonKilled,
    /// A new daemon takes over from the one that runs.
    DaemonReplaced,
    /// Somebody forges segments of the flows.
    SegmentsForged,
    /// Checksum offloads of a host are switched.
    OffloadSwitched,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::ConntrackFlushed,
        Self::PortsRebound,
        Self::SynBlocked,
        Self::RouterLinkDown,
        Self::ClientLinkDown,
        Self::ServerLinkDown,
        Self::Restarted,
        Self::DaemonKilled,
        Self::DaemonReplaced,
        Self::SegmentsForged,
        Self::OffloadSwitched,
    ];

    /// The kind of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// As it is called in reports; the names do not change.
    pub fn name(self) -> &'static str {
        match self {
            Self::ConntrackFlushed => "conntrack_flushed",
            Self::PortsRebound => "ports_rebound",
            Self::SynBlocked => "syn_blocked",
            Self::RouterLinkDown => "router_link_down",
            Self::ClientLinkDown => "client_link_down",
            Self::ServerLinkDown => "server_link_down",
            Self::Restarted => "restarted",
            Self::DaemonKilled => "daemon_killed",
            Self::DaemonReplaced => "daemon_replaced",
            Self::SegmentsForged => "segments_forged",
            Self::OffloadSwitched => "offload_switched",
        }
    }
}

/// One disturbance, with all that was drawn for it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the kinds say what the fields are")]
pub enum Disturbance {
    ConntrackFlushed,
    PortsRebound {
        ports: RangeInclusive<u16>,
    },
    SynBlocked {
        client: usize,
        pause: Duration,
    },
    RouterLinkDown {
        dev: String,
        pause: Duration,
    },
    ClientLinkDown {
        client: usize,
        pause: Duration,
    },
    ServerLinkDown {
        pause: Duration,
    },
    Restarted {
        peer: usize,
        pause: Duration,
        mode: Mode,
    },
    DaemonKilled {
        peer: usize,
        pause: Duration,
    },
    DaemonReplaced {
        peer: usize,
    },
    SegmentsForged(Burst),
    OffloadSwitched {
        peer: usize,
        feature: &'static str,
        on: bool,
    },
}

/// Draws disturbances: every kind once in each round, in a new order each time.
#[derive(Debug)]
pub struct Deck {
    dice: Dice,
    clients: usize,
    kinds: Vec<Kind>,
    round: Vec<Kind>,
}

impl Deck {
    /// The order that belongs to a seed; all kinds if none are given.
    pub fn new(seed: u64, clients: usize, kinds: &[Kind]) -> Self {
        let kinds = if kinds.is_empty() { &Kind::ALL } else { kinds };
        Self {
            dice: Dice::new(seed, 0, 0),
            clients,
            kinds: kinds.to_vec(),
            round: Vec::new(),
        }
    }

    /// The quiet time before the next one, and that.
    pub fn draw(&mut self) -> (Duration, Disturbance) {
        if self.round.is_empty() {
            self.round.clone_from(&self.kinds);
        }
        let kind = self.round.swap_remove(self.dice.below(self.round.len()));
        let quiet = self.millis(200, 1500);
        (quiet, self.details(kind))
    }

    fn details(&mut self, kind: Kind) -> Disturbance {
        // The server is the last of the peers.
        let peers = self.clients + 1;
        match kind {
            Kind::ConntrackFlushed => Disturbance::ConntrackFlushed,
            Kind::PortsRebound => {
                let first = self.dice.pick(&FIRST_PORTS);
                Disturbance::PortsRebound {
                    ports: first..=first + PORTS - 1,
                }
            }
            Kind::SynBlocked => Disturbance::SynBlocked {
                client: self.dice.below(self.clients),
                pause: self.millis(1000, 5000),
            },
            Kind::RouterLinkDown => Disturbance::RouterLinkDown {
                dev: match self.dice.below(peers) {
                    number if number < self.clients => Router::lan(number),
                    _ => Router::WAN.to_owned(),
                },
                pause: self.millis(1000, 3000),
            },
            Kind::ClientLinkDown => Disturbance::ClientLinkDown {
                client: self.dice.below(self.clients),
                pause: self.millis(100, 1500),
            },
            Kind::ServerLinkDown => Disturbance::ServerLinkDown {
                pause: self.millis(100, 1500),
            },
            Kind::Restarted => Disturbance::Restarted {
                peer: self.dice.below(peers),
                pause: self.millis(0, 1500),
                mode: self.dice.pick(&mode::ALL),
            },
            Kind::DaemonKilled => Disturbance::DaemonKilled {
                peer: self.dice.below(peers),
                pause: self.millis(0, 1500),
            },
            Kind::DaemonReplaced => Disturbance::DaemonReplaced {
                peer: self.dice.below(peers),
            },
            Kind::SegmentsForged => Disturbance::SegmentsForged(Burst {
                kind: self.dice.pick(&forgery::Kind::ALL),
                to_server: self.dice.once_in(2),
                count: self.dice.between(1, FORGED),
                seed: self.dice.number().into(),
            }),
            Kind::OffloadSwitched => Disturbance::OffloadSwitched {
                peer: self.dice.below(peers),
                feature: self.dice.pick(&OFFLOADS),
                on: self.dice.once_in(2),
            },
        }
    }

    fn millis(&mut self, least: usize, most: usize) -> Duration {
        Duration::from_millis(self.dice.between(least, most) as u64)
    }
}

impl Disturbance {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::ConntrackFlushed => Kind::ConntrackFlushed,
            Self::PortsRebound { .. } => Kind::PortsRebound,
            Self::SynBlocked { .. } => Kind::SynBlocked,
            Self::RouterLinkDown { .. } => Kind::RouterLinkDown,
            Self::ClientLinkDown { .. } => Kind::ClientLinkDown,
            Self::ServerLinkDown { .. } => Kind::ServerLinkDown,
            Self::Restarted { .. } => Kind::Restarted,
            Self::DaemonKilled { .. } => Kind::DaemonKilled,
            Self::DaemonReplaced { .. } => Kind::DaemonReplaced,
            Self::SegmentsForged(_) => Kind::SegmentsForged,
            Self::OffloadSwitched { .. } => Kind::OffloadSwitched,
        }
    }

    /// Lets it happen; returns when the path is as it should be again.
    pub fn apply(&self, world: &mut World) -> Result<()> {
        let net = &world.net;
        match self {
            Self::ConntrackFlushed => {
                world.ledger.ports_change_hands();
                net.router.forget()
            }
            Self::PortsRebound { ports } => {
                world.ledger.ports_change_hands();
                net.router.masquerade_to(ports)?;
                net.router.forget()
            }
            Self::SynBlocked { client, pause } => {
                net.router.hold(&[Router::SYN])?;
                // Their flows have yet to open.
                world.clients[*client].renew()?;
                thread::sleep(*pause);
                net.router.release()
            }
            Self::RouterLinkDown { dev, pause } => {
                // Masquerading forgets with the interface.
                world.ledger.ports_change_hands();
                interrupt(&net.router.netns, dev, *pause)
            }
            Self::ClientLinkDown { client, pause } => {
                interrupt(&net.clients[*client].netns, Host::DEV, *pause)
            }
            Self::ServerLinkDown { pause } => interrupt(&net.server.netns, Host::DEV, *pause),
            Self::Restarted { peer, pause, mode } => {
                let peer = &mut world.peers[*peer];
                let gate = Arc::clone(&peer.gate);
                // Without xdptun the host would send plain UDP.
                let _closed = gate.close();
                peer.detach()?;
                thread::sleep(*pause);
                peer.attach(*mode)
            }
            Self::DaemonKilled { peer, pause } => {
                let peer = &mut world.peers[*peer];
                peer.kill()?;
                thread::sleep(*pause);
                peer.revive()
            }
            Self::DaemonReplaced { peer } => world.peers[*peer].replace(),
            Self::SegmentsForged(burst) => burst.send(net),
            Self::OffloadSwitched { peer, feature, on } => {
                world.peers[*peer].host.offload(feature, *on)
            }
        }
    }
}

/// Takes an interface down for a while.
fn interrupt(netns: &Netns, dev: &str, pause: Duration) -> Result<()> {
    let down = link::down(netns, dev)?;
    thread::sleep(pause);
    down.up()
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().name())?;
        match self {
            Self::ConntrackFlushed => Ok(()),
            Self::PortsRebound { ports } => write!(f, " to {ports:?}"),
            Self::SynBlocked { client, pause } | Self::ClientLinkDown { client, pause } => {
                write!(f, " client {client} for {pause:?}")
            }
            Self::RouterLinkDown { dev, pause } => write!(f, " {dev} for {pause:?}"),
            Self::ServerLinkDown { pause } => write!(f, " for {pause:?}"),
            Self::Restarted { peer, pause, mode } => write!(
                f,
                " peer {peer} after {pause:?}, --ingress {} --tc {}",
                mode.ingress, mode.tc
            ),
            Self::DaemonKilled { peer, pause } => write!(f, " peer {peer} after {pause:?}"),
            Self::DaemonReplaced { peer } => write!(f, " peer {peer}"),
            Self::SegmentsForged(burst) => {
                let to = if burst.to_server { "server" } else { "clients" };
                write!(f, " {} {:?} to the {to}", burst.count, burst.kind)
            }
            Self::OffloadSwitched { peer, feature, on } => {
                let on = if *on { "on" } else { "off" };
                write!(f, " peer {peer} {feature} {on}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(seed: u64) -> Vec<(Duration, Disturbance)> {
        let mut deck = Deck::new(seed, 2, &[]);
        (0..40).map(|_| deck.draw()).collect()
    }

    #[test]
    fn a_seed_always_gives_the_same_order() {
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }

    #[test]
    fn every_round_has_every_kind() {
        for round in first(3).chunks_exact(Kind::ALL.len()) {
            let mut kinds: Vec<_> = round.iter().map(|(_, one)| one.kind()).collect();
            kinds.sort();
            assert_eq!(kinds, Kind::ALL);
        }
    }
}
