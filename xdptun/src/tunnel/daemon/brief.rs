//! Peers that end each flow as soon as it is open: a TCP server answers there, not xdptun.
//!
//! Such flows come and go as often as this host has something to send. They are logged until
//! that is plain, then once in a while.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use xdptun_common::flow::key::FlowKey;

use crate::host::clock::since;

/// A flow is brief if its peer ends it so soon after the handshake.
const BRIEF: Duration = Duration::from_secs(1);

/// So many brief flows of one peer in a row are no accident.
const MANY: u32 = 3;

/// How long after it was told of a peer it is told again. A peer that ended no brief flow for so
/// long is forgotten.
const AGAIN: Duration = Duration::from_secs(600);

/// The most peers that are watched at once: each has ended a flow of this host.
const MOST: usize = 1024;

/// What is known of peers that end flows.
#[derive(Default)]
pub struct Brief {
    peers: BTreeMap<SocketAddr, Peer>,
    /// Flows of this host that came up less than [`BRIEF`] ago, and when.
    young: BTreeMap<FlowKey, u64>,
}

#[derive(Default)]
struct Peer {
    /// Brief flows in a row.
    flows: u32,
    /// When the last of them ended, in nanoseconds of `CLOCK_MONOTONIC`.
    ended_at: u64,
    /// When it was told last, in nanoseconds of `CLOCK_MONOTONIC`.
    told_at: Option<u64>,
}

/// What the daemon tells when a peer ends a flow.
#[derive(Debug, PartialEq, Eq)]
pub enum Telling {
    /// That it ended.
    End,
    /// That so many ended in a row.
    Brief(u32),
    /// Nothing.
    Nothing,
}

impl Brief {
    /// A flow of this host came up; returns whether to tell.
    pub fn up(&mut self, key: &FlowKey, now: u64) -> bool {
        self.young.insert(*key, now);
        !self.is_suspect(key)
    }

    /// Whether its peer ends each flow at once.
    fn is_suspect(&self, key: &FlowKey) -> bool {
        let peer = self.peers.get(&key.remote());
        peer.is_some_and(|peer| peer.flows >= MANY)
    }

    /// The peer ended a flow.
    pub fn ended(&mut self, key: &FlowKey, now: u64) -> Telling {
        let remote = key.remote();
        // The sweep may not have looked for a while.
        let came = self.young.remove(key);
        if came.is_none_or(|came| since(now, came) >= BRIEF) {
            self.peers.remove(&remote);
            return Telling::End;
        }
        if self.peers.len() >= MOST && !self.peers.contains_key(&remote) {
            return Telling::End;
        }
        let peer = self.peers.entry(remote).or_default();
        peer.flows = peer.flows.saturating_add(1);
        peer.ended_at = now;
        if peer.flows < MANY {
            return Telling::End;
        }
        match peer.told_at {
            Some(told_at) if since(now, told_at) < AGAIN => Telling::Nothing,
            _ => {
                peer.told_at = Some(now);
                Telling::Brief(peer.flows)
            }
        }
    }

    /// This host ends a flow: how long it lasted says nothing about the peer.
    pub fn forget(&mut self, key: &FlowKey) {
        self.young.remove(key);
    }

    /// Forgets what is older than needed. Returns the flows that came up without a word and last.
    pub fn lasting(&mut self, now: u64) -> Vec<FlowKey> {
        (self.peers).retain(|_, peer| since(now, peer.ended_at) < AGAIN);
        let is_old = |_: &FlowKey, came: &mut u64| since(now, *came) >= BRIEF;
        let lasting: Vec<FlowKey> = (self.young.extract_if(.., is_old))
            .map(|(key, _)| key)
            .collect();
        let untold = lasting.iter().filter(|key| self.is_suspect(key));
        let untold: Vec<FlowKey> = untold.copied().collect();
        for key in &lasting {
            self.peers.remove(&key.remote());
        }
        untold
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn key() -> FlowKey {
        FlowKey::new(([10, 0, 0, 1], 40000).into(), ([10, 0, 0, 2], 8000).into())
    }

    #[test]
    fn a_peer_that_ends_each_flow_at_once_is_told_of_once_in_a_while() {
        let mut brief = Brief::default();
        let mut end = |at: u64, lasted: u64| {
            let is_told = brief.up(&key(), at - lasted);
            brief.lasting(at);
            (is_told, brief.ended(&key(), at))
        };
        let minute = 60 * SECOND;
        assert_eq!(end(minute, 0), (true, Telling::End));
        assert_eq!(end(minute + SECOND, 0), (true, Telling::End));
        assert_eq!(end(minute + 2 * SECOND, 0), (true, Telling::Brief(3)));
        assert_eq!(end(minute + 3 * SECOND, 0), (false, Telling::Nothing));
        assert_eq!(end(11 * minute, 0), (false, Telling::Nothing));
        assert_eq!(end(12 * minute, 0), (false, Telling::Brief(6)));
        // One that lasts ends it.
        assert_eq!(end(13 * minute, SECOND), (false, Telling::End));
        assert_eq!(end(14 * minute, 0), (true, Telling::End));
    }

    #[test]
    fn a_flow_that_lasts_is_told_of_later() {
        let mut brief = Brief::default();
        for at in 1..=3 {
            brief.up(&key(), at * SECOND);
            brief.ended(&key(), at * SECOND);
        }
        assert!(!brief.up(&key(), 4 * SECOND));
        assert_eq!(brief.lasting(5 * SECOND - 1), []);
        assert_eq!(brief.lasting(5 * SECOND), [key()]);
        assert_eq!(brief.lasting(6 * SECOND), []);
        assert!(brief.up(&key(), 7 * SECOND));
    }

    /// A flow to one of many peers.
    fn key_to(peer: u32) -> FlowKey {
        let remote = (Ipv4Addr::from_bits(0x0a01_0000 + peer), 8000);
        FlowKey::new(([10, 0, 0, 1], 40000).into(), remote.into())
    }

    /// As many brief flows to one peer as it takes to be told of it; what is told then.
    fn many(brief: &mut Brief, key: &FlowKey, now: u64) -> Telling {
        let tellings = (0..MANY).map(|_| {
            brief.up(key, now);
            brief.ended(key, now)
        });
        tellings.last().unwrap()
    }

    #[test]
    fn peers_are_forgotten_with_time() {
        let mut brief = Brief::default();
        for peer in 0..MOST as u32 {
            assert_eq!(many(&mut brief, &key_to(peer), 0), Telling::Brief(MANY));
        }
        // No room for more.
        let again = AGAIN.as_nanos() as u64;
        brief.lasting(again - 1);
        assert_eq!(many(&mut brief, &key(), again - 1), Telling::End);
        brief.lasting(again);
        assert_eq!(many(&mut brief, &key(), again), Telling::Brief(MANY));
        assert_eq!((brief.peers.len(), brief.young.len()), (1, 0));
    }

    #[test]
    fn a_flow_that_this_host_ends_says_nothing_about_the_peer() {
        let mut brief = Brief::default();
        for at in 1..=3 {
            brief.up(&key(), at);
            brief.forget(&key());
            assert_eq!(brief.ended(&key(), at), Telling::End);
        }
        assert_eq!(many(&mut brief, &key(), SECOND), Telling::Brief(MANY));
        assert!(!brief.up(&key(), SECOND));
        brief.forget(&key());
        assert_eq!(brief.lasting(2 * SECOND), []);
        assert!(!brief.up(&key(), 3 * SECOND));
    }

    #[test]
    fn flows_of_strangers_are_not_watched() {
        let mut brief = Brief::default();
        for at in 1..=5 {
            assert_eq!(brief.ended(&key(), at), Telling::End);
        }
        assert!(brief.up(&key(), 6));
    }
}
