//! The look at every flow, ten times a second: probes, dead paths, expiry,
//! leftovers.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;
use aya::maps::MapError;
use tracing::{debug, warn};
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::config::Request;
use xdptun_common::tunnel::share::Tally;
use xdptun_common::tunnel::state::{Flow, REMEMBERED, RESTARTED, State};

use super::evict::{is_ripe, surplus};
use super::{Daemon, News, Timers};
use crate::clock::{monotonic_ns, since};

/// How long a closed flow stays in the table: longer than any program run that
/// may still hold it.
const CLOSED: Duration = Duration::from_secs(2);
/// How long a handshake may go on with nothing new to send.
const OPENING: Duration = Duration::from_secs(30);
/// The same for one that a SYN of the peer began.
const REMEMBERED_FOR: Duration = Duration::from_secs(3);
/// How long a flow that the peer opened may carry nothing at all.
const UNUSED: Duration = Duration::from_secs(5);
/// How long a peer may take to answer our FIN.
const FINISHING: Duration = Duration::from_secs(5);
/// How long after a FIN the next one follows.
const FIN_AGAIN: Duration = Duration::from_millis(500);
/// How often addresses without flows are removed.
const TIDY: Duration = Duration::from_secs(1);
/// How long what was sent may go unanswered before the peer is asked. It answers
/// by itself within [`xdptun_common::tunnel::ack::ACK_DELAY_NS`] of most datagrams, but
/// not of all.
const DOUBT: Duration = Duration::from_millis(250);
/// How long it is asked, at every sweep, before the path counts as dead: in all
/// less than the second after which most applications try again.
const ASKED: Duration = Duration::from_millis(500);
/// How many times at least, however seldom sweeps are.
const TIMES: u32 = 3;
/// How many peers are newly asked in a second, and in one sweep: the peer of them
/// all may be one host, which answers 16,384 a second and CPU.
const QUESTIONS_A_SECOND: u32 = 8192;
const QUESTIONS_AT_ONCE: u32 = 2048;
/// After so long without a sweep nothing is known any more: this process was
/// stopped, or the machine slept.
const STALLED: Duration = Duration::from_secs(5);
/// How long it is asked if it was the peer who opened the flow: its turn to open it
/// again comes first. Ours may lead nowhere (a NAT), and SYNs that cross leave a
/// firewall that still knows the old connection with neither.
const ASKED_OF_CALLER: Duration = Duration::from_millis(1500);
/// How long it is asked if the flow was opened again less than [`SLOW`] ago, and
/// nobody knows how long the path takes: perhaps it is not dead but slow.
const ASKED_AGAIN: Duration = Duration::from_secs(2);
const SLOW: Duration = Duration::from_secs(60);

/// What is remembered of flows whose path is in doubt, in nanoseconds of
/// `CLOCK_MONOTONIC`.
#[derive(Default)]
pub struct Doubts {
    /// Since when the peer is asked whether it is there, about what was sent when.
    asked: HashMap<FlowKey, Asked>,
    /// When the last sweep was; zero before the first.
    swept: u64,
    /// When the flow was last opened again.
    reopened: HashMap<FlowKey, u64>,
    /// When addresses without flows were last removed.
    tidied: u64,
}

#[derive(Clone, Copy)]
struct Asked {
    at: u64,
    unanswered_at: u64,
    times: u32,
}

impl Doubts {
    /// What the peer has been asked about what is unanswered now.
    fn asked(&self, key: &FlowKey, flow: &Flow) -> Option<&Asked> {
        let asked = self.asked.get(key)?;
        (asked.unanswered_at == flow.unanswered_at).then_some(asked)
    }

    /// Begins a sweep; how many peers it may newly ask.
    fn begin(&mut self, now: u64) -> u32 {
        let elapsed = since(now, self.swept);
        if elapsed > STALLED {
            self.asked.clear();
        }
        self.swept = now;
        let questions = elapsed.as_secs_f64() * f64::from(QUESTIONS_A_SECOND);
        (questions as u32).min(QUESTIONS_AT_ONCE)
    }

    /// Whether the path of a flow counts as dead.
    fn is_dead(&self, key: &FlowKey, flow: &Flow, now: u64) -> bool {
        let is_new = |at| since(now, at) < SLOW;
        let may_be_slow = self.reopened.get(key).copied().is_some_and(is_new);
        let patience = match round_trip(flow) {
            RoundTrip::AtLeast(_) | RoundTrip::Unknown if may_be_slow => ASKED_AGAIN,
            RoundTrip::Known(time) | RoundTrip::AtLeast(time) => ASKED.max(3 * time),
            RoundTrip::Unknown => ASKED_OF_CALLER,
        };
        self.asked(key, flow)
            .is_some_and(|asked| asked.times >= TIMES && since(now, asked.at) > patience)
    }
}

/// What the handshake tells of a path.
enum RoundTrip {
    Known(Duration),
    /// More than one SYN was sent, and the answer may be that to the first.
    AtLeast(Duration),
    /// The peer opened the flow.
    Unknown,
}

fn round_trip(flow: &Flow) -> RoundTrip {
    let time = since(flow.established_at, flow.syn_at);
    match flow.syns & !RESTARTED {
        _ if flow.syn_at == 0 => RoundTrip::Unknown,
        1 => RoundTrip::Known(time),
        _ => RoundTrip::AtLeast(time),
    }
}

/// One sweep.
struct Round {
    now: u64,
    /// How many peers it may still newly ask.
    questions: u32,
    /// What peers it asked.
    asked: HashMap<FlowKey, Asked>,
}

/// How many flows a sweep leaves in the table.
#[derive(Default)]
struct Left {
    entries: u64,
    /// Those that wait for their first answer, by opener.
    waiting: [u64; 2],
}

impl Left {
    fn count(&mut self, flow: &Flow) {
        self.entries += 1;
        if let Some(opener) = flow.waits() {
            self.waiting[opener as usize] += 1;
        }
    }
}

/// What a flow needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    /// A control segment.
    Send(Request),
    Remove(&'static str),
}

/// Decides by the times of a flow, and by whether its peer has been asked in vain.
fn need(flow: &Flow, is_dead: bool, timers: &Timers, now: u64) -> Need {
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
        // Until then datagrams are refused, so it must not last.
        State::FinSent if since(now, flow.syn_at) > FINISHING => Need::Remove("FIN never answered"),
        // On a flow without a datagram of ours, one FIN is enough.
        State::FinSent if sent > FIN_AGAIN && flow.tx_packets != 0 => Need::Send(Request::Finish),
        // The peer may be a stranger: no probe, no reopening, one FIN.
        State::Established if flow.is_unanswered_call() => {
            let unused = flow.rx_packets == 0 && since(now, flow.opened_at) > UNUSED;
            let idle = since(now, flow.data_at) > timers.idle;
            // The peer's own keepalive comes first.
            if unused || idle || received > 3 * timers.keepalive {
                Need::Send(Request::Finish)
            } else {
                Need::Nothing
            }
        }
        // Before any doubt: a peer that does not answer the FIN either is forgotten.
        State::Established if since(now, flow.data_at) > timers.idle => Need::Send(Request::Finish),
        // A NAT or a firewall forgot the flow, or the peer is gone.
        State::Established if is_doubtful(flow, now) && is_dead => Need::Send(Request::Reopen),
        State::Established if is_doubtful(flow, now) => Need::Send(Request::Probe),
        State::Established if sent.min(received) > timers.keepalive => Need::Send(Request::Probe),
        State::Closed
        | State::SynSent
        | State::SynReceived
        | State::Established
        | State::FinSent => Need::Nothing,
    }
}

/// Whether something was sent that should have been answered by now.
fn is_doubtful(flow: &Flow, now: u64) -> bool {
    flow.unanswered_at > flow.received_at && since(now, flow.unanswered_at) > DOUBT
}

impl Daemon<'_> {
    /// Removes a flow if that is still due; whether it was. What was judged is a copy,
    /// up to two seconds old, and the programs can open a closed flow at any moment.
    ///
    /// They cannot be kept from it between a look and the removal. So the kernel hands
    /// out what it removes, and a flow that was opened in between comes back, unless the
    /// programs have made a new one already. A program that changes the entry at that
    /// very moment sends a SYN of a flow which is then closed or gone: its datagram waits
    /// in the queue, and [`Daemon::enqueue`] sends it again, which opens the flow.
    fn take(&mut self, key: &FlowKey, is_due: impl Fn(&Flow) -> bool) -> Result<bool> {
        let maps = &mut self.attached.maps;
        if !maps.flow(key)?.as_ref().is_some_and(&is_due) {
            return Ok(false);
        }
        match maps.take_flow(key)? {
            Some(taken) if !is_due(&taken) => {
                maps.put_back(key, &taken)?;
                Ok(false)
            }
            taken => Ok(taken.is_some()),
        }
    }

    /// The same, and says why; whether the flow is gone.
    fn remove(&mut self, key: &FlowKey, why: &str, is_due: impl Fn(&Flow) -> bool) -> bool {
        let (local, remote) = (key.local(), key.remote());
        let removed = self.take(key, is_due);
        match &removed {
            Ok(true) => debug!("{local} -> {remote} removed: {why}"),
            Ok(false) => {}
            Err(error) => warn!("{local} -> {remote}: cannot remove the flow: {error:#}"),
        }
        removed.unwrap_or(false)
    }

    /// Gives every flow what it needs, and tells the programs how many are left.
    pub(super) fn sweep(&mut self) {
        let now = monotonic_ns();
        let before = self.attached.maps.opened();
        let tidies = since(now, self.doubts.tidied) > TIDY;
        // Before the flows, as these must be the newer.
        let remotes = tidies.then(|| self.attached.maps.remotes());
        let flows = match self.attached.maps.flows() {
            Ok(flows) => flows,
            Err(error) => {
                warn!("{error:#}");
                return;
            }
        };
        let after = self.attached.maps.opened();
        self.tell_refusals(&flows);
        if let Some(remotes) = remotes {
            self.doubts.tidied = now;
            let maps = &mut self.attached.maps;
            let removed = remotes.and_then(|remotes| maps.remove_unused_remotes(&remotes, &flows));
            if let Err(error) = removed {
                warn!("cannot remove addresses without flows: {error}");
            }
        }
        let left = self.serve_all(&flows, now);
        if let Err(error) = self.settle(before, after, &left) {
            warn!("cannot count the flows: {error}");
        }
    }

    /// Tells the programs how many flows are left, by what they had counted before and after
    /// the table was read. What is made later they add themselves. A flow that was answered
    /// meanwhile may count as one that waits until the next sweep: rather too many than too
    /// few.
    fn settle(
        &mut self,
        before: Result<Tally, MapError>,
        after: Result<Tally, MapError>,
        left: &Left,
    ) -> Result<(), MapError> {
        let counted = Tally {
            opened: before?.opened,
            answered: after?.answered,
        };
        let settled = counted.settle(left.waiting, left.entries);
        self.attached.maps.settle(settled)
    }

    /// Gives every flow what it needs; which are left of those that were there before.
    fn serve_all(&mut self, flows: &[(FlowKey, Flow)], now: u64) -> Left {
        let mut round = Round {
            now,
            questions: self.doubts.begin(now),
            asked: HashMap::new(),
        };
        let mut left = Left::default();
        let surplus = surplus(flows, self.attached.maps.max_flows(), now);
        for ((key, flow), surplus) in flows.iter().zip(surplus) {
            let is_gone = match flow.waits() {
                Some(opener) if surplus => {
                    self.remove(key, "too many wait", |flow| is_ripe(flow, opener, now))
                }
                _ => self.serve(key, flow, &mut round),
            };
            if !is_gone && flow.opened_at <= now {
                left.count(flow);
            }
        }
        self.doubts.asked = round.asked;
        self.doubts.reopened.retain(|_, at| since(now, *at) < SLOW);
        left
    }

    /// Gives a flow what it needs; whether it is gone then.
    fn serve(&mut self, key: &FlowKey, flow: &Flow, round: &mut Round) -> bool {
        let now = round.now;
        let is_dead = self.doubts.is_dead(key, flow, now);
        match need(flow, is_dead, &self.timers, now) {
            Need::Nothing => {}
            Need::Send(request) => {
                if request == Request::Reopen {
                    let silence = since(now, flow.unanswered_at);
                    self.observer.flow(key, News::Reopened { silence });
                    self.doubts.reopened.insert(*key, now);
                } else if request == Request::Probe && is_doubtful(flow, now) {
                    let mut question = match self.doubts.asked(key, flow) {
                        Some(asked) => *asked,
                        // Its turn comes with a later sweep.
                        None if round.questions == 0 => return false,
                        None => {
                            round.questions -= 1;
                            Asked {
                                at: now,
                                unanswered_at: flow.unanswered_at,
                                times: 0,
                            }
                        }
                    };
                    question.times += 1;
                    round.asked.insert(*key, question);
                }
                if request == Request::Probe && flow.is_unconfirmed() {
                    self.request(key, flow, Request::Confirm);
                }
                self.request(key, flow, request);
            }
            Need::Remove(why) => {
                let timers = self.timers;
                return self.remove(key, why, |flow| {
                    matches!(need(flow, is_dead, &timers, now), Need::Remove(_))
                });
            }
        }
        false
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
        (flow.opened_at, flow.syn_at, flow.syns) = (then, then, 1);
        flow.tx_packets = 1;
        flow
    }

    fn decide(flow: &Flow) -> Need {
        need(flow, false, &Timers::default(), NOW)
    }

    fn decide_dead(flow: &Flow) -> Need {
        need(flow, true, &Timers::default(), NOW)
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
        // Nor is one whose datagrams nothing answers ever asked or called.
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

    #[test]
    fn a_path_that_was_taken_for_dead_is_given_more_time() {
        let address = std::net::SocketAddr::from(([10, 0, 0, 1], 8000));
        let key = FlowKey::new(address, address);
        let mut flow = flow(State::Established, 2);
        flow.established_at = flow.syn_at + SECOND / 100;
        flow.syns = 2;
        let unanswered_at = flow.unanswered_at;
        let asked = |ago| Asked {
            at: NOW - ago,
            unanswered_at,
            times: TIMES,
        };
        let mut doubts = Doubts::default();
        assert!(!doubts.is_dead(&key, &flow, NOW), "nobody asked");
        doubts.asked.insert(key, asked(SECOND));
        assert!(
            !doubts.is_dead(&key, &flow, NOW - SECOND / 2),
            "not long ago"
        );
        assert!(doubts.is_dead(&key, &flow, NOW));
        doubts.reopened.insert(key, NOW - 30 * SECOND);
        assert!(!doubts.is_dead(&key, &flow, NOW));
        flow.syns = 1;
        assert!(doubts.is_dead(&key, &flow, NOW), "it is known to be fast");
        flow.syns = 2;
        doubts.asked.insert(key, asked(3 * SECOND));
        assert!(doubts.is_dead(&key, &flow, NOW));
        doubts.asked.insert(key, asked(SECOND));
        doubts.reopened.insert(key, NOW - 60 * SECOND);
        assert!(doubts.is_dead(&key, &flow, NOW), "that was long ago");
        flow.established_at = flow.syn_at + SECOND / 2;
        assert!(!doubts.is_dead(&key, &flow, NOW), "a slow path");
        flow.established_at = 0;
        flow.unanswered_at += 1;
        assert!(
            !doubts.is_dead(&key, &flow, NOW),
            "asked about something else"
        );
    }

    #[test]
    fn a_flow_that_the_peer_opened_is_left_to_it_for_a_while() {
        let address = std::net::SocketAddr::from(([10, 0, 0, 1], 8000));
        let key = FlowKey::new(address, address);
        let mut flow = flow(State::Established, 2);
        // No SYN of ours, on a machine that has been up for long.
        (flow.syn_at, flow.syns, flow.established_at) = (0, 0, NOW - 2 * SECOND);
        let mut doubts = Doubts::default();
        let unanswered_at = flow.unanswered_at;
        let asked = |ago, times| Asked {
            at: NOW - ago,
            unanswered_at,
            times,
        };
        doubts.asked.insert(key, asked(SECOND, TIMES));
        assert!(!doubts.is_dead(&key, &flow, NOW), "the peer's turn");
        doubts.asked.insert(key, asked(2 * SECOND, TIMES));
        assert!(doubts.is_dead(&key, &flow, NOW));
        doubts.asked.insert(key, asked(2 * SECOND, TIMES - 1));
        assert!(!doubts.is_dead(&key, &flow, NOW), "hardly asked");
    }

    #[test]
    fn questions_are_paced_and_do_not_outlast_a_pause() {
        let address = std::net::SocketAddr::from(([10, 0, 0, 1], 8000));
        let key = FlowKey::new(address, address);
        let mut doubts = Doubts::default();
        let (at, unanswered_at, times) = (NOW, NOW, 1);
        assert_eq!(doubts.begin(NOW), QUESTIONS_AT_ONCE);
        doubts.asked.insert(
            key,
            Asked {
                at,
                unanswered_at,
                times,
            },
        );
        assert_eq!(doubts.begin(NOW + SECOND / 10), QUESTIONS_A_SECOND / 10);
        assert_eq!(doubts.begin(NOW + 2 * SECOND), QUESTIONS_AT_ONCE);
        assert_eq!(doubts.asked.len(), 1);
        doubts.begin(NOW + 8 * SECOND);
        assert_eq!(doubts.asked.len(), 0, "the process was stopped");
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
    fn an_idle_flow_is_ended_though_nobody_answers() {
        let mut flow = flow(State::Established, 601);
        flow.unanswered_at = NOW - 600 * SECOND;
        assert_eq!(decide(&flow), Need::Send(Request::Finish));
        assert_eq!(decide_dead(&flow), Need::Send(Request::Finish));
    }

    #[test]
    fn ends_that_nobody_answers_are_cleared() {
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
