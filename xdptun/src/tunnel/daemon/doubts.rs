//! Paths that may be dead. The daemon probes the peer and gives it time to answer before it
//! opens the flow again.

use std::collections::HashMap;
use std::time::Duration;

use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::state::Flow;

use super::round_trip::RoundTrip;
use crate::host::clock::since;

/// How long the daemon probes a peer before the path counts as dead: in all less than the second
/// after which most applications try again.
const ASKED: Duration = Duration::from_millis(350);
/// How many probes it sends in that time, and how many there must be at least, even if sweeps are
/// rare.
const TIMES: u32 = 4;
const TIMES_AT_LEAST: u32 = 3;
/// How many further peers the daemon probes in a second, and in one sweep. All flows may
/// lead to one host, which answers 16,384 probes per second and CPU.
const QUESTIONS_A_SECOND: u32 = 16384;
const QUESTIONS_AT_ONCE: u32 = 4096;
/// As [`ASKED`], if the peer opened the flow: the peer should open it again first. A SYN of
/// this host may lead nowhere (a NAT). If two SYNs cross, a firewall that still knows the
/// old connection drops both.
const ASKED_OF_CALLER: Duration = Duration::from_millis(750);
/// As [`ASKED`], if the daemon opened the flow again less than [`SLOW`] ago and the round trip
/// is unknown: the path may be slow, not dead.
const ASKED_AGAIN: Duration = Duration::from_secs(2);
const SLOW: Duration = Duration::from_secs(60);
/// After such a pause between sweeps (the process was stopped, or the machine slept)
/// earlier probes say nothing.
const STALLED: Duration = Duration::from_secs(5);

/// What the daemon remembers of flows whose path is in doubt. Times are in nanoseconds of
/// `CLOCK_MONOTONIC`.
#[derive(Default)]
pub struct Doubts {
    /// Peers that the daemon probes.
    asked: HashMap<FlowKey, Asked>,
    /// Time of the last sweep; zero before the first.
    swept: u64,
    /// When the daemon last opened a flow again.
    reopened: HashMap<FlowKey, u64>,
}

#[derive(Clone, Copy)]
struct Asked {
    /// When the first probe was sent.
    at: u64,
    /// The flow's `unanswered_at` at that time: which datagram the probes are about.
    unanswered_at: u64,
    /// How many probes were sent.
    times: u32,
}

/// The questions of one sweep.
pub struct Round {
    /// When it began.
    pub now: u64,
    /// How many further peers it may probe.
    questions: u32,
    /// The peers that it probed.
    asked: HashMap<FlowKey, Asked>,
}

impl Doubts {
    /// The probes about the datagram that is unanswered now.
    fn asked(&self, key: &FlowKey, flow: &Flow) -> Option<&Asked> {
        let asked = self.asked.get(key)?;
        (asked.unanswered_at == flow.unanswered_at).then_some(asked)
    }

    /// Begins a sweep.
    pub fn begin(&mut self, now: u64) -> Round {
        let elapsed = since(now, self.swept);
        if elapsed > STALLED {
            self.asked.clear();
        }
        self.swept = now;
        let questions = elapsed.as_secs_f64() * f64::from(QUESTIONS_A_SECOND);
        Round {
            now,
            questions: (questions as u32).min(QUESTIONS_AT_ONCE),
            asked: HashMap::new(),
        }
    }

    /// Whether the peer of a doubtful flow is to be probed in this sweep, or has to wait for a
    /// later one. Notes the probe.
    pub fn ask(&self, round: &mut Round, key: &FlowKey, flow: &Flow) -> bool {
        let mut question = match self.asked(key, flow) {
            Some(asked) => *asked,
            None if round.questions == 0 => return false,
            None => {
                round.questions -= 1;
                Asked {
                    at: round.now,
                    unanswered_at: flow.unanswered_at,
                    times: 0,
                }
            }
        };
        let pause = self.patience(key, flow, round.now) / TIMES;
        let is_due = since(round.now, question.at) >= pause * question.times;
        question.times += u32::from(is_due);
        round.asked.insert(*key, question);
        is_due
    }

    /// Notes that the daemon opens a flow again.
    pub fn reopen(&mut self, key: &FlowKey, now: u64) {
        self.reopened.insert(*key, now);
    }

    /// Ends a sweep. Flows that it did not probe are no longer in doubt.
    pub fn end(&mut self, round: Round) {
        self.asked = round.asked;
        let is_new = |at| since(round.now, at) < SLOW;
        self.reopened.retain(|_, at| is_new(*at));
    }

    /// Whether the path of a flow counts as dead.
    pub fn is_dead(&self, key: &FlowKey, flow: &Flow, now: u64) -> bool {
        self.asked(key, flow).is_some_and(|asked| {
            let patience = self.patience(key, flow, now);
            asked.times >= TIMES_AT_LEAST && since(now, asked.at) > patience
        })
    }

    /// How long the daemon probes the peer of a flow before its path counts as dead.
    fn patience(&self, key: &FlowKey, flow: &Flow, now: u64) -> Duration {
        let is_new = |at| since(now, at) < SLOW;
        let may_be_slow = self.reopened.get(key).copied().is_some_and(is_new);
        let round_trip = RoundTrip::of(flow);
        match round_trip {
            RoundTrip::AtLeast(_) | RoundTrip::Unknown if may_be_slow => ASKED_AGAIN,
            RoundTrip::Known(time) | RoundTrip::AtLeast(time) => {
                ASKED.max(3 * time).max(round_trip.allowed())
            }
            RoundTrip::Unknown => ASKED_OF_CALLER,
        }
    }
}

#[cfg(test)]
mod tests {
    use xdptun_common::tunnel::state::State;

    use super::super::sample::{NOW, SECOND, flow};
    use super::*;

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
        assert!(!doubts.is_dead(&key, &flow, NOW), "no probe yet");
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
        doubts.asked.insert(key, asked(SECOND / 2, TIMES));
        assert!(!doubts.is_dead(&key, &flow, NOW), "the peer's turn");
        doubts.asked.insert(key, asked(2 * SECOND, TIMES));
        assert!(doubts.is_dead(&key, &flow, NOW));
        doubts
            .asked
            .insert(key, asked(2 * SECOND, TIMES_AT_LEAST - 1));
        assert!(!doubts.is_dead(&key, &flow, NOW), "hardly asked");
    }

    /// A slow path brings an answer late, and is not asked more often for it.
    #[test]
    fn a_peer_is_probed_four_times_before_its_path_counts_as_dead() {
        const MS: u64 = SECOND / 1000;
        let address = std::net::SocketAddr::from(([10, 0, 0, 1], 8000));
        let key = FlowKey::new(address, address);
        for (round_trip, asked, dead) in [
            (10, [0, 100, 200, 300], 400),
            (560, [0, 500, 900, 1300], 1700),
        ] {
            let mut flow = flow(State::Established, 2);
            flow.established_at = flow.syn_at + round_trip * MS;
            let mut doubts = Doubts::default();
            let mut probes = Vec::new();
            let died = (0..).step_by(100).find(|ms| {
                let now = NOW + ms * MS;
                let is_dead = doubts.is_dead(&key, &flow, now);
                let mut round = doubts.begin(now);
                if !is_dead && doubts.ask(&mut round, &key, &flow) {
                    probes.push(*ms);
                }
                doubts.end(round);
                is_dead
            });
            assert_eq!(
                (&probes[..], died),
                (&asked[..], Some(dead)),
                "{round_trip} ms"
            );
        }
    }

    #[test]
    fn questions_are_paced_and_do_not_outlast_a_pause() {
        let address = std::net::SocketAddr::from(([10, 0, 0, 1], 8000));
        let key = FlowKey::new(address, address);
        let mut doubts = Doubts::default();
        let (at, unanswered_at, times) = (NOW, NOW, 1);
        assert_eq!(doubts.begin(NOW).questions, QUESTIONS_AT_ONCE);
        doubts.asked.insert(
            key,
            Asked {
                at,
                unanswered_at,
                times,
            },
        );
        assert_eq!(
            doubts.begin(NOW + SECOND / 10).questions,
            QUESTIONS_A_SECOND / 10
        );
        assert_eq!(doubts.begin(NOW + 2 * SECOND).questions, QUESTIONS_AT_ONCE);
        assert_eq!(doubts.asked.len(), 1);
        doubts.begin(NOW + 8 * SECOND);
        assert_eq!(doubts.asked.len(), 0, "the process was stopped");
    }
}
