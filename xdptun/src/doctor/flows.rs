//! What the flows of an attachment tell of its peers.

use std::net::SocketAddr;

use anyhow::Result;
use xdptun_common::counter::Outcome;
use xdptun_common::flow::{Flow, FlowKey, RESTARTED, State};

use super::Finding;
use crate::datapath::Pinned;

const CHECK: &str = "flows";

/// After so many SYNs without an answer somebody should look: more than a second has
/// passed.
const MANY_SYNS: u16 = 3;
/// How many peers to name.
const NAMED: usize = 3;

pub fn check(pinned: &Pinned) -> Result<Finding> {
    let counters = pinned.maps.counters()?;
    let count = |outcome: Outcome| {
        let counter = counters.iter().find(|(name, _)| *name == outcome.name());
        counter.map_or(0, |(_, count)| *count)
    };
    let seen = Seen {
        refused: count(Outcome::RxRefused),
        undisguised: count(Outcome::RxDropPlainUdp),
        has_secret: pinned.attachment.hidden != 0,
        ..Seen::of(&pinned.maps.flows()?)
    };
    Ok(judge(&pinned.name(), &seen))
}

/// What there is to judge by.
#[derive(Default)]
struct Seen {
    established: usize,
    /// Peers that do not answer.
    silent: Vec<SocketAddr>,
    /// Resets in answer to SYNs.
    refused: u64,
    /// Datagrams that came as such.
    undisguised: u64,
    has_secret: bool,
}

impl Seen {
    fn of(flows: &[(FlowKey, Flow)]) -> Self {
        let established = |(_, flow): &&(FlowKey, Flow)| flow.state() == State::Established;
        let is_silent =
            |flow: &Flow| flow.state() == State::SynSent && flow.syns & !RESTARTED >= MANY_SYNS;
        let silent = flows.iter().filter(|(_, flow)| is_silent(flow));
        let mut silent: Vec<SocketAddr> = silent.map(|(key, _)| key.remote()).collect();
        silent.sort_unstable();
        silent.dedup();
        Self {
            established: flows.iter().filter(established).count(),
            silent,
            ..Self::default()
        }
    }
}

fn judge(interface: &str, seen: &Seen) -> Finding {
    let Seen {
        established,
        silent,
        ..
    } = seen;
    let finding = if *established == 0 {
        Finding::fail
    } else {
        Finding::warn
    };
    if !silent.is_empty() {
        let named: Vec<String> = silent.iter().take(NAMED).map(ToString::to_string).collect();
        let more = match silent.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named = named.join(", ");
        let why = if seen.refused > 0 {
            "a host refuses: attach xdptun there, to the interface and port that are called, \
             with this host among its `--peer`s if it has any"
        } else if seen.has_secret {
            "let TCP to that port in, in every firewall before it; is xdptun attached there, with \
             the same secret and the right time?"
        } else {
            "let TCP to that port in, in every firewall before it; is xdptun attached there?"
        };
        return finding(
            CHECK,
            format!("{interface}: no answer from {named}{more}: {why}"),
        );
    }
    if *established == 0 && seen.undisguised > 0 {
        let what = format!(
            "{interface}: {} datagrams came undisguised and were dropped, and no flow is \
             established: attach xdptun at the peer that sent them",
            seen.undisguised
        );
        return Finding::warn(CHECK, what);
    }
    let what = match established {
        0 => "none yet; the first datagram opens one".to_owned(),
        1 => "1 is established".to_owned(),
        more => format!("{more} are established"),
    };
    Finding::ok(CHECK, format!("{interface}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn silent(count: u8) -> Seen {
        let peer = |last| SocketAddr::from(([192, 0, 2, last], 8000));
        Seen {
            silent: (1..=count).map(peer).collect(),
            ..Seen::default()
        }
    }

    #[test]
    fn one_that_works_makes_the_others_a_warning() {
        assert_eq!(judge("eth0", &silent(1)).level, Level::Fail);
        let mixed = Seen {
            established: 1,
            ..silent(1)
        };
        assert_eq!(judge("eth0", &mixed).level, Level::Warn);
        let strays = Seen {
            established: 1,
            undisguised: 9,
            ..Seen::default()
        };
        assert_eq!(judge("eth0", &strays).level, Level::Ok);
    }

    #[test]
    fn only_some_of_many_are_named() {
        let found = judge("eth0", &silent(5)).what;
        let named = "no answer from 192.0.2.1:8000, 192.0.2.2:8000, 192.0.2.3:8000 and 2 more: ";
        assert!(found.contains(named), "{found}");
    }
}
