//! Peers that run phantun and not xdptun.

use std::sync::{LazyLock, Mutex};

use xdptun_common::attachment::IngressMode;
use xdptun_common::flow::tick::Tick;
use xdptun_common::tunnel::ack::AckMarks;
use xdptun_common::tunnel::config::{Phantuns, Request};
use xdptun_common::tunnel::event::Kind;
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::state::{Flow, KeptFields, State};
use xdptun_common::tunnel::window::asking;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{
    Case, Config, Datapath, Family, Moment, Path, Program, Row, check, flags, row,
};

use crate::effects::{acknowledged, closed, in_state, received, unanswered};
use crate::opening::opens;
use crate::requests::{asks, ends, granted};
use crate::{Shared, lock, paths};

static ALL: Shared = LazyLock::new(|| of(Phantuns::All));
static SOME: Shared = LazyLock::new(|| of(Phantuns::Some));

fn of(phantuns: Phantuns) -> Mutex<Datapath> {
    Mutex::new(Datapath::new(&Config {
        phantuns,
        ..Config::default()
    }))
}

/// A phantun takes no SYN with another sequence number than 0.
fn calls(at: Moment, path: Path) -> Case {
    let datagram = path.outbound().payload(payload(77));
    let opened = Flow {
        iss: 0,
        snd_una: 1,
        snd_nxt: 1,
        ack_marks: AckMarks::new(1, Tick(at.tick())),
        kept_fields: KeptFields::new(at.identification(&path.key(), 0)).seen(datagram.fields()),
        ..path.opening(at)
    };
    let unopened = Flow { syns: 0, ..opened };
    Case::egress(&datagram)
        .passes_as(path.control_of(at, &unopened, flags::SYN, 0, 0))
        .counts(Outcome::TxOpened)
        .sends(Sent::Syn)
        .queues(path.key(), &datagram)
        .adds(path.key(), opened)
}

/// Its client has no listener: only the client can open a connection.
fn does_not_call(path: Path) -> Case {
    Case::egress(path.outbound().payload(payload(77))).drops(Outcome::TxDropClient)
}

#[test]
fn a_phantun_server_is_called_with_number_0_and_a_client_not() {
    let rows = |stranger_is_one: bool| {
        let mut rows: Vec<Row> = Vec::new();
        for family in Family::ALL {
            let (client, server) = (Path::client(family), Path::server(family));
            rows.push(row(format!("{family:?} server"), move |at| {
                calls(at, client)
            }));
            rows.push(row(format!("{family:?} server, again"), move |at| {
                let closed = in_state(client.established(at), State::Closed);
                let datagram = client.outbound().payload(payload(77));
                let mut case = calls(at, client).flow(client.key(), closed);
                case = case.changes(client.key(), |flow| {
                    *flow = Flow {
                        state: State::SynSent as u32,
                        iss: 0,
                        snd_una: 1,
                        snd_nxt: 1,
                        rcv_nxt: 0,
                        ack_marks: AckMarks::new(1, Tick(at.tick())),
                        opened_at: at.ns(),
                        established_at: 0,
                        syn_at: at.ns(),
                        syns: 1,
                        ..*flow
                    };
                    flow.kept_fields = flow.kept_fields.seen(datagram.fields());
                });
                let reopened = Flow { syns: 0, ..closed };
                case.passes_as(client.control_of(at, &reopened, flags::SYN, 0, 0))
            }));
            rows.push(row(format!("{family:?} client"), move |_| {
                does_not_call(server)
            }));
            let stranger = Path::with_stranger(family);
            rows.push(row(
                format!("{family:?} stranger"),
                move |at| match stranger_is_one {
                    true => does_not_call(stranger),
                    false => opens(at, stranger, &stranger.outbound().payload(payload(77))),
                },
            ));
        }
        rows
    };
    check(&mut lock(&ALL), rows(true));
    check(&mut lock(&SOME), rows(false));
}

/// It knows no FIN.
#[test]
fn a_flow_ends_with_a_reset() {
    let mut rows = ends(Sent::Rst, flags::RST);
    for path in paths() {
        rows.push(row(format!("{path:?}, its answer"), move |at| {
            let flow = in_state(path.established(at), State::FinSent);
            let reset = path.inbound().segment(flags::RST, flow.rcv_nxt, 0);
            Case::ingress(reset.window(u16::MAX))
                .flow(path.key(), flow)
                .ends()
                .counts(Outcome::RxRst)
                .reports(Kind::Reset, path.key())
                .changes(path.key(), |flow| closed(flow, at))
        }));
    }
    check(&mut lock(&ALL), rows);
}

/// It would acknowledge the number before the next one from then on, which the flow refuses.
#[test]
fn a_probe_has_the_next_number_and_no_flow_is_opened_again() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        rows.push(row(format!("{path:?} probe"), move |at| {
            let flow = path.established(at);
            let probe = path.control_of(at, &flow, flags::ACK, flow.snd_nxt, flow.rcv_nxt);
            granted(asks(path, Request::Probe), Sent::Probe)
                .flow(path.key(), flow)
                .passes_as(probe.marked(asking))
                .changes(path.key(), |flow| {
                    unanswered(flow, at);
                    acknowledged(flow, at);
                })
        }));
        rows.push(row(format!("{path:?} open again"), move |at| {
            let mut flow = path.established(at);
            flow.unanswered_at = at.before_ms(5000);
            flow.received_at = at.before_ms(6000);
            asks(path, Request::Reopen)
                .flow(path.key(), flow)
                .drops(Outcome::TxNotRequested)
        }));
        let fragment = path
            .outbound()
            .payload(payload(3000))
            .part(7, (0, 1448, true));
        rows.push(row(format!("{path:?} fragment"), move |at| {
            Case::egress(&fragment)
                .flow(path.key(), path.established(at))
                .drops(Outcome::TxDropFragment)
                .remembers(fragment.fragmented())
        }));
    }
    check(&mut lock(&ALL), rows);
}

/// As its segments have no PSH, a lower interface may have merged them, which XDP in the stack cannot see.
#[test]
fn xdp_in_the_stack_leaves_its_segments_to_tc() {
    for phantuns in [Phantuns::All, Phantuns::Some] {
        let mut datapath = Datapath::new(&Config {
            phantuns,
            ingress: IngressMode::XdpGeneric,
            ..Config::default()
        });
        let rows = paths().map(|path| {
            row(format!("{path:?}"), move |at| {
                let flow = path.established(at);
                let datagram = path.inbound().payload(payload(100));
                let segment = datagram.segment(flags::ACK, flow.rcv_nxt, flow.snd_nxt);
                Case::new(Program::Xdp, segment).flow(path.key(), flow)
            })
        });
        check(&mut datapath, rows.collect::<Vec<_>>());
    }
}

/// Its segments have neither PSH nor a small window, and no options.
#[test]
fn its_segments_are_restored() {
    let mut rows: Vec<Row> = Vec::new();
    for path in paths() {
        rows.push(row(format!("{path:?}"), move |at| {
            let flow = path.established(at);
            let datagram = path.inbound().payload(payload(100));
            let segment = datagram
                .clone()
                .segment(flags::ACK, flow.rcv_nxt, flow.snd_nxt)
                .window(u16::MAX);
            Case::ingress(segment)
                .flow(path.key(), flow)
                .passes_as(datagram)
                .counts(Outcome::RxRestored)
                .changes(path.key(), |flow| received(flow, at, 100))
        }));
    }
    check(&mut lock(&ALL), rows);
}
