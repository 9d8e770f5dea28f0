//! The look at every flow, once a second: probes, expiry, leftovers.

use std::time::Duration;

use tracing::{debug, info};
use xdptun_common::config::Request;
use xdptun_common::flow::{Flow, FlowKey, State};

use super::{Daemon, Timers};
use crate::clock::{monotonic_ns, since};

/// How long a closed flow stays in the table: longer than any program run that
/// may still hold it.
const CLOSED: Duration = Duration::from_secs(2);
/// How long a handshake may go on with nothing new to send.
const OPENING: Duration = Duration::from_secs(30);
/// How long a peer may take to answer our FIN.
const FINISHING: Duration = Duration::from_secs(5);
/// Unanswered probes after which the peer counts as gone.
const PROBES: u32 = 3;

/// What a flow needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    Probe,
    Finish,
    Remove(&'static str),
}

/// Decides by the times of a flow alone.
fn need(flow: &Flow, timers: &Timers, now: u64) -> Need {
    let (sent, received) = (since(now, flow.sent_at), since(now, flow.received_at));
    match flow.state() {
        State::Closed if sent.min(received) > CLOSED && since(now, flow.opened_at) > CLOSED => {
            Need::Remove("closed")
        }
        State::SynSent | State::SynReceived
            if since(now, flow.syn_at) > OPENING && since(now, flow.opened_at) > OPENING =>
        {
            Need::Remove("never answered")
        }
        // Until then datagrams are refused, so it must not last.
        State::FinSent if since(now, flow.syn_at) > FINISHING => Need::Remove("FIN never answered"),
        State::FinSent => Need::Finish,
        State::Established if received > timers.keepalive * (PROBES + 1) => {
            Need::Remove("the peer is gone")
        }
        State::Established if since(now, flow.data_at) > timers.idle => Need::Finish,
        State::Established if sent.min(received) > timers.keepalive => Need::Probe,
        State::Closed | State::SynSent | State::SynReceived | State::Established => Need::Nothing,
    }
}

impl Daemon<'_> {
    /// Gives every flow what it needs.
    pub(super) fn sweep(&mut self) {
        let now = monotonic_ns();
        let needs: Vec<(FlowKey, Flow, Need)> = self
            .attached
            .maps
            .flows()
            .map(|(key, flow)| (key, flow, need(&flow, &self.timers, now)))
            .filter(|(_, _, need)| *need != Need::Nothing)
            .collect();
        for (key, flow, need) in needs {
            let (local, remote) = (key.local(), key.remote());
            let done = match need {
                Need::Nothing => Ok(()),
                Need::Probe => self.injector.request(&key, flow.link, Request::Probe),
                Need::Finish => self.injector.request(&key, flow.link, Request::Finish),
                Need::Remove(why) => {
                    if flow.state() == State::Established {
                        info!("{local} -> {remote} down: {why}");
                    }
                    self.attached
                        .maps
                        .remove_flow(&key)
                        .map_err(std::io::Error::other)
                }
            };
            if let Err(error) = done {
                debug!("{local} -> {remote}: {need:?} failed: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const NOW: u64 = 100_000 * SECOND;

    fn flow(state: State, ago: u64) -> Flow {
        let then = NOW - ago * SECOND;
        let mut flow: Flow = xdptun_common::read_plain(&[0; size_of::<Flow>()]).unwrap();
        flow.state = state as u32;
        (flow.sent_at, flow.received_at, flow.data_at) = (then, then, then);
        (flow.opened_at, flow.syn_at) = (then, then);
        flow
    }

    fn decide(flow: &Flow) -> Need {
        need(flow, &Timers::default(), NOW)
    }

    #[test]
    fn a_busy_flow_is_left_alone() {
        for state in [
            State::Closed,
            State::SynSent,
            State::SynReceived,
            State::Established,
        ] {
            assert_eq!(decide(&flow(state, 1)), Need::Nothing, "{state:?}");
        }
    }

    #[test]
    fn silence_is_probed_and_then_given_up() {
        assert_eq!(decide(&flow(State::Established, 25)), Need::Nothing);
        assert_eq!(decide(&flow(State::Established, 26)), Need::Probe);
        let mut probed = flow(State::Established, 101);
        probed.sent_at = NOW;
        assert_eq!(decide(&probed), Need::Remove("the peer is gone"));
        // A peer that answers probes keeps the flow alive until it is idle.
        let mut answered = flow(State::Established, 601);
        (answered.sent_at, answered.received_at) = (NOW, NOW);
        assert_eq!(decide(&answered), Need::Finish);
    }

    #[test]
    fn ends_that_nobody_answers_are_cleared() {
        assert_eq!(decide(&flow(State::Closed, 3)), Need::Remove("closed"));
        assert_eq!(
            decide(&flow(State::SynSent, 31)),
            Need::Remove("never answered")
        );
        assert_eq!(decide(&flow(State::FinSent, 3)), Need::Finish);
        assert_eq!(
            decide(&flow(State::FinSent, 6)),
            Need::Remove("FIN never answered")
        );
    }
}
