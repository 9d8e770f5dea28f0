//! TCP connections of this host, and of hosts behind it, from an owned port.

use std::io::Read as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{LazyLock, Mutex};

use socket2::{Domain, Socket, Type};
use xdptun_common::tunnel::event::Kind;
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::path::syn_options;
use xdptun_test_datapath::{
    Case, Config, Datapath, Family, Moment, Packet, Path, Program, Row, check, flags, row,
};

use crate::handshake::completed;
use crate::hidden::{connect_from, host_with_addresses};
use crate::restored::restores;
use crate::{Shared, datapath, lock};

static PEERS_ONLY: Shared = LazyLock::new(|| {
    Mutex::new(Datapath::new(&Config {
        peers_only: true,
        ..Config::default()
    }))
});

static HIDDEN: Shared = LazyLock::new(|| {
    Mutex::new(Datapath::new(&Config {
        hidden: true,
        ..Config::default()
    }))
});

/// How long a connection may be silent: 124 minutes, in ticks of 2^20 ns.
const LIFETIME: u32 = 7_095_337;
/// The bits that tell what a segment is; PSH and URG say nothing here.
const KINDS: [u8; 16] = {
    let mut kinds = [0; 16];
    let mut kind = 0;
    while kind < 16 {
        // FIN, SYN, RST, and ACK.
        kinds[kind as usize] = kind & 7 | (kind & 8) << 1;
        kind += 1;
    }
    kinds
};

/// So many ticks ago.
fn ago(at: Moment, ticks: u32) -> u32 {
    at.tick().wrapping_sub(ticks)
}

fn servers() -> [Path; 2] {
    Family::ALL.map(Path::server)
}

/// Whether a segment with these bits opens a connection.
const fn opens(kind: u8) -> bool {
    kind == flags::SYN
}

fn leaving(path: Path, flags: u8) -> Packet {
    path.outbound().segment(flags, 1, 2)
}

#[test]
fn a_connection_from_an_owned_port_is_remembered() {
    let mut rows: Vec<Row> = Vec::new();
    for path in servers() {
        let key = path.key();
        for kind in KINDS {
            for more in [0, flags::PSH, flags::ECE | flags::CWR] {
                let segment = leaving(path, kind | more);
                rows.push(row(format!("{path:?}, {:#x}", kind | more), move |_| {
                    let case = Case::egress(&segment);
                    if opens(kind) {
                        case.notes_call(key)
                    } else {
                        case
                    }
                }));
                // Each segment shows that the connection lives. A SYN-ACK or reset does not:
                // the peer may have provoked it.
                let segment = leaving(path, kind | more).payload(payload(9));
                rows.push(row(
                    format!("{path:?}, {:#x} again", kind | more),
                    move |at| {
                        let case = Case::egress(&segment).called(key, ago(at, 50));
                        if opens(kind) || kind & (flags::SYN | flags::RST) == 0 {
                            case.notes_call(key)
                        } else {
                            case
                        }
                    },
                ));
            }
        }
        for (name, syn) in [
            (
                "options",
                path.outbound().ip_options(3).extension(60.into(), 2),
            ),
            ("a routing header", path.outbound().extension(43.into(), 1)),
            ("a first fragment", path.outbound().fragment(0, true)),
        ] {
            let syn = syn.segment(flags::SYN, 1, 0).payload(payload(16));
            rows.push(row(format!("{path:?}, SYN with {name}"), move |_| {
                Case::egress(&syn).notes_call(key)
            }));
        }
        let data = leaving(path, flags::ACK).payload(payload(2000));
        rows.push(row(format!("{path:?}, merged"), move |at| {
            let case = Case::egress(&data).merged(1000);
            case.called(key, ago(at, 50)).notes_call(key)
        }));
        let ack = leaving(path, flags::ACK);
        rows.push(row(format!("{path:?}, of a flow"), move |at| {
            let case = Case::egress(&ack).called(key, ago(at, 50));
            case.flow(key, path.established(at))
        }));
        // From any other port answers pass anyway.
        let path = Path::client(path.family());
        rows.push(row(format!("{path:?}, to a port of ours"), move |_| {
            Case::egress(leaving(path, flags::SYN))
        }));
    }
    check(&mut datapath(), rows);
}

#[test]
fn a_connection_to_a_stranger_is_not_remembered() {
    let mut rows: Vec<Row> = Vec::new();
    for family in Family::ALL {
        let strangers = Path::with_stranger(family);
        rows.push(row(format!("{strangers:?}"), move |_| {
            Case::egress(leaving(strangers, flags::SYN))
        }));
        let peers = Path::server(family);
        rows.push(row(format!("{peers:?}"), move |_| {
            Case::egress(leaving(peers, flags::SYN)).notes_call(peers.key())
        }));
    }
    check(&mut lock(&PEERS_ONLY), rows);
}

fn arriving(path: Path, flags: u8) -> Packet {
    path.inbound().segment(flags, 1000, 2000)
}

/// A segment passes as it came.
fn left_to_the_host(segment: &Packet) -> Case {
    Case::ingress(segment).counts(Outcome::RxToHost)
}

/// A SYN of the peer is answered.
fn answered(at: Moment, path: Path) -> Case {
    let syn = arriving(path, flags::SYN).options(&syn_options(path.family()));
    let isn = at.isn(&path.key());
    Case::ingress(syn)
        .answers(path.control(at, flags::SYN | flags::ACK, isn, 1001))
        .counts(Outcome::RxSyn)
        .sends(Sent::SynAck)
}

/// A segment that belongs to nothing is reset, if anything is to be reset.
fn turned_away(at: Moment, path: Path, kind: u8) -> Case {
    let case = Case::ingress(arriving(path, kind));
    if kind & (flags::ACK | flags::RST) != flags::ACK {
        return case.drops(Outcome::RxDropNoFlow);
    }
    case.answers(path.control(at, flags::RST, 2000, 0))
        .counts(Outcome::RxDropNoFlow)
        .sends(Sent::Rst)
}

/// Segments without a flow and without a connection: handled as usual.
fn rows_without_connection(
    path: Path,
    name: &str,
    with: fn(Case, Moment, Path) -> Case,
) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for kind in KINDS {
        if !opens(kind) {
            rows.push(row(format!("{path:?}, {name}, {kind:#x}"), move |at| {
                with(turned_away(at, path, kind), at, path)
            }));
        }
    }
    rows.push(row(format!("{path:?}, {name}, SYN"), move |at| {
        with(answered(at, path), at, path)
    }));
    let fragment = arriving(path, flags::ACK)
        .payload(payload(16))
        .fragment(0, true);
    rows.push(row(format!("{path:?}, {name}, fragment"), move |at| {
        let case = Case::ingress(&fragment).drops(Outcome::RxDropFragment);
        with(case.remembers(fragment.fragmented()), at, path)
    }));
    let merged = arriving(path, flags::ACK).payload(payload(2000));
    rows.push(row(format!("{path:?}, {name}, merged"), move |at| {
        let case = Case::ingress(&merged).merged(1000);
        with(case.drops(Outcome::RxDropMerged), at, path)
    }));
    rows
}

/// Shapes of a segment of any connection, some of which no tunnel sends.
fn shapes(path: Path, kind: u8) -> Vec<(&'static str, Packet, u32)> {
    let as_segment = |packet: Packet| packet.segment(kind, 1000, 2000).payload(payload(16));
    let mut shapes = vec![
        ("plain", as_segment(path.inbound()), 0),
        (
            "with options",
            as_segment(path.inbound().ip_options(3).extension(60.into(), 2)),
            0,
        ),
        (
            "a fragment",
            as_segment(path.inbound()).fragment(0, true),
            0,
        ),
        ("padded", arriving(path, kind).padded_to(90), 0),
    ];
    // Nothing merges what opens a connection.
    if kind & flags::SYN == 0 {
        let merged = arriving(path, kind).payload(payload(2000));
        shapes.push(("merged", merged, 1000));
    }
    if path.family() == Family::V6 {
        shapes.extend([
            (
                "an atomic fragment",
                as_segment(path.inbound()).fragment(0, false),
                0,
            ),
            (
                "with a routing header",
                as_segment(path.inbound().extension(43.into(), 1)),
                0,
            ),
        ]);
    }
    shapes
}

/// Segments of a connection pass, whatever they are, and the reset of it as well.
fn rows_with_connection(
    path: Path,
    name: &str,
    kinds: impl Iterator<Item = u8>,
    with: fn(Case, Moment, Path) -> Case,
) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for kind in kinds {
        for (shape, segment, gso_size) in shapes(path, kind) {
            rows.push(row(format!("{path:?}, {name}, {kind:#x}, {shape}"), {
                move |at| with(left_to_the_host(&segment).merged(gso_size), at, path)
            }));
        }
    }
    rows
}

/// As long as it is remembered, a connection gets its segments; the peer's SYN, and the
/// end of its handshake, are the tunnel's all the same.
#[test]
fn segments_of_a_remembered_connection_pass() {
    let mut rows: Vec<Row> = Vec::new();
    for path in servers() {
        let key = path.key();
        let young = |case: Case, at: Moment, path: Path| case.called(path.key(), ago(at, 1000));
        let not_opening = || KINDS.into_iter().filter(|kind| !opens(*kind));
        rows.extend(rows_with_connection(path, "young", not_opening(), young));
        rows.push(row(format!("{path:?}, silent"), move |at| {
            let then = ago(at, LIFETIME - 1);
            left_to_the_host(&arriving(path, flags::ACK)).called(key, then)
        }));
        rows.push(row(format!("{path:?}, SYN"), move |at| {
            young(answered(at, path), at, path)
        }));
        for epochs in [0, 1] {
            rows.push(row(
                format!("{path:?}, cookie of epoch -{epochs}"),
                move |at| {
                    let iss = at.earlier_isn(&key, epochs);
                    let ack = path
                        .inbound()
                        .segment(flags::ACK, 1000, iss.wrapping_add(1));
                    let case = Case::ingress(ack)
                        .drops(Outcome::RxAck)
                        .reports(Kind::Established, key)
                        .adds(key, completed(at, path, iss, 1000));
                    young(case, at, path)
                },
            ));
        }
        rows.push(row(format!("{path:?}, no cookie"), move |at| {
            let number = at.isn(&key) ^ 1 << 20;
            let ack = path
                .inbound()
                .segment(flags::ACK, 1000, number.wrapping_add(1));
            young(left_to_the_host(&ack), at, path)
        }));
        let old =
            |case: Case, at: Moment, path: Path| case.forgets_call(path.key(), ago(at, LIFETIME));
        rows.extend(rows_without_connection(path, "old", old));
        let others = |case: Case, at: Moment, path: Path| {
            let other = Path::new(path.family(), path.local.port(), path.remote.port() + 1);
            case.called(other.key(), ago(at, 1000))
        };
        rows.extend(rows_without_connection(path, "of another port", others));
        let stranger = |case: Case, at: Moment, path: Path| {
            case.called(Path::with_stranger(path.family()).key(), ago(at, 1000))
        };
        rows.extend(rows_without_connection(path, "of another host", stranger));
        // An open flow goes first.
        rows.push(row(format!("{path:?}, with a flow"), move |at| {
            let datagram = path.inbound().payload(payload(100));
            let case = restores(Program::Ingress, at, path, &datagram, 100);
            young(case, at, path)
        }));
    }
    check(&mut datapath(), rows);
}

/// With a secret too, although strangers get no answer.
#[test]
fn a_hidden_port_lets_them_pass() {
    let mut rows: Vec<Row> = Vec::new();
    for path in servers() {
        let young = |case: Case, at: Moment, path: Path| case.called(path.key(), ago(at, 1000));
        rows.extend(rows_with_connection(
            path,
            "young",
            KINDS.into_iter(),
            young,
        ));
        rows.push(row(format!("{path:?}, old"), move |at| {
            let case = Case::ingress(arriving(path, flags::ACK));
            let case = case.forgets_call(path.key(), ago(at, LIFETIME));
            case.drops(Outcome::RxDropUnproven)
        }));
    }
    check(&mut lock(&HIDDEN), rows);
}

/// A connection of this host has a socket, which is asked whatever is remembered; that of
/// a server gets nothing, as the port is the tunnel's.
#[test]
fn a_socket_of_this_host_gets_its_segments() {
    fn as_is(case: Case, _: Moment, _: Path) -> Case {
        case
    }
    let netns = host_with_addresses();
    let connection = |path, name| {
        let rows = rows_with_connection(path, name, KINDS.into_iter(), as_is);
        check(&mut datapath(), rows);
    };
    let none = |path, name| check(&mut datapath(), rows_without_connection(path, name, as_is));
    let closes_syns = [
        "add table inet silent",
        "add chain inet silent in { type filter hook input priority 0; }",
        "add rule inet silent in tcp flags syn / syn,ack drop",
    ];
    netns
        .enter(|| {
            for path in servers() {
                none(path, "nothing");
                let server = TcpListener::bind(path.local).unwrap();
                none(path, "a server");
                drop(server);

                let server = TcpListener::bind(path.remote).unwrap();
                let client = connect_from(path.local, path.remote);
                let (mut accepted, _) = server.accept().unwrap();
                connection(path, "established");
                client.shutdown(Shutdown::Write).unwrap();
                assert_eq!(accepted.read(&mut [0; 1]).unwrap(), 0);
                connection(path, "half closed");
                drop(accepted);
                // The last acknowledgement leaves before the call is over.
                drop(client);
                connection(path, "in TIME-WAIT");
            }
        })
        .unwrap();
    let netns = host_with_addresses();
    netns
        .run_with_input("nft", ["-f", "-"], &closes_syns.join("\n"))
        .unwrap();
    netns
        .enter(|| {
            for path in servers() {
                let _client = connecting(path);
                connection(path, "connecting");
            }
        })
        .unwrap();
}

/// A socket whose SYN is not answered.
fn connecting(path: Path) -> TcpStream {
    let socket = Socket::new(Domain::for_address(path.local), Type::STREAM, None).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.bind(&path.local.into()).unwrap();
    let error = socket.connect(&path.remote.into()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINPROGRESS));
    socket.into()
}
