//! Many sessions at once.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use nix::unistd::Pid;
use serde_json::Value;
use xdptun_lab::crowd::{Crowd, Echo, Program, prepare, prepare_clients};
use xdptun_lab::{Attached, Family, Host, Served, udp, wait};
use xdptun_test_net::memory::{Hash, map_memory};
use xdptun_test_net::service::{File, reloads};
use xdptun_test_net::{LIMIT, status, tcp};

/// How many TCP connections: nearly all ports of one client.
const CONNECTIONS: usize = 60_000;

/// How many UDP sessions.
const SESSIONS: usize = 1_000_000;

/// How many addresses the client has for them, and how many ports of each.
const ADDRESSES: u8 = 20;
/// See [`ADDRESSES`].
const PORTS: u16 = 50_000;

/// The first of these ports.
const FIRST_PORT: u16 = 10_000;

/// How many of them have their sockets open at a time.
const SOCKETS: usize = 8000;

/// How many datagrams are on their way at a time: fewer than the buffer of the server holds
/// (`net.core.rmem_max`), and the backlog of a CPU (`net.core.netdev_max_backlog`).
const PACE: usize = 250;

/// The most memory that the daemon may have, in KiB: a tenth of what all sessions would take.
const DAEMON_KIB: u64 = 48 << 10;

/// The lengths of keys and values in the table of sessions, in bytes.
const TABLE: Hash = Hash { key: 40, value: 56 };

fn gateway(net: &Served) -> Value {
    status::gateway(&net.gateway, Served::WAN).unwrap()
}

fn counter(net: &Served, name: &str) -> u64 {
    gateway(net)["counters"][name].as_u64().unwrap()
}

/// Every byte comes back, of short requests and of long ones, and each connection has a session.
#[test]
fn sixty_thousand_connections_are_echoed() {
    for source in ["keep", "10.5.0.254:1024-65535"] {
        let net = Served::new().unwrap();
        prepare_clients(&net.client.netns).unwrap();
        prepare(&net.back_end.netns).unwrap();
        let service = net.back_end.socket(Family::V4, 8080);
        let to = service.to_string();
        let rule = ["--listen", "7000", "--to", &to, "--source", source];
        let attached = Attached::forward(&net.gateway, Served::WAN, &rule).unwrap();
        let program = Program {
            path: env!("CARGO_BIN_EXE_crowd").into(),
            arguments: Vec::new(),
        };
        let _echo = Echo::start(&program, &net.back_end.netns, service).unwrap();
        let listen = net.listen_at(Family::V4, 7000);
        let mut crowd = Crowd::new(&program, &net.client.netns, listen).unwrap();
        attached.explain(crowd.grow(CONNECTIONS)).unwrap();
        for length in [255, 4000] {
            let echoed = attached.explain(crowd.echo(length, 2)).unwrap();
            println!(
                "{source}: {length} bytes of {CONNECTIONS} connections come back in {:.1?}",
                echoed.mean()
            );
        }
        let gateway = gateway(&net);
        assert_eq!(
            gateway["session_states"]["open"], CONNECTIONS,
            "{gateway:#}"
        );
        let counters = gateway["counters"].as_object().unwrap();
        assert_eq!(counters["sessions_began"], CONNECTIONS);
        let mut drops = counters.iter().filter(|(name, _)| name.contains("drop"));
        let dropped = drops.find(|(_, count)| count.as_u64() != Some(0));
        assert_eq!(dropped, None, "{gateway:#}");
        drop(crowd);
        attached.stop().unwrap();
    }
}

/// Connections that have ended go sooner when the table fills: here it has room for 32 sessions,
/// of which 8 may be open at once, until a sweep has seen that they have ended.
#[test]
fn ended_connections_make_room() {
    const TABLE: u64 = 32;
    let net = Served::new().unwrap();
    let service = net.back_end.socket(Family::V4, 8080);
    let server = net.back_end.netns.enter(|| TcpListener::bind(service));
    let server = server.unwrap().unwrap();
    let to = service.to_string();
    let rule = ["--listen", "7000", "--to", &to, "--max-sessions", "8"];
    let attached = Attached::forward(&net.gateway, Served::WAN, &rule).unwrap();
    let listen = net.listen_at(Family::V4, 7000);
    let connect = || {
        let near = net.client.netns.enter(|| TcpStream::connect(listen));
        let near = near.unwrap().unwrap();
        let (far, _) = server.accept().unwrap();
        tcp::send_and_receive(&near, &far, b"hello").unwrap();
    };
    let closing = || {
        gateway(&net)["session_states"]["closing"]
            .as_u64()
            .unwrap_or(0)
    };
    for _ in 0..TABLE - 4 {
        connect();
    }
    wait::until(LIMIT, "the ends", || closing() == TABLE - 4).unwrap();
    wait::until(LIMIT * 3, "room", || closing() <= TABLE / 4 * 3).unwrap();
    for _ in 0..TABLE / 4 {
        connect();
    }
    attached.stop().unwrap();
}

/// The kernel frees the memory of expired sessions, and the daemon holds none of them.
#[test]
fn a_million_datagram_sessions_expire() {
    let net = Served::new().unwrap();
    let addresses: Vec<Ipv4Addr> = (0..ADDRESSES)
        .map(|number| Ipv4Addr::new(192, 0, 2, 100 + number))
        .collect();
    let batch: String = addresses
        .iter()
        .map(|address| format!("address add {address}/24 dev {}\n", Host::DEV))
        .collect();
    let netns = &net.client.netns;
    netns.run_with_input("ip", ["-batch", "-"], &batch).unwrap();
    let service = net.back_end.socket(Family::V4, 8080);
    let file = |timeout: u32| {
        format!(
            "max-sessions = {SESSIONS}\nudp-timeout = {timeout}\n\
             [[interface.eth0.forward]]\nlisten = \"7000/udp\"\nto = \"{service}\"\n"
        )
    };
    // Longer than it takes to open them all.
    let config = File::new(&file(1000));
    let run = config.forward(&net.gateway, &[]);
    let daemon = run.process().pid();
    let memory = || map_memory(daemon, TABLE).unwrap();
    let empty = memory();
    let echo = udp::Server::echo(&net.back_end.netns, service).unwrap();
    let began = std::time::Instant::now();
    open_sessions(&net, &addresses, &echo);
    println!("{SESSIONS} sessions opened in {:.1?}", began.elapsed());
    assert_eq!(gateway(&net)["session_states"]["open"], SESSIONS);
    assert_eq!(counter(&net, "in_drop_full"), 0);
    // There is room for no other.
    let other = udp::bind(netns, net.client.socket(Family::V4, 0)).unwrap();
    for time in 1..=2 {
        other
            .send_to(b"hello", net.listen_at(Family::V4, 7000))
            .unwrap();
        wait::until(LIMIT, "the refusal", || {
            counter(&net, "in_drop_full") == time
        })
        .unwrap();
    }
    let full = memory();
    println!(
        "{} bytes of the kernel for each",
        (full - empty) / SESSIONS as u64
    );

    let began = std::time::Instant::now();
    config.write(&file(1));
    reloads(&net.gateway, &["eth0: new session timeouts apply"]);
    wait::until(LIMIT * 6, "the end of all", || memory() == empty).unwrap();
    println!("all expired within {:.1?}", began.elapsed());
    let states = gateway(&net)["session_states"].clone();
    assert_eq!(
        states.as_object().map(serde_json::Map::len),
        Some(0),
        "{states}"
    );
    udp::exchange(&other, net.listen_at(Family::V4, 7000), b"again", LIMIT).unwrap();
    let most = resident(daemon);
    assert!(most < DAEMON_KIB, "{most} KiB of the daemon");
    run.stop().unwrap();
}

/// Opens a session from each port of these addresses of the client: the second datagram goes after
/// an answer.
fn open_sessions(net: &Served, addresses: &[Ipv4Addr], echo: &udp::Server) {
    let ends = addresses.iter().flat_map(|address| {
        let ports = FIRST_PORT..FIRST_PORT + PORTS;
        ports.map(move |port| SocketAddr::new(IpAddr::V4(*address), port))
    });
    let ends: Vec<SocketAddr> = ends.collect();
    let to = net.listen_at(Family::V4, 7000);
    let mut sent = 0;
    for ends in ends.chunks(SOCKETS) {
        let bind = || ends.iter().map(UdpSocket::bind).collect();
        let sockets: io::Result<Vec<UdpSocket>> = net.client.netns.enter(bind).unwrap();
        let sockets = sockets.unwrap();
        for sockets in sockets.chunks(PACE).chain(sockets.chunks(PACE)) {
            for socket in sockets {
                socket.send_to(b"hello", to).unwrap();
            }
            sent += sockets.len() as u64;
            wait::until(LIMIT, "the echoes", || echo.datagrams() == sent).unwrap();
        }
    }
}

/// The most memory that a process has had, in KiB.
fn resident(process: Pid) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.unwrap().parse().unwrap()
}
