//! Egress: marked packets become the control segments that their mark asks for.

use xdptun_common::tunnel::config::Request;
use xdptun_common::tunnel::isn::far_from;
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::state::{Flow, State};
use xdptun_common::tunnel::window::asking;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{Case, Family, Moment, Path, Row, check, flags, row};

use crate::effects::{acknowledged, begun, in_state, unanswered};
use crate::{datapath, paths};

/// Every request that is granted, and what is near to it.
pub fn granted_requests() -> Vec<Row> {
    [
        repeated_syns(),
        reopenings(),
        probes(),
        ends(Sent::Fin, flags::FIN),
        acknowledgements(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The daemon's frame: an empty datagram with a mark.
pub fn asks(path: Path, request: Request) -> Case {
    Case::egress(path.outbound()).marked(request.mark())
}

/// The request has become a segment; its mark is gone.
pub fn granted(case: Case, sent: Sent) -> Case {
    case.unmarks().counts(Outcome::TxRequested).sends(sent)
}

/// Every request that the flow's state gives no reason for is dropped.
#[test]
fn no_flow_or_another_state() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let path = Path::client(family);
        for request in [
            Request::RetransmitSyn,
            Request::Reopen,
            Request::Probe,
            Request::Finish,
            Request::Confirm,
        ] {
            rows.push(row(format!("{family:?} {request:?}, no flow"), move |_| {
                asks(path, request).drops(Outcome::TxNotRequested)
            }));
        }
        for (request, state) in [
            (Request::RetransmitSyn, State::Closed),
            (Request::RetransmitSyn, State::Established),
            (Request::RetransmitSyn, State::FinSent),
            // An answer came meanwhile.
            (Request::Reopen, State::Established),
            (Request::Reopen, State::Closed),
            (Request::Reopen, State::SynSent),
            (Request::Reopen, State::SynReceived),
            (Request::Reopen, State::FinSent),
            (Request::Probe, State::Closed),
            (Request::Probe, State::SynSent),
            (Request::Probe, State::SynReceived),
            (Request::Probe, State::FinSent),
            (Request::Finish, State::Closed),
            // More was acknowledged meanwhile.
            (Request::Confirm, State::Established),
            (Request::Confirm, State::Closed),
            (Request::Confirm, State::SynSent),
            (Request::Confirm, State::SynReceived),
            (Request::Confirm, State::FinSent),
        ] {
            rows.push(row(format!("{family:?} {request:?}, {state:?}"), {
                move |at| {
                    let mut flow = in_state(path.established(at), state);
                    flow.syn_at = 0;
                    asks(path, request)
                        .flow(path.key(), flow)
                        .drops(Outcome::TxNotRequested)
                }
            }));
        }
    }
    check(&mut datapath(), rows);
}

fn repeated_syns() -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        for state in [State::SynSent, State::SynReceived] {
            let flow = move |at: Moment, age_ms| {
                let mut flow = in_state(path.opening(at), state);
                flow.iss = 0xdead_beef;
                flow.syns = 2;
                flow.syn_at = at.before_ms(age_ms);
                flow
            };
            rows.push(row(format!("{path:?} {state:?}, due"), move |at| {
                let flow = flow(at, 1000);
                let segment = path.control_of(at, &flow, flags::SYN, 0xdead_beef, 0);
                granted(asks(path, Request::RetransmitSyn), Sent::Syn)
                    .flow(path.key(), flow)
                    .passes_as(segment)
                    .changes(path.key(), |flow| {
                        flow.syns = 3;
                        flow.syn_at = at.ns();
                    })
            }));
            rows.push(row(format!("{path:?} {state:?}, not due"), move |at| {
                asks(path, Request::RetransmitSyn)
                    .flow(path.key(), flow(at, 999))
                    .drops(Outcome::TxNotRequested)
            }));
        }
    }
    rows
}

#[test]
fn a_syn_is_repeated_when_due() {
    check(&mut datapath(), repeated_syns());
}

/// A flow whose path is dead starts again, far from its old numbers.
fn reopenings() -> Vec<Row> {
    let reopening = |path: Path| {
        row(format!("{path:?}"), move |at| {
            let flow = silent(path, at, 481);
            let iss = far_from(flow.snd_nxt, at.isn(&path.key()));
            granted(asks(path, Request::Reopen), Sent::Syn)
                .flow(path.key(), flow)
                .passes_as(path.control_of(at, &Flow { syns: 0, ..flow }, flags::SYN, iss, 0))
                .changes(path.key(), |flow| {
                    flow.state = State::SynSent as u32;
                    begun(flow, at, iss);
                    flow.rcv_nxt = 0;
                    (flow.opened_at, flow.established_at) = (at.ns(), 0);
                    (flow.syns, flow.syn_at) = (1, at.ns());
                })
        })
    };
    // An answer came since the daemon looked, and something was sent after it.
    let alive = |path: Path| {
        row(format!("{path:?}, alive"), move |at| {
            asks(path, Request::Reopen)
                .flow(path.key(), silent(path, at, 470))
                .drops(Outcome::TxNotRequested)
        })
    };
    paths()
        .flat_map(|path| [reopening(path), alive(path)])
        .collect()
}

/// An open flow whose peer has not answered for so many milliseconds.
fn silent(path: Path, at: Moment, ms: u64) -> Flow {
    Flow {
        received_at: at.before_ms(ms + 1),
        unanswered_at: at.before_ms(ms),
        ..path.established(at)
    }
}

#[test]
fn a_dead_flow_starts_again() {
    check(&mut datapath(), reopenings());
}

/// A probe repeats the sequence number before the next (RFC 9293 section 3.8.4).
fn probes() -> Vec<Row> {
    let probe = |path: Path| {
        row(format!("{path:?}"), move |at| {
            let mut flow = path.established(at);
            flow.acked = flow.rcv_nxt.wrapping_sub(500);
            let sequence = flow.snd_nxt.wrapping_sub(1);
            granted(asks(path, Request::Probe), Sent::Probe)
                .flow(path.key(), flow)
                .passes_as(
                    path.control(at, flags::ACK, sequence, flow.rcv_nxt)
                        .marked(asking),
                )
                .changes(path.key(), |flow| {
                    unanswered(flow, at);
                    acknowledged(flow, at);
                })
        })
    };
    paths().map(probe).collect()
}

#[test]
fn a_probe() {
    check(&mut datapath(), probes());
}

/// The ACK of the handshake again, unless the peer has acknowledged more.
#[test]
fn a_confirmation() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        rows.push(row(format!("{path:?}"), move |at| {
            let mut flow = path.established(at);
            flow.snd_una = flow.iss.wrapping_add(1);
            granted(asks(path, Request::Confirm), Sent::Ack)
                .flow(path.key(), flow)
                .passes_as(path.control(at, flags::ACK, flow.snd_una, flow.rcv_nxt))
                .changes(path.key(), |flow| acknowledged(flow, at))
        }));
    }
    check(&mut datapath(), rows);
}

/// The ends of flows by a segment of this kind with this flag.
pub fn ends(kind: Sent, flag: u8) -> Vec<Row> {
    let flags = flag | flags::ACK;
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        rows.push(row(format!("{path:?}"), move |at| {
            let mut flow = path.established(at);
            flow.acked = flow.rcv_nxt.wrapping_sub(1);
            let end = path.control(at, flags, flow.snd_nxt, flow.rcv_nxt);
            granted(asks(path, Request::Finish), kind)
                .flow(path.key(), flow)
                .passes_as(end)
                .changes(path.key(), |flow| {
                    flow.state = State::FinSent as u32;
                    flow.snd_nxt = flow.snd_nxt.wrapping_add(1);
                    flow.syn_at = at.ns();
                    acknowledged(flow, at);
                })
        }));
        rows.push(row(format!("{path:?}, again"), move |at| {
            let flow = in_state(path.established(at), State::FinSent);
            let sequence = flow.snd_nxt.wrapping_sub(1);
            let end = path.control(at, flags, sequence, flow.rcv_nxt);
            granted(asks(path, Request::Finish), kind)
                .flow(path.key(), flow)
                .passes_as(end)
                .changes(path.key(), |flow| acknowledged(flow, at))
        }));
        for state in [State::SynSent, State::SynReceived] {
            rows.push(row(format!("{path:?}, {state:?}"), move |at| {
                asks(path, Request::Finish)
                    .flow(path.key(), in_state(path.opening(at), state))
                    .drops(Outcome::TxNotRequested)
                    .changes(path.key(), |flow| flow.state = State::Closed as u32)
            }));
        }
    }
    rows
}

#[test]
fn a_clean_end() {
    check(&mut datapath(), ends(Sent::Fin, flags::FIN));
}

/// The clone of an inbound segment turns round and becomes its acknowledgement.
fn acknowledgements() -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        let acknowledges = move |at: Moment, flow: Flow, len, options: &[u8]| {
            let segment = path
                .inbound()
                .payload(payload(len))
                .tos(0x10)
                .ttl(50)
                .segment(flags::DATA, flow.rcv_nxt, flow.snd_nxt)
                .options(options);
            granted(
                Case::egress(segment).marked(Request::Acknowledge.mark()),
                Sent::Ack,
            )
            .flow(path.key(), flow)
            .passes_as(path.control(at, flags::ACK, flow.snd_nxt, flow.rcv_nxt))
            .changes(path.key(), |flow| acknowledged(flow, at))
        };
        for len in [0, 1, 2, 3, 20, 33, 34, 35, 53, 54, 55, 1400, 3000] {
            rows.push(row(format!("{path:?}, {len} bytes"), move |at| {
                let mut flow = path.established(at);
                flow.acked = flow.rcv_nxt.wrapping_sub(70_000);
                acknowledges(at, flow, len, &[])
            }));
        }
        rows.push(row(format!("{path:?}, options"), move |at| {
            acknowledges(at, path.established(at), 3, &[1; 40])
        }));
    }
    let path = Path::client(Family::V4);
    rows.push(row("no flow any more", move |_| {
        Case::egress(path.inbound().segment(flags::DATA, 1, 2))
            .marked(Request::Acknowledge.mark())
            .drops(Outcome::TxNotRequested)
    }));
    rows
}

#[test]
fn an_acknowledgement() {
    check(&mut datapath(), acknowledgements());
}

/// Only a segment can be acknowledged: a datagram with that mark is any other.
#[test]
fn a_datagram_with_the_mark_of_a_segment() {
    check(
        &mut datapath(),
        [row("dropped like one", |at| {
            let path = Path::client(Family::V4);
            Case::egress(path.outbound().payload(payload(8)))
                .marked(Request::Acknowledge.mark())
                .flow(path.key(), in_state(path.established(at), State::FinSent))
                .drops(Outcome::TxDropClosing)
        })],
    );
}
