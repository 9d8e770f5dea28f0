//! Ingress: numbers that were lost or forged. Firewalls on the way know those of data alone.

use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::state::{ANSWER_AGAIN, MAX_STEP, State};
use xdptun_common::tunnel::window::{asking, challenging};
use xdptun_test_datapath::{Case, Row, check, flags, row};

use crate::effects::in_state;
use crate::open_flow::{WINDOW, segment};
use crate::{datapath, paths};

const FIN_ACK: u8 = flags::FIN | flags::ACK;

/// A probe names what was lost before it; no firewall has seen that, so it is not acknowledged.
#[test]
fn what_was_lost_is_not_acknowledged() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for lost in [1, 1000, MAX_STEP, WINDOW] {
            rows.push(row(format!("{path:?}, {lost:#x}"), move |at| {
                let flow = path.established(at);
                let probe = segment(&flow, path, flags::ACK, [lost - 1, 0], 0);
                Case::ingress(probe.window(asking(0xf000)))
                    .flow(path.key(), flow)
                    .answers(path.control(at, flags::ACK, flow.snd_nxt, flow.rcv_nxt))
                    .counts(Outcome::RxAck)
                    .sends(Sent::Ack)
                    .changes(path.key(), |flow| {
                        flow.received_at = at.ns();
                        flow.answers_earned_at = at.tick() + ANSWER_AGAIN;
                    })
            }));
        }
    }
    check(&mut datapath(), rows);
}

/// A peer that misses what was sent before our FIN gets one with the number that it expects.
#[test]
fn a_fin_after_a_loss_is_repeated() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for missed in [1, 300, 500] {
            for mark in [asking, challenging] {
                rows.push(row(format!("{path:?}, {missed}"), move |at| {
                    let flow = in_state(path.established(at), State::FinSent);
                    let expected = flow.snd_nxt.wrapping_sub(missed);
                    let sequence = if mark(0) == asking(0) { u32::MAX } else { 0 };
                    let numbers = [sequence, missed.wrapping_neg()];
                    let segment = segment(&flow, path, flags::ACK, numbers, 0);
                    Case::ingress(segment.window(mark(0xf000)))
                        .flow(path.key(), flow)
                        .answers(path.control(at, FIN_ACK, expected, flow.rcv_nxt))
                        .counts(Outcome::RxAck)
                        .sends(Sent::Fin)
                        .changes(path.key(), |flow| {
                            if mark(0) == asking(0) {
                                flow.received_at = at.ns();
                            }
                            flow.answers_earned_at = at.tick() + ANSWER_AGAIN;
                        })
                }));
            }
        }
    }
    check(&mut datapath(), rows);
}

/// The peer's own numbers undo the move by a forged segment. A challenge is no sign that
/// the peer takes what is sent.
#[test]
fn numbers_heal() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for moved in [2, 5000, MAX_STEP, WINDOW] {
            rows.push(row(format!("{path:?}, by {moved:#x}"), move |at| {
                let mut flow = path.established(at);
                let truth = flow.rcv_nxt;
                flow.rcv_nxt = truth.wrapping_add(moved);
                let challenge = path
                    .inbound()
                    .segment(flags::ACK, truth, flow.snd_nxt)
                    .window(challenging(0xf000));
                Case::ingress(challenge)
                    .flow(path.key(), flow)
                    .drops(Outcome::RxAck)
                    .changes(path.key(), |flow| {
                        flow.rcv_nxt = truth;
                        flow.link = path.outbound().link();
                    })
            }));
        }
    }
    check(&mut datapath(), rows);
}
