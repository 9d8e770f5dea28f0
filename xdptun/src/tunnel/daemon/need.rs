//! What a flow needs: a pure function of its state and its times.

use std::time::Duration;

use xdptun_common::tunnel::ack::answered_at;
use xdptun_common::tunnel::config::Request;
use xdptun_common::tunnel::state::{Flow, REMEMBERED, State};

use super::Timers;
use super::round_trip::RoundTrip;
use crate::host::clock::since;

/// How long a closed flow stays in the table: longer than any run of a program that may
/// still use the entry.
const CLOSED: Duration = Duration::from_secs(2);
/// How long a handshake may last.
const OPENING: Duration = Duration::from_secs(30);
/// The same for a handshake that a SYN of the peer began.
const REMEMBERED_FOR: Duration = Duration::from_secs(3);
/// How long a flow that the peer opened may carry nothing at all.
const UNUSED: Duration = Duration::from_secs(5);
/// How long a peer may take to answer our FIN.
const FINISHING: Duration = Duration::from_secs(5);
/// How long after a FIN the next one follows.
const FIN_AGAIN: Duration = Duration::from_millis(500);
/// How much later than expected an answer may come before the daemon probes the peer.
const DOUBT: Duration = Duration::from_millis(20);

/// What a flow needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Nothing,
    /// This control segment.
    Send(Request),
    /// Removal from the table, for this reason.
    Remove(&'static str),
}

/// What is known of the peer of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peer {
    /// It did not answer the probes.
    pub is_dead: bool,
    /// It is a phantun, which acknowledges only with datagrams of its own: its silence says nothing.
    pub is_phantun: bool,
}

/// Decides what a flow needs.
pub fn need(flow: &Flow, peer: Peer, timers: &Timers, now: u64) -> Need {
    let is_doubtful = || !peer.is_phantun && is_doubtful(flow, now);
    let (sent, received) = (since(now, flow.sent_at), since(now, flow.received_at));
    match flow.state() {
        State::Closed if sent.min(received) > CLOSED && since(now, flow.opened_at) > CLOSED => {
            Need::Remove("closed")
        }
        State::SynSent | State::SynReceived if since(now, flow.opened_at) > OPENING => {
            Need::Remove("never answered")
        }
        State::SynReceived
            if flow.syns == REMEMBERED && since(now, flow.opened_at) > REMEMBERED_FOR =>
        {
            Need::Remove("the peer did not go on")
        }
        State::SynSent | State::SynReceived if flow.wants_syn(now) => {
            Need::Send(Request::RetransmitSyn)
        }
        // The programs drop datagrams in this state, so it must not last.
        State::FinSent if since(now, flow.syn_at) > FINISHING => Need::Remove("FIN never answered"),
        // The peer may be a stranger if this host never sent data: one FIN is enough.
        State::FinSent if sent > FIN_AGAIN && flow.tx_packets != 0 => Need::Send(Request::Finish),
        // The peer may be a stranger: no probe, no reopening, one FIN.
        State::Established if flow.is_unanswered_call() => {
            let unused = flow.rx_packets == 0 && since(now, flow.opened_at) > UNUSED;
            let idle = since(now, flow.data_at) > timers.idle;
            // Three times the keepalive: that of the peer comes first.
            if unused || idle || received > 3 * timers.keepalive {
                Need::Send(Request::Finish)
            } else {
                Need::Nothing
            }
        }
        // Before any probe: if the peer does not answer the FIN, the flow is removed.
        State::Established if since(now, flow.data_at) > timers.idle => Need::Send(Request::Finish),
        // A NAT or a firewall forgot the flow, or the peer is gone.
        State::Established if is_doubtful() && peer.is_dead => Need::Send(Request::Reopen),
        State::Established if is_doubtful() => Need::Send(Request::Probe),
        State::Established if sent.min(received) > timers.keepalive => Need::Send(Request::Probe),
        State::Closed
        | State::SynSent
        | State::SynReceived
        | State::Established
        | State::FinSent => Need::Nothing,
    }
}

/// Whether the peer should have answered a datagram by now.
pub fn is_doubtful(flow: &Flow, now: u64) -> bool {
    let answered_at = answered_at(flow.unanswered_at, flow.received_at);
    flow.unanswered_at > flow.received_at
        && since(now, answered_at) > RoundTrip::of(flow).allowed() + DOUBT
}

#[cfg(test)]
mod tests {
    use super::super::sample::{NOW, SECOND, flow};
    use super::*;

    fn decide(flow: &Flow) -> Need {
        need(flow, Peer::default(), &Timers::default(), NOW)
    }

    fn decide_dead(flow: &Flow) -> Need {
        let peer = Peer {
            is_dead: true,
            ..Peer::default()
        };
        need(flow, peer, &Timers::default(), NOW)
    }

    #[test]
    fn a_busy_flow_is_left_alone() {
        for state in [State::Closed, State::Established] {
            assert_eq!(decide(&flow(state, 1)), Need::Nothing, "{state:?}");
        }
        for state in [State::SynSent, State::SynReceived] {
            assert_eq!(decide(&flow(state, 0)), Need::Nothing, "{state:?}");
        }
    }

    #[test]
    fn syns_are_repeated_when_due() {
        for state in [State::SynSent, State::SynReceived] {
            let syn = Need::Send(Request::RetransmitSyn);
            assert_eq!(decide(&flow(state, 1)), syn, "{state:?}");
            assert_eq!(decide(&flow(state, 30)), syn, "{state:?}");
        }
    }

    /// A stranger's handshake is answered with a SYN-ACK and, later, one FIN.
    #[test]
    fn what_a_peer_opened_and_never_used_is_closed() {
        let mut flow = flow(State::Established, 5);
        (flow.syn_at, flow.syns, flow.tx_packets) = (0, 0, 0);
        assert_eq!(decide(&flow), Need::Nothing);
        flow.opened_at -= 1;
        assert_eq!(decide(&flow), Need::Send(Request::Finish));
        // If this host never answered its datagrams, it is not probed or reopened either.
        flow.rx_packets = 1;
        for (ago, need) in [
            (5, Need::Nothing),
            (75, Need::Nothing),
            (76, Need::Send(Request::Finish)),
            (601, Need::Send(Request::Finish)),
        ] {
            flow.received_at = NOW - ago * SECOND;
            assert_eq!(decide(&flow), need, "{ago}");
            assert_eq!(decide_dead(&flow), need, "{ago}");
        }
        flow.received_at = NOW;
        assert_eq!(decide(&flow), Need::Nothing, "it goes on sending");
        let mut over = flow;
        (over.state, over.syn_at, over.sent_at) =
            (State::FinSent as u32, NOW - 4 * SECOND, NOW - 4 * SECOND);
        assert_eq!(decide(&over), Need::Nothing, "no second FIN");
        over.tx_packets = 1;
        assert_eq!(decide(&over), Need::Send(Request::Finish));
    }

    #[test]
    fn silence_is_probed_until_the_flow_is_idle() {
        let established = |ago| flow(State::Established, ago);
        assert_eq!(decide(&established(25)), Need::Nothing);
        assert_eq!(decide(&established(26)), Need::Send(Request::Probe));
        // A peer that answers probes keeps the flow alive until it is idle.
        let mut answered = established(601);
        (answered.sent_at, answered.received_at) = (NOW, NOW);
        assert_eq!(decide(&answered), Need::Send(Request::Finish));
    }

    #[test]
    fn what_goes_unanswered_is_asked_for_and_then_the_path_is_dead() {
        let mut flow = flow(State::Established, 0);
        flow.received_at = NOW - 10 * SECOND;
        // Sent before the last answer.
        flow.unanswered_at = flow.received_at - 1;
        assert_eq!(decide(&flow), Need::Nothing);
        flow.unanswered_at = NOW - SECOND / 4;
        assert_eq!(decide(&flow), Need::Nothing, "not long ago");
        // However long ago: the daemon may not have been there to ask.
        for seconds in [1, 5, 9] {
            flow.unanswered_at = NOW - seconds * SECOND;
            assert_eq!(decide(&flow), Need::Send(Request::Probe), "{seconds}");
            let dead = decide_dead(&flow);
            assert_eq!(dead, Need::Send(Request::Reopen), "{seconds}");
        }
        flow.received_at = NOW;
        assert_eq!(decide_dead(&flow), Need::Nothing, "answered");
    }

    /// It is probed only so that the path remembers it.
    #[test]
    fn the_silence_of_a_phantun_says_nothing() {
        let phantun = |flow: &Flow| {
            let peer = Peer {
                is_phantun: true,
                ..Peer::default()
            };
            need(flow, peer, &Timers::default(), NOW)
        };
        let mut flow = flow(State::Established, 0);
        flow.received_at = NOW - 500 * SECOND;
        for seconds in [1, 9, 400] {
            flow.unanswered_at = NOW - seconds * SECOND;
            assert_eq!(phantun(&flow), Need::Nothing, "{seconds}");
        }
        flow.sent_at = NOW - 26 * SECOND;
        assert_eq!(phantun(&flow), Need::Send(Request::Probe));
        flow.data_at = NOW - 601 * SECOND;
        assert_eq!(phantun(&flow), Need::Send(Request::Finish));
    }

    /// The peer may delay its answer for 480 ms, and what it answers may leave as late.
    #[test]
    fn an_answer_may_be_delayed_and_under_way() {
        const MS: u64 = SECOND / 1000;
        for (name, round_trip, syns, answered, unanswered, probed) in [
            ("long after the last answer", 100, 1, 5000, 600, false),
            ("and 1 ms later", 100, 1, 5000, 601, true),
            ("soon after the last answer", 100, 1, 1080, 1079, false),
            ("and 1 ms later", 100, 1, 1081, 1079, true),
            ("a slow path", 600, 1, 5000, 1100, false),
            ("and 1 ms later", 600, 1, 5000, 1101, true),
            (
                "the answer may be to the first SYN",
                100,
                2,
                5000,
                1100,
                false,
            ),
            ("and 1 ms later", 100, 2, 5000, 1101, true),
        ] {
            let mut flow = flow(State::Established, 10);
            (flow.syns, flow.established_at) = (syns, flow.syn_at + round_trip * MS);
            (flow.received_at, flow.unanswered_at) = (NOW - answered * MS, NOW - unanswered * MS);
            let need = match probed {
                true => Need::Send(Request::Probe),
                false => Need::Nothing,
            };
            assert_eq!(decide(&flow), need, "{name}: {unanswered} ms ago");
        }
    }

    #[test]
    fn what_a_syn_of_the_peer_began_is_not_kept_for_long() {
        let mut remembered = flow(State::SynReceived, 3);
        remembered.syns = REMEMBERED;
        assert_eq!(decide(&remembered), Need::Nothing);
        remembered.opened_at = NOW - 4 * SECOND;
        assert_eq!(decide(&remembered), Need::Remove("the peer did not go on"));
    }

    #[test]
    fn an_idle_flow_is_ended_though_the_peer_does_not_answer() {
        let mut flow = flow(State::Established, 601);
        flow.unanswered_at = NOW - 600 * SECOND;
        assert_eq!(decide(&flow), Need::Send(Request::Finish));
        assert_eq!(decide_dead(&flow), Need::Send(Request::Finish));
    }

    #[test]
    fn ends_that_the_peer_does_not_answer_are_cleared() {
        assert_eq!(decide(&flow(State::Closed, 3)), Need::Remove("closed"));
        assert_eq!(
            decide(&flow(State::SynSent, 31)),
            Need::Remove("never answered")
        );
        let mut finishing = flow(State::FinSent, 3);
        assert_eq!(decide(&finishing), Need::Send(Request::Finish));
        finishing.sent_at = NOW - SECOND / 2;
        assert_eq!(decide(&finishing), Need::Nothing, "just sent");
        assert_eq!(
            decide(&flow(State::FinSent, 6)),
            Need::Remove("FIN never answered")
        );
    }
}
