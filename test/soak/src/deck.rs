//! The order of the disturbances.

use std::time::Duration;

use xdptun_lab::seeded::Random;
use xdptun_lab::topology::Router;
use xdptun_test_net::mode;

use crate::disturbance::{Disturbance, Kind};
use crate::forgery::{self, Burst};
use crate::peer::OFFLOADS;

/// Ports that a router gives at a time, and where they begin.
const PORTS: u16 = 1000;
const FIRST_PORTS: [u16; 5] = [20_000, 25_000, 30_000, 40_000, 50_000];

/// The largest burst of forged segments.
const FORGED: usize = 2000;

/// MTUs of what is narrow for a while. Few of the datagrams that are sent anyway are too
/// large for the first, so that a client would not learn of it; IPv6 has no smaller ones
/// than the last.
const NARROW: [u32; 4] = [1360, 1340, 1301, 1292];

/// Host numbers that a client has in turn.
const HOSTS: [u8; 3] = [77, 200, 2];

/// How much time there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Things take their time, as on a bad day.
    Natural,
    /// Everything in a quarter of it.
    Brisk,
}

/// Draws disturbances: every kind once in each round, in a new order each time.
#[derive(Debug)]
pub struct Deck {
    random: Random,
    clients: usize,
    kinds: Vec<Kind>,
    round: Vec<Kind>,
    pace: Pace,
    /// Where each client is on its way through [`HOSTS`].
    moves: Vec<usize>,
}

impl Deck {
    /// The order that belongs to a seed; all kinds if none are given.
    pub fn new(seed: u64, clients: usize, kinds: &[Kind], pace: Pace) -> Self {
        let kinds = match kinds {
            [] => Kind::ALL.to_vec(),
            kinds => kinds.to_vec(),
        };
        Self {
            random: Random::new(seed, 0, 0),
            clients,
            kinds,
            round: Vec::new(),
            pace,
            moves: vec![0; clients],
        }
    }

    /// How many disturbances a round has.
    pub fn round_len(&self) -> usize {
        self.kinds.len()
    }

    /// The quiet time before the next one, and that.
    pub fn draw(&mut self) -> (Duration, Disturbance) {
        if self.round.is_empty() {
            self.round.clone_from(&self.kinds);
        }
        let kind = self.round.swap_remove(self.random.below(self.round.len()));
        let quiet = self.millis(200, 1500);
        (quiet, self.details(kind))
    }

    fn details(&mut self, kind: Kind) -> Disturbance {
        match kind {
            Kind::ConntrackFlushed => Disturbance::ConntrackFlushed,
            Kind::PortsRebound => self.ports_rebound(),
            Kind::SynBlocked => Disturbance::SynBlocked {
                client: self.client(),
                pause: self.millis(1000, 5000),
            },
            Kind::RouterLinkDown => Disturbance::RouterLinkDown {
                dev: self.router_dev(),
                pause: self.millis(1000, 3000),
            },
            Kind::ClientLinkDown => Disturbance::ClientLinkDown {
                client: self.client(),
                pause: self.millis(100, 1500),
            },
            Kind::ServerLinkDown => Disturbance::ServerLinkDown {
                pause: self.millis(100, 1500),
            },
            Kind::Restarted => Disturbance::Restarted {
                peer: self.peer(),
                pause: self.millis(0, 1500),
                mode: self.random.pick(&mode::ALL),
            },
            Kind::DaemonKilled => Disturbance::DaemonKilled {
                peer: self.peer(),
                pause: self.millis(0, 1500),
            },
            Kind::DaemonReplaced => Disturbance::DaemonReplaced { peer: self.peer() },
            Kind::SegmentsForged => Disturbance::SegmentsForged(self.burst()),
            Kind::OffloadSwitched => Disturbance::OffloadSwitched {
                peer: self.peer(),
                feature: self.random.pick(&OFFLOADS),
                on: self.random.once_in(2),
            },
            Kind::Reordered => Disturbance::Reordered {
                pause: self.millis(2000, 6000),
            },
            Kind::PathNarrowed => Disturbance::PathNarrowed {
                mtu: self.random.pick(&NARROW),
                pause: self.millis(500, 2000),
            },
            Kind::ClientNarrowed => Disturbance::ClientNarrowed {
                client: self.client(),
                mtu: self.random.pick(&NARROW),
                pause: self.millis(500, 2000),
            },
            Kind::ClientRoamed => self.client_roamed(),
            Kind::RulesReloaded => Disturbance::RulesReloaded {
                pause: self.millis(500, 2000),
            },
            Kind::MacChanged => Disturbance::MacChanged {
                peer: self.peer(),
                at_router: self.random.once_in(2),
                pause: self.millis(500, 2000),
            },
            Kind::AddressAdded => Disturbance::AddressAdded {
                peer: self.peer(),
                pause: self.millis(500, 2000),
            },
            Kind::GsoSwitched => Disturbance::GsoSwitched {
                peer: self.peer(),
                pause: self.millis(500, 2000),
            },
            Kind::QdiscReplaced => Disturbance::QdiscReplaced {
                peer: self.peer(),
                pause: self.millis(500, 2000),
            },
            Kind::InterfaceMoved => Disturbance::InterfaceMoved {
                peer: self.peer(),
                pause: self.millis(100, 1500),
            },
            Kind::DaemonFrozen => Disturbance::DaemonFrozen {
                peer: self.peer(),
                pause: self.millis(1000, 5000),
            },
        }
    }

    fn client(&mut self) -> usize {
        self.random.below(self.clients)
    }

    /// A host with xdptun: a client, or the server, which has the last number.
    fn peer(&mut self) -> usize {
        self.random.below(self.clients + 1)
    }

    /// The router's interface to a peer.
    fn router_dev(&mut self) -> String {
        match self.peer() {
            number if number < self.clients => Router::lan(number),
            _ => Router::WAN.to_owned(),
        }
    }

    fn ports_rebound(&mut self) -> Disturbance {
        let first = self.random.pick(&FIRST_PORTS);
        Disturbance::PortsRebound {
            ports: first..=first + PORTS - 1,
        }
    }

    fn burst(&mut self) -> Burst {
        Burst {
            kind: self.random.pick(&forgery::Kind::ALL),
            to_server: self.random.once_in(2),
            count: self.random.between(1, FORGED),
            seed: self.random.number().into(),
        }
    }

    fn client_roamed(&mut self) -> Disturbance {
        let client = self.client();
        let host = HOSTS[self.moves[client] % HOSTS.len()];
        self.moves[client] += 1;
        Disturbance::ClientRoamed { client, host }
    }

    fn millis(&mut self, least: usize, most: usize) -> Duration {
        let drawn = Duration::from_millis(self.random.between(least, most) as u64);
        match self.pace {
            Pace::Natural => drawn,
            Pace::Brisk => drawn / 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(seed: u64) -> Vec<(Duration, Disturbance)> {
        let mut deck = Deck::new(seed, 2, &[], Pace::Natural);
        (0..40).map(|_| deck.draw()).collect()
    }

    #[test]
    fn a_seed_always_gives_the_same_order() {
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }

    #[test]
    fn a_brisk_run_has_the_same_in_a_quarter_of_the_time() {
        let pauses = |pace| -> Duration {
            let mut deck = Deck::new(1, 2, &[], pace);
            (0..40).map(|_| deck.draw().0).sum()
        };
        let [natural, brisk] = [Pace::Natural, Pace::Brisk].map(pauses);
        assert_eq!(natural / 4, brisk);
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
