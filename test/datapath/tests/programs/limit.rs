//! Ingress: each kind of reply has a budget, so that nobody makes us flood
//! anyone, and strangers cannot use up what the peer needs.

use xdptun_common::counter::{Outcome, Sent};
use xdptun_common::flow::State;
use xdptun_test_datapath::path::syn_options;
use xdptun_test_datapath::{Case, Family, Limited, Moment, Path, Program, Skb, check, flags, row};

use crate::datapath;
use crate::effects::in_state;

/// No tokens, and none to come: the bucket was filled in the future.
pub const EMPTY: [u64; 2] = [0, u64::MAX];

#[test]
fn without_budget_nothing_is_answered() {
    let path = Path::server(Family::V4);
    let key = path.key();
    let syn = move || {
        let syn = path.inbound().segment(flags::SYN, 7, 0);
        syn.options(&syn_options(Family::V4))
    };
    let rows = [
        row("SYN", move |_| {
            Case::ingress(syn())
                .budget(Limited::SynAcks, EMPTY)
                .drops(Outcome::RxSyn)
                .sends(Sent::Limited)
        }),
        row("segment for nobody", move |_| {
            Case::ingress(path.inbound().segment(flags::DATA, 7, 8))
                .budget(Limited::Resets, EMPTY)
                .drops(Outcome::RxDropNoFlow)
                .sends(Sent::Limited)
        }),
        row("SYN on an open flow", move |at| {
            Case::ingress(syn())
                .budget(Limited::Challenges, EMPTY)
                .flow(key, path.established(at))
                .drops(Outcome::RxSyn)
                .sends(Sent::Limited)
        }),
        row("the state changes all the same", move |at| {
            let flow = in_state(path.established(at), State::FinSent);
            let fin = flags::FIN | flags::ACK;
            Case::ingress(path.inbound().segment(fin, flow.rcv_nxt, flow.snd_nxt))
                .budget(Limited::Acks, EMPTY)
                .flow(key, flow)
                .drops(Outcome::RxFin)
                .sends(Sent::Limited)
                .reports(xdptun_common::event::Kind::Finished, key)
                .changes(key, |flow| {
                    flow.state = State::Closed as u32;
                    flow.rcv_nxt = flow.rcv_nxt.wrapping_add(1);
                    flow.received_at = at.ns();
                })
        }),
        row(
            "a probe of the peer, when all others are spent",
            move |at| {
                let flow = path.established(at);
                let probe =
                    path.inbound()
                        .segment(flags::ACK, flow.rcv_nxt.wrapping_sub(1), flow.snd_nxt);
                Case::ingress(probe)
                    .budget(Limited::SynAcks, EMPTY)
                    .budget(Limited::Resets, EMPTY)
                    .budget(Limited::Challenges, EMPTY)
                    .flow(key, flow)
                    .answers(path.control(at, flags::ACK, flow.snd_nxt, flow.rcv_nxt))
                    .counts(Outcome::RxAck)
                    .sends(Sent::Ack)
                    .changes(key, |flow| flow.received_at = at.ns())
            },
        ),
        row("what needs no answer goes on", move |at| {
            crate::restored::restores(Program::Ingress, at, path, &path.inbound(), 0)
                .budget(Limited::Acks, EMPTY)
        }),
    ];
    check(&mut datapath(), rows);
}

#[test]
fn the_budget_is_spent_and_earned() {
    let mut datapath = datapath();
    let path = Path::server(Family::V6);
    let segment = path.inbound().segment(flags::ACK, 7, 8).bytes();
    let mut answers = |budget| {
        datapath.reset();
        datapath.set_budget(Limited::Resets, budget);
        // Which CPU runs the program is not ours to choose.
        let ran = datapath.run(Program::Ingress, &segment, Skb::default());
        let after = datapath.budgets(Limited::Resets);
        let changed: Vec<_> = after.into_iter().filter(|cpu| *cpu != budget).collect();
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
