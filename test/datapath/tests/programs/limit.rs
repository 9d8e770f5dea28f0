//! Ingress: each kind of reply to strangers has a rate limit, so that no attacker makes this
//! host flood another, and each open flow has its own.

use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::event::Kind;
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::state::{ANSWER_AGAIN, ANSWERS, Flow, KEPT_ANSWERS, State};
use xdptun_common::tunnel::window::challenging;
use xdptun_test_datapath::path::{OWNED, syn_options};
use xdptun_test_datapath::{
    Case, Family, Limited, Moment, Packet, Path, Program, Row, Skb, check, flags, row,
};

use crate::datapath;
use crate::effects::in_state;

/// No tokens, and none to come: the bucket was filled in the future.
pub const EMPTY: [u64; 2] = [0, u64::MAX];

#[test]
fn beyond_its_rate_limit_nothing_is_answered() {
    let path = Path::server(Family::V4);
    let syn = move || {
        let syn = path.inbound().segment(flags::SYN, 7, 0);
        syn.options(&syn_options(Family::V4))
    };
    let rows = [
        row("SYN", move |_| {
            Case::ingress(syn())
                .bucket(Limited::SynAcks, EMPTY)
                .drops(Outcome::RxSyn)
                .sends(Sent::Limited)
                .keeps_answer(path.key(), 7, None)
        }),
        row("segment for nobody", move |_| {
            Case::ingress(path.inbound().segment(flags::DATA, 7, 8))
                .bucket(Limited::Resets, EMPTY)
                .drops(Outcome::RxDropNoFlow)
                .sends(Sent::Limited)
        }),
        row("a flow that this host opens", move |_| {
            Case::egress(path.outbound())
                .bucket(Limited::Opens, EMPTY)
                .drops(Outcome::TxDropOpening)
        }),
        row("an open flow needs none", move |at| {
            let case = crate::restored::restores(Program::Ingress, at, path, &path.inbound(), 0);
            spent(case)
        }),
    ];
    check(&mut datapath(), rows);
}

/// All rate limits are reached.
fn spent(case: Case) -> Case {
    let all = Limited::ALL.into_iter();
    all.fold(case, |case, limited| case.bucket(limited, EMPTY))
}

/// The answers of an open flow that carry only its numbers: challenges and the answers to
/// probes.
fn answered(path: Path, flow: &Flow) -> [(&'static str, Packet, Outcome, Sent); 4] {
    let segment = |flags, ahead: u32| {
        let sequence = flow.rcv_nxt.wrapping_add(ahead);
        path.inbound().segment(flags, sequence, flow.snd_nxt)
    };
    let syn = segment(flags::SYN, 77).options(&syn_options(path.family()));
    let reset = segment(flags::RST, 77);
    let fin = segment(flags::FIN | flags::ACK, 77);
    let probe = segment(flags::ACK, u32::MAX);
    [
        ("SYN", syn, Outcome::RxSyn, Sent::ChallengeAck),
        ("RST", reset, Outcome::RxDropReset, Sent::ChallengeAck),
        ("FIN", fin, Outcome::RxDropFin, Sent::ChallengeAck),
        ("probe", probe, Outcome::RxAck, Sent::Ack),
    ]
}

/// A flow answers at its own rate, whatever strangers have used up elsewhere and whatever
/// comes: on one flow a stranger cannot count what another one answers.
#[test]
fn an_open_flow_has_a_limit_of_its_own() {
    let mut rows: Vec<Row> = Vec::new();
    for (path, which) in crate::paths().flat_map(|path| (0..4).map(move |which| (path, which))) {
        let key = path.key();
        // The last of them is the probe.
        let kept = if which == 3 { 0 } else { KEPT_ANSWERS };
        let last = (ANSWERS - kept - 1) * ANSWER_AGAIN;
        for (owed, due) in [(0, true), (1, true), (last, true), (last + 1, false)] {
            let name = format!("{path:?}, {which}, {owed} ticks owed");
            rows.push(row(name, move |at| {
                let mut flow = path.established(at);
                flow.answers_earned_at = at.tick() + owed;
                let (_, segment, outcome, sent) = answered(path, &flow)[which].clone();
                let answer = path.control(at, flags::ACK, flow.snd_nxt, flow.rcv_nxt);
                let answer = match sent {
                    Sent::ChallengeAck => answer.marked(challenging),
                    _ => answer,
                };
                let case = spent(Case::ingress(segment).flow(key, flow)).changes(key, |flow| {
                    if outcome == Outcome::RxAck {
                        flow.received_at = at.ns();
                    }
                });
                if due {
                    case.answers(answer)
                        .counts(outcome)
                        .sends(sent)
                        .changes(key, |flow| {
                            flow.answers_earned_at = at.tick() + owed + ANSWER_AGAIN;
                        })
                } else {
                    case.drops(outcome).sends(Sent::Limited)
                }
            }));
        }
    }
    // A segment that ends the flow comes once, so it is always answered.
    rows.extend(crate::paths().map(|path| {
        row(format!("{path:?}, the peer's FIN"), move |at| {
            let mut flow = in_state(path.established(at), State::FinSent);
            flow.answers_earned_at = at.tick() + ANSWERS * ANSWER_AGAIN;
            let fin = flags::FIN | flags::ACK;
            let rcv_nxt = flow.rcv_nxt.wrapping_add(1);
            let segment = path.inbound().segment(fin, flow.rcv_nxt, flow.snd_nxt);
            spent(Case::ingress(segment).flow(path.key(), flow))
                .answers(path.control(at, flags::ACK, flow.snd_nxt, rcv_nxt))
                .counts(Outcome::RxFin)
                .sends(Sent::Ack)
                .reports(Kind::Finished, path.key())
                .changes(path.key(), |flow| {
                    flow.state = State::Closed as u32;
                    flow.rcv_nxt = rcv_nxt;
                    flow.received_at = at.ns();
                })
        })
    }));
    check(&mut datapath(), rows);
}

/// What is left of the strangers' rate limit does not show whether there is a flow: a segment that
/// an open flow refuses is charged as without the flow.
#[test]
fn refused_segments_are_charged_as_if_there_were_no_flow() {
    let mut datapath = datapath();
    for path in crate::paths().filter(|path| path.local.port() == OWNED) {
        let at = Moment::now();
        let flow = path.established(at);
        let far = |flags| {
            let sequence = flow.rcv_nxt.wrapping_add(1 << 30);
            let segment = path.inbound().segment(flags, sequence, 5);
            segment.options(if flags & flags::SYN == 0 {
                &[]
            } else {
                &[1; 12]
            })
        };
        for flags in [
            flags::SYN,
            flags::SYN | flags::ACK,
            flags::ACK,
            flags::DATA,
            flags::FIN | flags::ACK,
            flags::RST,
            flags::RST | flags::ACK,
            0,
        ] {
            let segment = far(flags).bytes();
            let mut left = |flows: &[(FlowKey, Flow)]| {
                datapath.reset();
                datapath.set_flows(flows.iter().map(|(key, flow)| (key, flow)));
                let bucket = [100, u64::MAX];
                for limited in Limited::ALL {
                    datapath.set_bucket(limited, bucket);
                }
                // Twice: what is not answered twice is not charged twice.
                for _ in 0..2 {
                    datapath.run(Program::Ingress, &segment, Skb::default());
                }
                // Which CPU runs the program is not ours to choose.
                [Limited::SynAcks, Limited::Resets].map(|limited| {
                    let spent = datapath
                        .buckets(limited)
                        .into_iter()
                        .map(|cpu| 100 - cpu[0]);
                    spent.sum::<u64>()
                })
            };
            let (without, with) = (left(&[]), left(&[(path.key(), flow)]));
            assert_eq!(with, without, "{path:?} {flags:#x}");
        }
    }
}

#[test]
fn a_bucket_is_spent_and_filled() {
    let mut datapath = datapath();
    let path = Path::server(Family::V6);
    let segment = path.inbound().segment(flags::ACK, 7, 8).bytes();
    let mut answers = |bucket| {
        datapath.reset();
        datapath.set_bucket(Limited::Resets, bucket);
        // Which CPU runs the program is not ours to choose.
        let ran = datapath.run(Program::Ingress, &segment, Skb::default());
        let after = datapath.buckets(Limited::Resets);
        let changed: Vec<_> = after.into_iter().filter(|cpu| *cpu != bucket).collect();
        (ran.verdict == 7, changed)
    };
    assert_eq!(answers(EMPTY), (false, vec![]));
    assert_eq!(answers([1, u64::MAX]), (true, vec![[0, u64::MAX]]));
    assert_eq!(answers([500, u64::MAX]), (true, vec![[499, u64::MAX]]));

    let long_ago = Moment::now().before_ms(1100);
    let (answered, changed) = answers([0, long_ago]);
    assert!(answered);
    assert_eq!(changed.len(), 1);
    assert_eq!(changed[0][0], 4095, "the bucket is full after a pause");
    assert!(changed[0][1] > long_ago);
}
