//! A secret (`--secret`): the tunnel shares its port with a TCP server of the
//! host, and a stranger without the secret finds that server or nothing.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Direct, Family, Host, Netns, udp, wait};
use xdptun_lab::{secret, seeded::Random};
use xdptun_test_net::mode::Mode;
use xdptun_test_net::nets::second_address;
use xdptun_test_net::wire::{Wire, describe, segments};
use xdptun_test_net::{LIMIT, PORT, mode, raw, status, tcp};

/// How soon data must flow again.
const RECOVERY: Duration = Duration::from_secs(3);

/// The right secret, and a wrong one.
const RIGHT: &str = "correct horse battery";
const WRONG: &str = "another horse battery";

fn attach(host: &Host, mode: Mode, secret: &str, more: &[&str]) -> Attached {
    let scratch = Scratch::new().unwrap();
    let file = secret::write(scratch.path(), "secret", secret).unwrap();
    let port = PORT.to_string();
    let args = ["--port", &port, "--secret", &file];
    mode.attach(host, &[&args, more].concat()).unwrap()
}

/// Both hosts of a tunnel with a secret, and the address of a stranger.
struct Scene {
    near: Attached,
    far: Attached,
    strangers: [[IpAddr; 2]; 2],
    net: Direct,
}

impl Scene {
    fn new(mode: Mode) -> Self {
        let net = Direct::new().unwrap();
        Self {
            near: attach(&net.a, mode, RIGHT, &[]),
            far: attach(&net.b, mode, RIGHT, &[]),
            strangers: [second_address(&net.a, 9), second_address(&net.b, 10)],
            net,
        }
    }

    /// The address of a stranger at the first host or the second.
    fn stranger(&self, family: Family, host: usize) -> IpAddr {
        self.strangers[host][usize::from(family == Family::V6)]
    }

    fn counter(&self, name: &str) -> u64 {
        status::counter(&self.net.b.netns, name).unwrap()
    }
}

/// A stranger and the tunnel's own host reach a TCP server on the port, byte for
/// byte and with what offload makes of it, while the tunnel carries datagrams.
#[test]
fn a_tcp_server_shares_the_port() {
    /// The stranger's and the host's own, over each IP version; each sends many
    /// large segments.
    const CONNECTIONS: u64 = 4;
    for mode in [mode::TC, mode::XDP, mode::TC_CLSACT] {
        let scene = Scene::new(mode);
        let (client, server) = (&scene.net.a, &scene.net.b);
        for family in Family::BOTH {
            let address = server.socket(family, PORT);
            let echo = udp::Server::echo(&server.netns, address).unwrap();
            let socket = udp::bind(&client.netns, client.socket(family, 0)).unwrap();
            udp::exchange(&socket, echo.address(), b"hello", LIMIT).unwrap();
            let exchange = |from| {
                let local = SocketAddr::new(from, 0);
                tcp::exchange(&client.netns, local, &server.netns, address).unwrap();
            };
            let before = scene.counter("rx_to_host");
            exchange(scene.stranger(family, 0));
            udp::exchange(&socket, echo.address(), b"between", LIMIT).unwrap();
            exchange(client.address(family));
            udp::exchange(&socket, echo.address(), b"after", LIMIT).unwrap();
            assert!(
                scene.counter("rx_to_host") > before,
                "{mode:?} {family}: {:?}",
                status::counters(&server.netns)
            );
        }
        for name in ["sent_rst", "rx_drop_unproven", "rx_drop_merged"] {
            assert_eq!(scene.counter(name), 0, "{mode:?} {name}");
        }
        // For an instant neither the request nor the connection that takes its
        // place is in the kernel's table ("inet: Avoid ehash lookup race in
        // inet_ehash_insert()", Linux 6.19). What another CPU looks up just then
        // is split, and comes to the host in pieces.
        assert!(scene.counter("rx_split") <= CONNECTIONS, "{mode:?}");
        let Scene { near, far, net, .. } = scene;
        near.stop().unwrap();
        far.stop().unwrap();
        drop(net);
    }
}

/// A segment with these control bits.
struct Probe<'a> {
    flags: u8,
    sequence: u32,
    acknowledged: u32,
    options: &'a [u8],
    payload: &'a [u8],
}

impl Probe<'_> {
    fn send(&self, netns: &Netns, from: SocketAddr, to: SocketAddr) {
        let fill = |header: &mut etherparse::TcpHeader| {
            let bits = [0, 1, 2, 3, 4, 5].map(|bit| self.flags >> bit & 1 != 0);
            let [fin, syn, rst, psh, ack, urg] = bits;
            (header.fin, header.syn, header.rst) = (fin, syn, rst);
            (header.psh, header.ack, header.urg) = (psh, ack, urg);
            header.sequence_number = self.sequence;
            header.acknowledgment_number = self.acknowledged;
            header.set_options_raw(self.options).unwrap();
        };
        raw::send_segment(netns, from, to, fill, self.payload).unwrap();
    }
}

/// Nothing that a stranger sends is answered, by either host, whatever it is: not
/// segments of every kind, not those of a tunnel's handshake, recorded and sent
/// again.
#[test]
fn a_scan_finds_nothing() {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let scene = Scene::new(mode::TC);
    let (client, server) = (&scene.net.a, &scene.net.b);
    for family in Family::BOTH {
        // From port to same port, as WireGuard does it: both ends can be called.
        let echo = udp::Server::echo(&server.netns, server.socket(family, PORT)).unwrap();
        let socket = udp::bind(&client.netns, client.socket(family, PORT)).unwrap();
        let wire = Wire::watch(&[client, server]).unwrap();
        udp::exchange(&socket, echo.address(), b"hello", LIMIT).unwrap();
        let frames = wire.stop().unwrap();
        let all = segments(&frames, PORT);
        let recorded = [0, 1].map(|place| {
            let header = all[place].header();
            assert!(header.syn, "{}", describe(&all));
            (header.seq, header.options)
        });

        let answers = Wire::watch(&[client, server]).unwrap();
        let mut strangers = Vec::new();
        for (target, attacker) in [(server, client), (client, server)] {
            let to = target.socket(family, PORT);
            let host = if attacker.v4 == client.v4 { 0 } else { 1 };
            let from = SocketAddr::new(scene.stranger(family, host), 50_000);
            strangers.push(from);
            let before = status::counters(&target.netns).unwrap();
            let mut probes = Vec::new();
            let mut random = Random::new(7, 0, 0);
            for flags in 0..0x40 {
                for payload in [&b""[..], b"GET / HTTP/1.1\r\n\r\n"] {
                    probes.push(Probe {
                        flags,
                        sequence: random.number(),
                        acknowledged: random.number(),
                        options: &[],
                        payload,
                    });
                }
            }
            for (sequence, _) in recorded {
                for (flags, options) in [SYN, ACK]
                    .into_iter()
                    .flat_map(|flags| recorded.map(|(_, options)| (flags, options)))
                {
                    probes.push(Probe {
                        flags,
                        sequence,
                        acknowledged: sequence.wrapping_add(1),
                        options,
                        payload: b"",
                    });
                }
            }
            for probe in &probes {
                probe.send(&attacker.netns, from, to);
            }
            let count = probes.len() as u64;
            status::wait_moved(&target.netns, &before, &[("rx_drop_unproven", count)]).unwrap();
        }

        // The tunnel goes on, which also shows that the capture saw both hosts.
        udp::exchange(&socket, echo.address(), b"after", LIMIT).unwrap();
        let frames = answers.stop().unwrap();
        let (answers, tunnel): (Vec<_>, Vec<_>) = segments(&frames, PORT)
            .into_iter()
            .filter(|segment| !strangers.contains(&segment.source))
            .partition(|segment| strangers.contains(&segment.destination));
        assert!(answers.is_empty(), "{family}: {}", describe(&answers));
        assert_eq!(tunnel.iter().filter(|s| s.is_data()).count(), 2);
    }
}

/// A stranger that makes the server's TCP expect an answer from the client's own
/// port cannot keep the tunnel from opening there.
#[test]
fn a_half_open_connection_is_not_in_the_way() {
    let scene = Scene::new(mode::TC);
    let (client, server) = (&scene.net.a, &scene.net.b);
    for family in Family::BOTH {
        let address = server.socket(family, PORT);
        let listener = server.netns.enter(|| TcpListener::bind(address));
        let _listener = listener.unwrap().unwrap();
        let echo = udp::Server::echo(&server.netns, address).unwrap();
        let from = client.socket(family, PORT);
        let before = status::counters(&server.netns).unwrap();
        let probe = Probe {
            flags: 2,
            sequence: 1,
            acknowledged: 0,
            options: &[],
            payload: b"",
        };
        // The client's own TCP must not end what it knows nothing of: as if the
        // answer were lost on the way.
        let filter = [
            "add table inet silent",
            "add chain inet silent out { type filter hook output priority 0; }",
            "add rule inet silent out tcp flags rst drop",
        ];
        client
            .netns
            .run_with_input("nft", ["-f", "-"], &filter.join("\n"))
            .unwrap();
        probe.send(&client.netns, from, address);
        status::wait_moved(&server.netns, &before, &[("rx_to_host", 1)]).unwrap();

        let socket = udp::bind(&client.netns, from).unwrap();
        let started = Instant::now();
        udp::exchange(&socket, echo.address(), b"hello", LIMIT).unwrap();
        let limit = wait::stretched(RECOVERY).unwrap();
        assert!(
            started.elapsed() < limit,
            "{family}: {:?}",
            started.elapsed()
        );
        let syns = status::counter(&client.netns, "sent_syn").unwrap();
        assert!(syns <= 4, "{family}: {syns} handshakes");
        client
            .netns
            .run("nft", ["delete", "table", "inet", "silent"])
            .unwrap();
    }
}

/// As many segments open a flow as without a secret.
#[test]
fn a_proof_costs_no_round_trip() {
    let opening = |with_secret: bool| {
        let net = Direct::new().unwrap();
        let hosts = [&net.a, &net.b];
        let _attached = match with_secret {
            true => hosts.map(|host| attach(host, mode::TC, RIGHT, &[])),
            false => mode::TC.attach_to(hosts).unwrap(),
        };
        let wire = Wire::watch(&hosts).unwrap();
        for family in Family::BOTH {
            let echo = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
            let socket = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
            udp::exchange(&socket, echo.address(), b"hello", LIMIT).unwrap();
        }
        let frames = wire.stop().unwrap();
        let all = segments(&frames, PORT);
        let count = |flags: &str| {
            all.iter()
                .filter(|segment| segment.flags() == flags)
                .count()
        };
        (count("S"), count("S."), count("P."))
    };
    for with_secret in [false, true] {
        assert_eq!(opening(with_secret), (2, 2, 4), "{with_secret}");
    }
}

/// A peer with another secret, or none, is a stranger; with the right one it is admitted.
#[test]
fn another_secret_is_none() {
    let net = Direct::new().unwrap();
    let (client, server) = (&net.a, &net.b);
    let _far = attach(server, mode::TC, RIGHT, &[]);
    let first = attach(client, mode::TC, WRONG, &[]);
    let sockets = Family::BOTH.map(|family| {
        let echo = udp::Server::echo(&server.netns, server.socket(family, PORT)).unwrap();
        let socket = udp::bind(&client.netns, client.socket(family, 0)).unwrap();
        (echo, socket)
    });
    let call = || {
        for (echo, socket) in &sockets {
            socket.send_to(b"let me in", echo.address()).unwrap();
        }
    };
    let refused = |least: u64| {
        wait::until_some(LIMIT, "SYNs to be turned away", || {
            let count = status::counter(&server.netns, "rx_drop_unproven")?;
            Ok((count >= least).then_some(()))
        })
        .unwrap();
        assert_eq!(status::flows(&server.netns).unwrap().len(), 0);
    };
    call();
    refused(2);
    first.stop().unwrap();

    let port = PORT.to_string();
    let none = mode::TC.attach(client, &["--port", &port]).unwrap();
    call();
    refused(4);
    // The flows that wait are opened again with the proof, for what waits.
    let _near = attach(client, mode::TC, RIGHT, &["--take-over"]);
    for (echo, socket) in &sockets {
        let (answer, _) = udp::receive(socket, LIMIT).unwrap();
        assert_eq!(answer, b"let me in");
        udp::exchange(socket, echo.address(), b"with the secret", LIMIT).unwrap();
    }
    drop(none);
}

/// A server that lost its memory does not say so to strangers, and its peers find
/// out all the same: from the host's own TCP, or from the silence.
#[test]
fn a_restarted_server_is_found_again() {
    for listens in [false, true] {
        let Scene { near, far, net, .. } = Scene::new(mode::TC);
        let (client, server) = (&net.a, &net.b);
        let listen = |family| {
            let address = server.socket(family, PORT);
            let server = server.netns.enter(|| TcpListener::bind(address));
            server.unwrap().unwrap()
        };
        let servers = listens.then(|| Family::BOTH.map(listen));
        let sockets = Family::BOTH.map(|family| {
            let address = server.socket(family, PORT);
            let echo = udp::Server::echo(&server.netns, address).unwrap();
            let socket = udp::bind(&client.netns, client.socket(family, 0)).unwrap();
            udp::exchange(&socket, address, b"hello", LIMIT).unwrap();
            (echo, socket)
        });
        drop(far.kill().unwrap());
        let _far = attach(server, mode::TC, RIGHT, &[]);
        let start = Instant::now();
        thread::scope(|scope| {
            for (echo, socket) in &sockets {
                scope.spawn(|| {
                    // As an application does that asks until it is answered.
                    socket
                        .set_read_timeout(Some(Duration::from_millis(100)))
                        .unwrap();
                    let answered = wait::until(LIMIT, "an answer", || {
                        socket.send_to(b"again", echo.address()).unwrap();
                        socket.recv(&mut [0; 16]).is_ok()
                    });
                    answered.unwrap();
                });
            }
        });
        let took = start.elapsed();
        let limit = wait::stretched(RECOVERY).unwrap();
        assert!(took < limit, "listens: {listens}: {took:?}");
        let resets = status::counter(&server.netns, "sent_rst").unwrap();
        assert_eq!(resets, 0, "listens: {listens}");
        drop((servers, near));
    }
}
