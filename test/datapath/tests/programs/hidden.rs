//! A port that answers only callers that know the secret.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{LazyLock, Mutex};

use socket2::{Domain, Socket, Type};
use xdptun_common::tunnel::config::Request;
use xdptun_common::tunnel::event::Kind;
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::proof::ProofKey;
use xdptun_common::tunnel::state::{Flow, KeptFields, REMEMBERED, State};
use xdptun_lab::Netns;
use xdptun_test_datapath::kernel::MAX_PROOFS;
use xdptun_test_datapath::moment::{OWN_KEY, PROOF_KEY, SECOND_KEY};
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::path::{syn_options, timestamped_syn_options};
use xdptun_test_datapath::{
    Case, Config, Datapath, Family, Moment, Packet, Path, Program, Row, Skb, check, flags, row,
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
/// The peer's initial sequence number.
const PEER: u32 = 0xfedc_ba98;
/// The number of the SYN within its flow.
const COUNT: u16 = 3;

/// A SYN of the peer with this proof.
fn syn(path: Path, proof: u32) -> Packet {
    numbered_syn(path, PEER, proof)
}

/// A SYN with this initial number and proof.
fn numbered_syn(path: Path, number: u32, proof: u32) -> Packet {
    let syn = path.inbound().segment(flags::SYN, number, 0);
    syn.options(&timestamped_syn_options(path.family(), proof))
}

/// SYN number `count` of a flow of ours, which is a proof.
fn our_syn(at: Moment, path: Path, iss: u32, count: u16) -> Packet {
    let id = at.identification(&path.key(), iss).wrapping_add(count);
    path.control(at, flags::SYN, iss, 0)
        .identified(id)
        .options(&timestamped_syn_options(
            path.family(),
            at.proof(iss, count, 0),
        ))
}

/// A SYN of the peer is answered as any SYN is on a port without a secret.
fn admitted(at: Moment, path: Path, syn: &Packet) -> Case {
    let isn = at.isn(&path.key());
    Case::ingress(syn)
        .answers(path.control(at, SYN_ACK, isn, PEER.wrapping_add(1)))
        .counts(Outcome::RxSyn)
        .sends(Sent::SynAck)
}

fn turned_away(segment: &Packet) -> Case {
    Case::ingress(segment).drops(Outcome::RxDropUnproven)
}

fn servers() -> [Path; 2] {
    Family::ALL.map(Path::server)
}

#[test]
fn only_a_proof_is_answered() {
    let mut rows: Vec<Row> = Vec::new();
    for path in servers() {
        let proven = move |at: Moment| syn(path, at.proof(PEER, COUNT, 0));
        for epochs in -1..=1 {
            rows.push(row(format!("{path:?}, epoch {epochs:+}"), move |at| {
                admitted(at, path, &syn(path, at.proof(PEER, COUNT, epochs)))
            }));
        }
        for (name, epochs, wrong) in [
            ("recorded", -2, 0),
            ("of the future", 2, 0),
            ("one bit off", 0, 1),
            ("another bit off", 0, 1 << 31),
        ] {
            rows.push(row(format!("{path:?}, {name}"), move |at| {
                turned_away(&syn(path, at.proof(PEER, COUNT, epochs) ^ wrong))
            }));
        }
        rows.push(row(format!("{path:?}, of another number"), move |at| {
            turned_away(&syn(path, at.proof(PEER + 1, COUNT, 0)))
        }));
        rows.push(row(format!("{path:?}, of another SYN"), move |at| {
            let proof = at.proof(PEER, COUNT, 0);
            let other = at.proof(PEER, COUNT + 1, 0);
            turned_away(&syn(path, proof & !7 | other & 7))
        }));
        rows.push(row(format!("{path:?}, another window"), move |at| {
            let syn = syn(path, at.proof(PEER, COUNT, 0));
            admitted(at, path, &syn.window(1))
        }));
        rows.push(row(format!("{path:?}, no timestamp"), move |_| {
            let syn = path.inbound().segment(flags::SYN, PEER, 0);
            turned_away(&syn.options(&syn_options(path.family())))
        }));
        rows.push(row(format!("{path:?}, no options"), move |_| {
            turned_away(&path.inbound().segment(flags::SYN, PEER, 0))
        }));
        rows.push(row(format!("{path:?}, options cut off"), move |at| {
            let options = timestamped_syn_options(path.family(), at.proof(PEER, COUNT, 0));
            let syn = path.inbound().segment(flags::SYN, PEER, 0);
            turned_away(&syn.options(&options[..16]))
        }));
        rows.push(row(format!("{path:?}, with IP options"), move |at| {
            let syn = path.inbound().ip_options(3).extension(60.into(), 2);
            let syn = syn.segment(flags::SYN, PEER, 0);
            let options = timestamped_syn_options(path.family(), at.proof(PEER, COUNT, 0));
            admitted(at, path, &syn.options(&options))
        }));
        rows.push(row(format!("{path:?}, again from there"), move |at| {
            let proof = at.proof(PEER, COUNT, 0);
            admitted(at, path, &proven(at)).proven(PEER, proof, path.remote.ip())
        }));
        for from in [path.family().stranger(), path.local.ip()] {
            rows.push(row(format!("{path:?}, first from {from}"), move |at| {
                let proof = at.proof(PEER, COUNT, 0);
                turned_away(&proven(at)).proven(PEER, proof, from)
            }));
        }
    }
    check(&mut lock(&HIDDEN), rows);
}

/// The first key proves, every key admits; those of a peer with keys of its own hold for
/// that one, in the place of the others.
#[test]
fn each_peer_has_its_keys() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        for (path, proves, admits, not) in [
            (
                Path::server(family),
                PROOF_KEY,
                &[PROOF_KEY, SECOND_KEY][..],
                &[OWN_KEY, ProofKey([0; 2])][..],
            ),
            (
                Path::with_own_key(family),
                OWN_KEY,
                &[OWN_KEY],
                &[PROOF_KEY, SECOND_KEY, ProofKey([0; 2])],
            ),
        ] {
            for key in admits.iter().copied() {
                rows.push(row(format!("{path:?}, admits {key:x?}"), move |at| {
                    admitted(at, path, &syn(path, at.proof_by(key, PEER, COUNT)))
                }));
            }
            for key in not.iter().copied() {
                rows.push(row(format!("{path:?}, not {key:x?}"), move |at| {
                    turned_away(&syn(path, at.proof_by(key, PEER, COUNT)))
                }));
            }
            rows.push(row(format!("{path:?}, proves"), move |at| {
                let iss = at.isn(&path.key());
                let proof = at.proof_by(proves, iss, 1);
                let syn = path.control(at, flags::SYN, iss, 0);
                opens(at, path, &path.outbound().payload(payload(100)))
                    .passes_as(syn.options(&timestamped_syn_options(family, proof)))
            }));
        }
    }
    check(&mut lock(&HIDDEN), rows);
}

/// The programs' verdict on a packet.
fn verdict(datapath: &mut Datapath, program: Program, packet: &Packet) -> u32 {
    let ran = datapath.run(program, &packet.bytes(), Skb::default());
    ran.verdict
}

const REDIRECT: u32 = 7;
const SHOT: u32 = 2;
const PASS: u32 = u32::MAX;

/// A recorded SYN is refused from another address as long as it is a proof, however many
/// other proofs came since.
#[test]
fn a_proof_is_remembered() {
    let mut datapath = lock(&HIDDEN);
    for family in Family::ALL {
        datapath.reset();
        let (first, other) = (Path::server(family), Path::with_stranger(family));
        let recorded = Moment::now().proof(PEER, COUNT, 0);
        let mut call = |path, number, proof| {
            let syn = numbered_syn(path, number, proof);
            verdict(&mut datapath, Program::Ingress, &syn)
        };
        assert_eq!(call(first, PEER, recorded), REDIRECT, "{family:?}");
        assert_eq!(call(other, PEER, recorded), SHOT, "{family:?}");
        assert_eq!(call(first, PEER, recorded), REDIRECT, "{family:?}");
        for number in 1..=4 * MAX_PROOFS {
            let proof = Moment::now().proof(number, COUNT, 0);
            assert_eq!(call(first, number, proof), REDIRECT, "{family:?} {number}");
        }
        assert_eq!(call(other, PEER, recorded), SHOT, "{family:?}");
        // The next SYN of the same flow is another proof.
        let next = Moment::now().proof(PEER, COUNT + 1, 0);
        assert_eq!(call(first, PEER, next), REDIRECT, "{family:?}");
    }
}

/// Damaged copies of a caller's SYN do not keep the caller out.
#[test]
fn a_damaged_proof_is_not_spent() {
    let mut datapath = lock(&HIDDEN);
    for family in Family::ALL {
        datapath.reset();
        let recorded = Moment::now().proof(PEER, COUNT, 0);
        let copy = syn(Path::with_stranger(family), recorded);
        let mut damaged = copy.bytes();
        *damaged.last_mut().expect("an option") ^= 1;
        let ran = datapath.run(Program::Ingress, &damaged, Skb::default());
        assert_eq!(ran.verdict, SHOT, "{family:?}");
        let first = syn(Path::server(family), recorded);
        let answered = verdict(&mut datapath, Program::Ingress, &first);
        assert_eq!(answered, REDIRECT, "{family:?}");
    }
}

/// An attacker who sends our own SYN back to us does not get in, however many SYNs of
/// ours came after it.
#[test]
fn our_own_proof_is_good_for_no_sender() {
    let mut datapath = lock(&HIDDEN);
    for family in Family::ALL {
        datapath.reset();
        let path = Path::client(family);
        let datagram = path.outbound().payload(payload(10)).bytes();
        let sent = datapath.run(Program::Egress, &datagram, Skb::default());
        let tcp = sent.packet.len() - 40;
        let number = |at: usize| u32::from_be_bytes(sent.packet[at..at + 4].try_into().unwrap());
        let (sequence, proof) = (number(tcp + 4), number(tcp + 28));
        assert_eq!(proof, Moment::now().proof(sequence, 1, 0), "{family:?}");
        let reflected = numbered_syn(Path::server(family), sequence, proof);
        for number in 1..=4 * MAX_PROOFS {
            let flow = Flow {
                iss: number,
                syns: 0,
                syn_at: 0,
                ..path.opening(Moment::now())
            };
            datapath.set_flows([(&path.key(), &flow)]);
            let sent = datapath.run(Program::Egress, &datagram, Skb::default());
            assert_eq!(sent.verdict, PASS, "{family:?} {number}");
        }
        let shot = verdict(&mut datapath, Program::Ingress, &reflected);
        assert_eq!(shot, SHOT, "{family:?}");
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

/// What the host would answer if it got there: more extension headers than are
/// followed, which no one else has use for.
#[test]
fn a_chain_without_end_is_dropped() {
    let path = Path::server(Family::V6);
    let rows = [8, 9, 12].map(|count| {
        let mut syn = path.inbound();
        for _ in 0..count {
            syn = syn.extension(60.into(), 1);
        }
        let syn = syn.segment(flags::SYN, PEER, 0);
        row(format!("{count} headers"), move |_| match count {
            8 => turned_away(&syn),
            _ => Case::ingress(&syn).drops(Outcome::RxDropChain),
        })
    });
    check(&mut lock(&HIDDEN), rows);
}

/// A recorded number of another flow is as good as none: cookies have nothing to
/// do with proofs.
#[test]
fn cookies_are_what_they_are_without_a_secret() {
    let mut rows: Vec<Row> = Vec::new();
    for path in servers() {
        let key = path.key();
        let ack = move |iss: u32| {
            path.inbound()
                .segment(flags::ACK, 1000, iss.wrapping_add(1))
        };
        for epochs in [0, 1] {
            rows.push(row(format!("{path:?}, {epochs} epochs ago"), move |at| {
                let iss = at.earlier_isn(&key, epochs);
                Case::ingress(ack(iss))
                    .drops(Outcome::RxAck)
                    .reports(Kind::Established, key)
                    .adds(key, completed(at, path, iss, 1000))
            }));
        }
        for bit in [0, 7, 19, 20, 27] {
            rows.push(row(format!("{path:?}, bit {bit} off"), move |at| {
                turned_away(&ack(at.isn(&key) ^ 1 << bit))
            }));
        }
        rows.push(row(format!("{path:?}, of another flow"), move |at| {
            turned_away(&ack(at.isn(&Path::new(path.family(), 443, 40000).key())))
        }));
    }
    check(&mut lock(&HIDDEN), rows);
}

#[test]
fn our_own_syn_is_a_proof() {
    let mut rows: Vec<Row> = Vec::new();
    for path in crate::paths() {
        rows.push(row(format!("{path:?}, the first"), move |at| {
            opens(at, path, &path.outbound().payload(payload(100))).passes_as(our_syn(
                at,
                path,
                at.isn(&path.key()),
                1,
            ))
        }));
        rows.push(row(format!("{path:?}, again"), move |at| {
            let flow = Flow {
                syn_at: at.before_ms(9000),
                ..path.opening(at)
            };
            granted(asks(path, Request::RetransmitSyn), Sent::Syn)
                .flow(path.key(), flow)
                .passes_as(our_syn(at, path, flow.iss, 2))
                .changes(path.key(), |flow| (flow.syns, flow.syn_at) = (2, at.ns()))
        }));
    }
    check(&mut lock(&HIDDEN), rows);
}

#[test]
fn an_answer_to_our_syn_need_not_be_one() {
    let rows = crate::paths().map(|path| {
        row(format!("{path:?}"), move |at| {
            let iss = at.isn(&path.key());
            let answer = path.inbound().segment(SYN_ACK, 99, iss.wrapping_add(1));
            let flow = path.opening(at);
            Case::ingress(answer.options(&syn_options(path.family())))
                .flow(path.key(), flow)
                .answers(path.control_of(at, &flow, flags::ACK, iss.wrapping_add(1), 100))
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
pub fn host_with_addresses() -> Netns {
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

/// Segments in shapes that no tunnel sends.
fn other_shapes(path: Path) -> Vec<(&'static str, Packet)> {
    let syn = |packet: Packet| packet.segment(flags::SYN, 1, 0).payload(payload(16));
    let mut shapes = vec![("first fragment", syn(path.inbound()).fragment(0, true))];
    if path.family() == Family::V6 {
        shapes.extend([
            ("atomic fragment", syn(path.inbound()).fragment(0, false)),
            (
                "routing header",
                syn(path.inbound().extension(43.into(), 1)),
            ),
        ]);
    }
    shapes
}

#[test]
fn other_shapes_are_not_answered_either() {
    let mut rows: Vec<Row> = Vec::new();
    for path in servers() {
        for (name, segment) in other_shapes(path) {
            rows.push(row(format!("{path:?}, {name}"), move |_| {
                let case = turned_away(&segment);
                match name {
                    "first fragment" => case.remembers(segment.fragmented()),
                    _ => case,
                }
            }));
        }
    }
    check(&mut lock(&HIDDEN), rows);
}

/// What a server gets that shares the port: segments of its connections, and
/// SYNs of its clients, exactly as they come; but not the tunnel's.
#[test]
fn a_server_of_this_host_gets_what_is_no_proof() {
    let netns = host_with_addresses();
    let rows = |path: Path, connected: bool| {
        let key = path.key();
        let mut rows: Vec<Row> = Vec::new();
        let mut left = |name: String, segment: Packet| {
            let name = format!("{path:?}, connected: {connected}, {name}");
            rows.push(row(name, move |_| left_to_the_host(segment.clone())));
        };
        for flags in (0..=0x3f).filter(|flags| flags & flags::SYN == 0) {
            let segment = |packet: Packet| packet.segment(flags, 1, 2).payload(payload(9));
            left(format!("flags {flags:#x}"), segment(path.inbound()));
            let with_options = path.inbound().ip_options(3).extension(60.into(), 2);
            left(format!("flags {flags:#x}, options"), segment(with_options));
        }
        for (name, segment) in other_shapes(path) {
            left(name.to_owned(), segment);
        }
        left("SYN".to_owned(), syn(path, 0x1234_5678));
        // The host's own TCP refuses it.
        rows.push(row(format!("{path:?}, a damaged proof"), move |at| {
            let mut damaged = syn(path, at.proof(PEER, COUNT, 0)).bytes();
            *damaged.last_mut().expect("an option") ^= 1;
            Case::ingress(damaged).counts(Outcome::RxToHost)
        }));
        if connected {
            let merged = path.inbound().segment(flags::ACK, 1, 2);
            let merged = merged.payload(payload(2000));
            rows.push(row(format!("{path:?}, merged"), move |_| {
                left_to_the_host(merged.clone()).merged(1000)
            }));
        }
        rows.push(row(format!("{path:?}, a SYN that is a proof"), move |at| {
            let case = admitted(at, path, &syn(path, at.proof(PEER, COUNT, 0)));
            if !connected {
                return case;
            }
            // From now on the flow goes before the connection.
            let rcv_nxt = PEER.wrapping_add(1);
            let flow = Flow {
                state: State::SynReceived as u32,
                rcv_nxt,
                acked: rcv_nxt,
                syns: REMEMBERED,
                syn_at: 0,
                label: at.label(&key),
                kept_fields: KeptFields::new(at.identification(&key, at.isn(&key))),
                ..path.opening(at)
            };
            case.adds(key, flow)
        }));
        if connected {
            // The connection goes on beside a flow that is only remembered.
            rows.push(row(format!("{path:?}, remembered"), move |at| {
                let flow = Flow {
                    state: State::SynReceived as u32,
                    rcv_nxt: PEER.wrapping_add(1),
                    syns: REMEMBERED,
                    ..path.opening(at)
                };
                let segment = path.inbound().segment(flags::DATA, 5, 6);
                left_to_the_host(segment.payload(payload(9))).flow(key, flow)
            }));
        }
        rows.push(row(format!("{path:?}, the end of its handshake"), {
            move |at| {
                let iss = at.isn(&key);
                let ack = path.inbound();
                let ack = ack.segment(flags::ACK, 1000, iss.wrapping_add(1));
                if connected {
                    // As one of the connection's would be that has this number.
                    return left_to_the_host(ack);
                }
                Case::ingress(ack)
                    .drops(Outcome::RxAck)
                    .reports(Kind::Established, key)
                    .adds(key, completed(at, path, iss, 1000))
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
pub fn connect_from(from: SocketAddr, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
    socket.bind(&from.into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}
