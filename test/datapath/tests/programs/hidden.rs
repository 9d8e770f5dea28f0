//! A port that only answers callers who know the secret.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{LazyLock, Mutex};

use socket2::{Domain, Socket, Type};
use xdptun_common::config::Request;
use xdptun_common::counter::{Outcome, Sent};
use xdptun_common::event::Kind;
use xdptun_common::flow::{Flow, State};
use xdptun_common::isn::far_from;
use xdptun_lab::Netns;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::path::syn_options;
use xdptun_test_datapath::{
    Case, Config, Datapath, Family, Moment, Packet, Path, Row, check, flags, row,
};

use crate::handshake::completed;
use crate::opening::opens;
use crate::requests::{asks, granted};
use crate::{Shared, lock};

static HIDDEN: Shared = LazyLock::new(|| {
    Mutex::new(Datapath::new(&Config {
        hidden: true,
        ..Config::default()
    }))
});

const SYN_ACK: u8 = flags::SYN | flags::ACK;
/// What the peer drew before it made that a proof.
const PEER: u32 = 0xfedc_ba98;

/// The number that our SYN or SYN-ACK has.
fn isn(at: Moment, path: Path) -> u32 {
    at.proof(at.isn(&path.key()), 0)
}

fn syn(path: Path, sequence: u32) -> Packet {
    let syn = path.inbound().segment(flags::SYN, sequence, 0);
    syn.options(&syn_options(path.family()))
}

/// A SYN of the peer is answered like one of anyone where nothing is hidden.
fn admitted(at: Moment, path: Path, sequence: u32) -> Case {
    Case::ingress(syn(path, sequence))
        .answers(path.control(at, SYN_ACK, isn(at, path), sequence.wrapping_add(1)))
        .counts(Outcome::RxSyn)
        .sends(Sent::SynAck)
}

fn servers() -> [Path; 2] {
    Family::ALL.map(Path::server)
}

#[test]
fn only_a_proof_is_answered() {
    let mut rows: Vec<Row> = Vec::new();
    for path in servers() {
        for epochs in -1..=1 {
            rows.push(row(format!("{path:?}, epoch {epochs:+}"), move |at| {
                admitted(at, path, at.proof(PEER, epochs))
            }));
        }
        for (name, epochs, wrong) in [
            ("recorded", -2, 0),
            ("of the future", 2, 0),
            ("one bit off", 0, 1),
            ("another bit off", 0, 1 << 19),
            ("of another number", 0, 1 << 20),
            ("of no number at all", 0, u32::MAX),
        ] {
            rows.push(row(format!("{path:?}, {name}"), move |at| {
                let sequence = at.proof(PEER, epochs) ^ wrong;
                Case::ingress(syn(path, sequence)).drops(Outcome::RxDropUnproven)
            }));
        }
        rows.push(row(format!("{path:?}, again from there"), move |at| {
            let proof = at.proof(PEER, 0);
            admitted(at, path, proof).proven(proof, path.remote.ip())
        }));
        rows.push(row(format!("{path:?}, from elsewhere"), move |at| {
            let proof = at.proof(PEER, 0);
            Case::ingress(syn(path, proof))
                .proven(proof, path.family().stranger())
                .drops(Outcome::RxDropUnproven)
        }));
    }
    check(&mut lock(&HIDDEN), rows);
}

/// The number after a SYN that came from one address is known when it comes from
/// another.
#[test]
fn a_proof_is_remembered() {
    let mut datapath = lock(&HIDDEN);
    for family in Family::ALL {
        datapath.reset();
        let proof = Moment::now().proof(PEER, 0);
        let mut verdict = |path: Path| {
            let packet = syn(path, proof).bytes();
            let program = xdptun_test_datapath::Program::Ingress;
            datapath.run(program, &packet, Default::default()).verdict
        };
        const REDIRECT: u32 = 7;
        const SHOT: u32 = 2;
        assert_eq!(verdict(Path::server(family)), REDIRECT, "{family:?}");
        assert_eq!(verdict(Path::with_stranger(family)), SHOT, "{family:?}");
        assert_eq!(verdict(Path::server(family)), REDIRECT, "{family:?}");
    }
}

#[test]
fn nothing_else_is_answered() {
    let mut rows: Vec<Row> = Vec::new();
    for path in servers() {
        for flags in 0..=0x3f {
            let segment = path.inbound().segment(flags, 1, 2).payload(payload(9));
            rows.push(row(format!("{path:?}, flags {flags:#x}"), move |_| {
                Case::ingress(&segment).drops(Outcome::RxDropUnproven)
            }));
        }
    }
    check(&mut lock(&HIDDEN), rows);
}

#[test]
fn a_cookie_is_a_proof_as_well() {
    let mut rows: Vec<Row> = Vec::new();
    for path in servers() {
        let key = path.key();
        let ack = move |iss: u32| {
            path.inbound()
                .segment(flags::ACK, 1000, iss.wrapping_add(1))
        };
        for (name, cookies, proofs) in [("now", 0, 0), ("a while ago", 1, -1)] {
            rows.push(row(format!("{path:?}, given {name}"), move |at| {
                let iss = at.proof(at.earlier_isn(&key, cookies), proofs);
                Case::ingress(ack(iss))
                    .drops(Outcome::RxAck)
                    .reports(Kind::Established, key)
                    .adds(key, completed(at, path, iss, 1000))
            }));
        }
        // Which the four bits that tell a flow from its predecessor do not change.
        rows.push(row(format!("{path:?}, far from another"), move |at| {
            let iss = at.proof(at.isn(&key) ^ 0xf000_0000, 0);
            Case::ingress(ack(iss))
                .drops(Outcome::RxAck)
                .reports(Kind::Established, key)
                .adds(key, completed(at, path, iss, 1000))
        }));
        for (name, wrong) in [
            ("a cookie without proof", 1),
            ("a proof of another number", 1 << 20),
        ] {
            rows.push(row(format!("{path:?}, {name}"), move |at| {
                let iss = isn(at, path) ^ wrong;
                Case::ingress(ack(iss)).drops(Outcome::RxDropUnproven)
            }));
        }
        rows.push(row(
            format!("{path:?}, a proof without cookie"),
            move |at| {
                let iss = at.proof(at.isn(&key) ^ 0x0080_0000, 0);
                Case::ingress(ack(iss)).drops(Outcome::RxDropUnproven)
            },
        ));
    }
    check(&mut lock(&HIDDEN), rows);
}

/// The flow that a datagram opens, with its SYN.
fn opening(at: Moment, path: Path, iss: u32) -> Flow {
    Flow {
        iss,
        snd_una: iss.wrapping_add(1),
        snd_nxt: iss.wrapping_add(1),
        ..path.opening(at)
    }
}

#[test]
fn our_own_syn_is_a_proof() {
    let mut rows: Vec<Row> = Vec::new();
    for path in crate::paths() {
        rows.push(row(format!("{path:?}, the first"), move |at| {
            let iss = isn(at, path);
            opens(at, path, &path.outbound().payload(payload(100)))
                .passes_as(path.control(at, flags::SYN, iss, 0))
                .adds(path.key(), opening(at, path, iss))
        }));
        rows.push(row(format!("{path:?}, again"), move |at| {
            let mut flow = path.established(at);
            flow.unanswered_at = flow.received_at + 1;
            let iss = at.proof(far_from(flow.snd_nxt, at.isn(&path.key())), 0);
            granted(asks(path, Request::Reopen), Sent::Syn)
                .flow(path.key(), flow)
                .passes_as(path.control(at, flags::SYN, iss, 0))
                .changes(path.key(), |flow| {
                    *flow = Flow {
                        opened_at: at.ns(),
                        sent_at: flow.sent_at,
                        received_at: flow.received_at,
                        unanswered_at: flow.unanswered_at,
                        data_at: flow.data_at,
                        tx_packets: flow.tx_packets,
                        tx_bytes: flow.tx_bytes,
                        rx_packets: flow.rx_packets,
                        rx_bytes: flow.rx_bytes,
                        acked: flow.acked,
                        ..opening(at, path, iss)
                    };
                })
        }));
    }
    check(&mut lock(&HIDDEN), rows);
}

#[test]
fn an_answer_to_our_syn_need_not_be_one() {
    let rows = crate::paths().map(|path| {
        row(format!("{path:?}"), move |at| {
            let iss = isn(at, path);
            let answer = path.inbound().segment(SYN_ACK, 99, iss.wrapping_add(1));
            Case::ingress(answer.options(&syn_options(path.family())))
                .flow(path.key(), opening(at, path, iss))
                .answers(path.control(at, flags::ACK, iss.wrapping_add(1), 100))
                .counts(Outcome::RxSynAck)
                .sends(Sent::Ack)
                .reports(Kind::Established, path.key())
                .changes(path.key(), |flow| {
                    flow.state = State::Established as u32;
                    (flow.rcv_nxt, flow.acked) = (100, 100);
                    (flow.established_at, flow.received_at) = (at.ns(), at.ns());
                })
        })
    });
    check(&mut lock(&HIDDEN), rows);
}

/// A segment passes as it came.
fn left_to_the_host(segment: Packet) -> Case {
    Case::ingress(&segment).counts(Outcome::RxToHost)
}

/// The addresses of this host and of the peer, both here.
fn host_with_addresses() -> Netns {
    let netns = Netns::new("hidden").unwrap();
    let mut commands = "link set lo up\n".to_owned();
    for family in Family::ALL {
        for address in [family.host(), family.peer()] {
            commands += &format!("address add {address} dev lo\n");
        }
    }
    netns
        .run_with_input("ip", ["-batch", "-"], &commands)
        .unwrap();
    netns
}

/// What a server gets that shares the port: segments of its connections, and
/// SYNs of its clients, exactly as they come; but not the tunnel's.
#[test]
fn a_server_of_this_host_gets_what_is_no_proof() {
    let netns = host_with_addresses();
    let rows = |path: Path, connected: bool| {
        let mut rows: Vec<Row> = Vec::new();
        for flags in (0..=0x3f).filter(|flags| flags & flags::SYN == 0) {
            for (name, segment) in [
                ("", path.inbound().segment(flags, 1, 2).payload(payload(9))),
                (
                    ", with IP options",
                    path.inbound()
                        .ip_options(3)
                        .extension(60.into(), 2)
                        .segment(flags, 1, 2)
                        .payload(payload(9)),
                ),
            ] {
                rows.push(row(
                    format!("{path:?}, connected: {connected}, flags {flags:#x}{name}"),
                    move |_| left_to_the_host(segment.clone()),
                ));
            }
        }
        if connected {
            let merged = path.inbound().segment(flags::ACK, 1, 2);
            let merged = merged.payload(payload(2000));
            rows.push(row(format!("{path:?}, merged"), move |_| {
                left_to_the_host(merged.clone()).merged(1000)
            }));
        }
        rows.push(row(format!("{path:?}, a SYN"), move |at| {
            left_to_the_host(syn(path, at.proof(PEER, 0) ^ 1))
        }));
        rows.push(row(format!("{path:?}, a SYN that is a proof"), move |at| {
            admitted(at, path, at.proof(PEER, 0))
        }));
        rows.push(row(format!("{path:?}, the end of its handshake"), {
            move |at| {
                let iss = isn(at, path);
                let ack = path.inbound();
                let ack = ack.segment(flags::ACK, 1000, iss.wrapping_add(1));
                if connected {
                    // Nobody has both from one port.
                    return left_to_the_host(ack);
                }
                Case::ingress(ack)
                    .drops(Outcome::RxAck)
                    .reports(Kind::Established, path.key())
                    .adds(path.key(), completed(at, path, iss, 1000))
            }
        }));
        rows
    };
    netns
        .enter(|| {
            for path in servers() {
                let server = TcpListener::bind(path.local).unwrap();
                check(&mut lock(&HIDDEN), rows(path, false));
                let client = connect_from(path.remote, path.local);
                let (_accepted, from) = server.accept().unwrap();
                assert_eq!(from, path.remote);
                check(&mut lock(&HIDDEN), rows(path, true));
                drop(client);
            }
        })
        .unwrap();
}

/// A connection from the given port.
fn connect_from(from: SocketAddr, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
    socket.bind(&from.into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}
