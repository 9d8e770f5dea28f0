//! The tables themselves: a row that expects anything else than what happens
//! must fail.

use xdptun_common::tunnel::event::Kind;
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::state::State;
use xdptun_test_datapath::case::failures;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{Case, Family, Moment, Path, check, flags, row};

use crate::datapath;

const PATH: Path = Path::client(Family::V4);

/// A row that touches all that is compared: an answer, counters, a record, a
/// flow.
fn answer(at: Moment) -> Case {
    let flow = PATH.established(at);
    let fin = flags::FIN | flags::ACK;
    let rcv_nxt = flow.rcv_nxt.wrapping_add(1);
    Case::ingress(PATH.inbound().segment(fin, flow.rcv_nxt, flow.snd_nxt))
        .marked(5)
        .flow(PATH.key(), flow)
        .answers(PATH.control(at, fin, flow.snd_nxt, rcv_nxt))
        .counts(Outcome::RxFin)
        .sends(Sent::Fin)
        .reports(Kind::Finished, PATH.key())
        .changes(PATH.key(), |flow| {
            flow.state = State::Closed as u32;
            flow.rcv_nxt = rcv_nxt;
            flow.snd_nxt = flow.snd_nxt.wrapping_add(1);
            flow.received_at = at.ns();
        })
}

/// A queued datagram.
fn waits(at: Moment) -> Case {
    let datagram = PATH.outbound().payload(payload(9));
    let mut flow = PATH.opening(at);
    flow.syn_at = at.before_ms(20);
    Case::egress(&datagram)
        .flow(PATH.key(), flow)
        .swallows()
        .counts(Outcome::TxQueued)
        .queues(PATH.key(), datagram)
}

/// A change that makes a right row wrong.
type Alter = fn(Case, Moment) -> Case;

#[test]
fn wrong_rows_fail() {
    let mut datapath = datapath();
    check(&mut datapath, [row("answer", answer), row("waits", waits)]);

    let alterations: [(&str, Alter); 11] = [
        ("another verdict", |case, _| case.passes_as(PATH.inbound())),
        ("nothing to answer", |case, _| {
            case.swallows().marked(0).counts(Outcome::RxFin)
        }),
        ("another mark", |case, _| case.unmarks()),
        ("one counter more", |case, _| case.counts(Outcome::RxAck)),
        ("a counter twice", |case, _| case.sends(Sent::Fin)),
        ("one record more", |case, _| {
            case.reports(Kind::Reset, PATH.key())
        }),
        ("another flow", |case, _| {
            case.changes(PATH.key(), |flow| flow.acked += 1)
        }),
        ("one flow more", |case, at| {
            let path = Path::server(Family::V6);
            case.adds(path.key(), path.established(at))
        }),
        ("one fragment more", |case, _| case.remembers([1; 40])),
        ("another fragment's time", |case, at| {
            case.refused([1; 40], at.before_ms(1)).remembers([1; 40])
        }),
        ("the flow unchanged", |case, at| {
            case.flow(PATH.key(), PATH.established(at))
        }),
    ];
    for (name, alter) in alterations {
        let rows = [row(name, move |at| alter(answer(at), at))];
        assert_eq!(failures(&mut datapath, rows).len(), 1, "{name}");
    }
    for at_byte in 0..54 {
        let altered = [row(format!("byte {at_byte}"), move |at| {
            let flow = PATH.established(at);
            let rcv_nxt = flow.rcv_nxt.wrapping_add(1);
            let fin = flags::FIN | flags::ACK;
            let mut bytes = PATH.control(at, fin, flow.snd_nxt, rcv_nxt).bytes();
            bytes[at_byte] ^= 1;
            answer(at).answers(bytes)
        })];
        assert_eq!(failures(&mut datapath, altered).len(), 1, "byte {at_byte}");
    }
    let altered: [(&str, Alter); 2] = [
        ("another frame", |case, _| {
            case.queues(PATH.key(), PATH.outbound())
        }),
        ("another kind", |case, _| {
            case.reports(Kind::Queued, PATH.key())
        }),
    ];
    for (name, alter) in altered {
        let rows = [row(name, move |at| alter(waits(at), at))];
        assert_eq!(failures(&mut datapath, rows).len(), 1, "{name}");
    }
}
