//! The flows of an attachment: whether its peers answer, and whether its datagrams leave in fragments.

use std::net::SocketAddr;

use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::state::{Flow, State};

use super::Finding;
use crate::error::Result;
use crate::host::mtu::cost_of_fragments;
use crate::host::words::some_of;
use crate::tunnel::Pinned;

const CHECK: &str = "flows";

/// The number of unanswered SYNs from which on there is a finding: more than a second has
/// passed.
const MANY_SYNS: u16 = 3;

const NONE_NOW: &str = "none now; the next datagram opens one";

pub fn check(pinned: &Pinned) -> Result<Finding> {
    // Segments of one flow may leave by one interface of a group and arrive by another.
    let of_group = |index| -> Result<u64> {
        let rows = pinned.group.members.values().map(|one| one.row);
        rows.map(|row| Ok(pinned.group.engine.counter(row, index)?.count))
            .sum()
    };
    let count = |outcome: Outcome| of_group(outcome.index());
    let seen = Seen {
        syns: of_group(Sent::Syn.index())?,
        answers: count(Outcome::RxSynAck)?
            + count(Outcome::RxRestored)?
            + count(Outcome::RxFragment)?,
        refused: count(Outcome::RxRefused)?,
        undisguised: count(Outcome::RxDropPlainUdp)?,
        unproven: count(Outcome::RxDropUnproven)?,
        has_secret: pinned.has_secret(),
        ..Seen::of(&pinned.own_flows(&pinned.group.maps.flows()?))
    };
    Ok(judge(&pinned.name(), &seen))
}

/// Whether datagrams left in fragments by an interface with this MTU.
pub fn check_fragments(pinned: &Pinned, mtu: u32) -> Result<Option<Finding>> {
    let counters = pinned.counters()?;
    let fragments = counters.get(Outcome::TxFragment.name()).unwrap_or_default();
    let flows = pinned.own_flows(&pinned.group.maps.flows()?);
    let peers = flows.iter().map(|(key, _)| key.remote());
    Ok(judge_fragments(&pinned.name(), mtu, fragments, peers))
}

fn judge_fragments(
    interface: &str,
    mtu: u32,
    fragments: u64,
    peers: impl Iterator<Item = SocketAddr>,
) -> Option<Finding> {
    if fragments == 0 {
        return None;
    }
    let what = format!(
        "{interface}: {fragments} fragments left since it was attached: {}",
        cost_of_fragments(mtu, peers)
    );
    Some(Finding::warn("fragments", what))
}

/// For an interface without an attachment.
pub fn none(interface: &str) -> Finding {
    Finding::ok(
        CHECK,
        format!("{interface}: none, because xdptun is not attached"),
    )
}

/// The facts to judge by. Counts are those of the whole group and of all peers, so they
/// mean something only as long as no flow ever worked.
#[derive(Default)]
struct Seen {
    established: usize,
    /// Peers that this host calls and that do not answer.
    silent: Vec<SocketAddr>,
    /// SYNs that were sent.
    syns: u64,
    /// SYN-ACKs and datagrams that came through a tunnel.
    answers: u64,
    /// Resets in answer to SYNs.
    refused: u64,
    /// Datagrams that came undisguised, as UDP.
    undisguised: u64,
    /// Segments without a proof of the secret.
    unproven: u64,
    has_secret: bool,
}

impl Seen {
    fn of(flows: &[(FlowKey, Flow)]) -> Self {
        let established = |(_, flow): &&(FlowKey, Flow)| flow.state() == State::Established;
        let silent = flows.iter().filter(|(_, flow)| flow.is_silent(MANY_SYNS));
        let mut silent: Vec<SocketAddr> = silent.map(|(key, _)| key.remote()).collect();
        silent.sort_unstable();
        silent.dedup();
        Self {
            established: flows.iter().filter(established).count(),
            silent,
            ..Self::default()
        }
    }

    /// Whether anything ever came through a tunnel.
    const fn works(&self) -> bool {
        self.established > 0 || self.answers > 0
    }
}

fn judge(interface: &str, seen: &Seen) -> Finding {
    let (finding, what): (fn(&'static str, String) -> Finding, String) = if !seen.silent.is_empty()
    {
        let level = match seen.established {
            0 => Finding::fail,
            _ => Finding::warn,
        };
        let peers = some_of(&seen.silent);
        (level, format!("no answer from {peers}: {}", reason(seen)))
    } else if seen.works() {
        let what = match seen.established {
            0 => NONE_NOW.to_owned(),
            1 => "1 is established".to_owned(),
            more => format!("{more} are established"),
        };
        (Finding::ok, what)
    } else if seen.syns >= MANY_SYNS.into() {
        let what = format!(
            "no peer answered since xdptun was attached ({} SYNs): {}",
            seen.syns,
            reason(seen)
        );
        (Finding::warn, what)
    } else if seen.undisguised > 0 {
        let what = format!(
            "datagrams came undisguised and were dropped ({}), and none came disguised since xdptun \
             was attached: attach xdptun at the peer as well, to the interface and port that the \
             peer sends from; if it has `--peer` there, add this host",
            seen.undisguised
        );
        (Finding::warn, what)
    } else if seen.unproven > 0 {
        let what = format!(
            "segments came without a proof of the secret ({}), and none with a proof since xdptun \
             was attached: has the peer the same secret, and the right time? Or is it a scan?",
            seen.unproven
        );
        (Finding::warn, what)
    } else if seen.syns > 0 {
        (Finding::ok, NONE_NOW.to_owned())
    } else {
        let what =
            "none yet: this host sent no datagram on its ports to a peer, and no peer called";
        (Finding::ok, what.to_owned())
    };
    finding(CHECK, format!("{interface}: {what}"))
}

/// The probable reason why peers do not answer, and what to look at.
fn reason(seen: &Seen) -> &'static str {
    if seen.refused > 0 && !seen.works() {
        "a host or a firewall refuses: attach xdptun at the peer, to the interface and port that \
         this host calls; if it has `--peer` there, add this host; let TCP to that port in"
    } else if seen.has_secret {
        "let TCP to that port in, in every firewall in front of the peer; is the peer up, and is \
         xdptun attached there, with the same secret and the right time?"
    } else {
        "let TCP to that port in, in every firewall in front of the peer; is the peer up, and is \
         xdptun attached there?"
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use xdptun_common::tunnel::state::{REMEMBERED, RESTARTED};

    use super::super::Level;
    use super::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 8000))
    }

    fn silent(count: u8) -> Seen {
        Seen {
            silent: (1..=count).map(address).collect(),
            ..Seen::default()
        }
    }

    /// A flow with peer number `last`.
    fn flow(last: u8, state: State, syns: u16) -> (FlowKey, Flow) {
        let mut bytes = [0; size_of::<Flow>()];
        bytes[core::mem::offset_of!(Flow, state)] = state as u8;
        let mut flow: Flow = xdptun_common::read_plain(&bytes).unwrap();
        flow.syns = syns;
        (FlowKey::new(address(200), address(last)), flow)
    }

    #[test]
    fn only_who_was_called_in_vain_is_silent() {
        let seen = Seen::of(&[
            flow(1, State::SynSent, 2),
            flow(2, State::SynSent, 3),
            flow(3, State::SynReceived, 3 | RESTARTED),
            flow(4, State::SynReceived, REMEMBERED),
            flow(5, State::SynSent, REMEMBERED),
            flow(6, State::Established, 3),
            flow(7, State::Closed, 3),
            flow(8, State::SynSent, 0),
            flow(2, State::SynSent, 9),
        ]);
        assert_eq!(seen.silent, [address(2), address(3)]);
        assert_eq!(seen.established, 1);
    }

    #[test]
    fn fragments_are_a_warning_with_what_avoids_them() {
        let judge = |count| judge_fragments("eth0", 1500, count, iter::once(address(2)));
        assert_eq!(judge(0), None);
        let finding = judge(12).unwrap();
        assert_eq!(finding.level, Level::Warn);
        for words in ["eth0: 12 fragments", "MTU = 1428"] {
            assert!(finding.what.contains(words), "{}", finding.what);
        }
    }

    #[test]
    fn one_that_is_up_makes_the_others_a_warning() {
        assert_eq!(judge("eth0", &silent(1)).level, Level::Fail);
        for (established, answers, level) in [(1, 0, Level::Warn), (0, 1, Level::Fail)] {
            let mixed = Seen {
                established,
                answers,
                // Of another peer, or of another time.
                refused: 1,
                ..silent(1)
            };
            let found = judge("eth0", &mixed);
            assert_eq!(found.level, level);
            assert!(found.what.contains("every firewall"), "{}", found.what);
        }
    }

    #[test]
    fn what_came_before_it_worked_does_not_count() {
        let strays = |answers| Seen {
            answers,
            undisguised: 9,
            syns: 9,
            ..Seen::default()
        };
        assert_eq!(judge("eth0", &strays(0)).level, Level::Warn);
        assert_eq!(judge("eth0", &strays(1)).level, Level::Ok);
        let strangers = |answers| Seen {
            answers,
            unproven: 1,
            ..Seen::default()
        };
        assert_eq!(judge("eth0", &strangers(0)).level, Level::Warn);
        assert_eq!(judge("eth0", &strangers(1)).level, Level::Ok);
    }

    /// Between two tries there is no flow.
    #[test]
    fn who_never_answered_is_not_forgotten_with_the_flow() {
        let called = |syns| Seen {
            syns,
            ..Seen::default()
        };
        assert_eq!(judge("eth0", &called(2)).level, Level::Ok);
        assert_eq!(judge("eth0", &called(3)).level, Level::Warn);
        // Datagrams and segments of scanners do not hide it.
        let scanned = Seen {
            undisguised: 1,
            unproven: 1,
            ..called(3)
        };
        let what = judge("eth0", &scanned).what;
        assert!(what.contains("no peer answered"), "{what}");
    }
}
