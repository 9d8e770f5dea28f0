//! Flows that carry a datagram now and then. The peer may delay its acknowledgements, and the path
//! may be slow: neither makes the daemon probe. A path that is gone is noticed all the same.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use xdptun_lab::tap::{Kind, Offload};
use xdptun_lab::{Family, Relayed, Routed, udp, wait};
use xdptun_test_net::conversation::Conversation;
use xdptun_test_net::status::Counters;
use xdptun_test_net::{LIMIT, PORT, mode, status};

const SECOND: Duration = Duration::from_secs(1);
/// How long after the first datagram that was lost another must be answered.
const RECOVERY: Duration = Duration::from_secs(3);

/// How often a socket is looked at, so that the hosts have the machine to themselves.
const GLANCE: Duration = Duration::from_millis(2);

/// Datagrams a second apart, some answered by others, some by acknowledgements alone.
#[test]
fn a_slow_path_is_not_doubted() {
    const DATAGRAMS: u32 = 10;
    const SINK: u16 = PORT + 1;
    for round_trip in [300, 600] {
        let net = Relayed::new(Kind::Tap, Offload::None).unwrap();
        net.relay.delay(Duration::from_millis(round_trip / 2));
        let ports = format!("{PORT}-{SINK}");
        let _attached = [&net.a, &net.b].map(|host| mode::TC.attach(host, &["--port", &ports]));
        let mut servers = Vec::new();
        let mut conversations = Vec::new();
        for (id, family) in (0..).step_by(2).zip(Family::BOTH) {
            let [echo, sink] = [PORT, SINK].map(|port| net.b.socket(family, port));
            servers.push(udp::Server::echo(&net.b.netns, echo).unwrap());
            servers.push(udp::Server::sink(&net.b.netns, sink).unwrap());
            for (id, to) in (id..).zip([echo, sink]) {
                let from = net.a.socket(family, 0);
                let conversation = Conversation::start(id, &net.a.netns, from, to, SECOND);
                conversations.push(conversation.unwrap());
            }
        }
        let counters = |at_least: u64| {
            let what = format!("{at_least} datagrams of each");
            wait::until(LIMIT + DATAGRAMS * SECOND, &what, || {
                servers.iter().all(|server| server.datagrams() >= at_least)
            })
            .unwrap();
            [&net.a, &net.b].map(|host| status::counters(&host.netns).unwrap())
        };
        // The first of all leaves at the end of the handshake, soon before the second.
        let begun = counters(3);
        let ended = counters(3 + u64::from(DATAGRAMS));
        for (before, after) in begun.iter().zip(&ended) {
            let moved = status::moved(before, after);
            let count = |name| moved.get(name).copied().unwrap_or(0);
            let context = format!("{round_trip} ms: {moved:#?}");
            assert_eq!(count("sent_syn"), 0, "{context}");
            // One in ten, because this machine may stand still for a moment itself.
            assert!(
                count("sent_probe") * 10 <= count("tx_disguised"),
                "{context}"
            );
        }
    }
}

/// Flows from many sockets to a few servers, each of which carries a datagram a second.
struct Crowd {
    sockets: Vec<UdpSocket>,
    servers: Vec<udp::Server>,
    /// How often all flows have carried a datagram.
    rounds: u64,
    /// From this round on answers count.
    since: u64,
    /// What came of the datagrams since then, by socket and server.
    exchanges: HashMap<(usize, SocketAddr), Exchange>,
}

/// When a flow carried its first datagram, and when the first of all answers came.
struct Exchange {
    asked: Instant,
    answered: Option<Instant>,
}

impl Crowd {
    const PORTS: Range<u16> = PORT..PORT + 20;
    const FLOWS: u32 = 10_000;

    fn new(net: &Routed) -> Self {
        let (client, server) = (net.client(), &net.server);
        let servers: Vec<_> = Self::PORTS
            .map(|port| udp::Server::echo(&server.netns, server.socket(Family::V4, port)).unwrap())
            .collect();
        let sockets = (0..Self::FLOWS as usize / servers.len()).map(|_| {
            let socket = udp::bind(&client.netns, client.socket(Family::V4, 0)).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        });
        Self {
            sockets: sockets.collect(),
            servers,
            rounds: 0,
            since: 0,
            exchanges: HashMap::new(),
        }
    }

    /// Sends a datagram of each flow within a second, evenly spread.
    fn ask_all(&mut self) {
        let begun = Instant::now();
        let question = self.rounds.to_be_bytes();
        let mut asked = 0;
        for at in 0..self.sockets.len() {
            for server in &self.servers {
                let to = server.address();
                self.sockets[at].send_to(&question, to).unwrap();
                self.exchanges.entry((at, to)).or_insert_with(|| Exchange {
                    asked: Instant::now(),
                    answered: None,
                });
                asked += 1;
            }
            let due = begun + SECOND * asked / Self::FLOWS;
            while let Some(pause) = due.checked_duration_since(Instant::now()) {
                self.listen();
                thread::sleep(pause.min(GLANCE));
            }
        }
        self.rounds += 1;
    }

    /// Takes the answers that have come.
    fn listen(&mut self) {
        let mut number = [0; 8];
        for (at, socket) in self.sockets.iter().enumerate() {
            while let Ok((8, from)) = socket.recv_from(&mut number) {
                if u64::from_be_bytes(number) >= self.since {
                    let exchange = self.exchanges.get_mut(&(at, from)).unwrap();
                    exchange.answered.get_or_insert_with(Instant::now);
                }
            }
        }
    }

    /// Takes the answers until each flow has one; returns the longest time that one took.
    fn wait_answers(&mut self) -> Duration {
        let mut times = Vec::new();
        wait::until(LIMIT, "an answer on each flow", || {
            self.listen();
            let all = self.exchanges.values();
            times = all
                .filter_map(|one| Some(one.answered? - one.asked))
                .collect();
            times.len() == self.exchanges.len()
        })
        .unwrap_or_else(|error| panic!("{error:#}: {} have one", times.len()));
        times.into_iter().max().unwrap()
    }

    /// From now on only answers to later questions count.
    fn begin_anew(&mut self) {
        self.since = self.rounds;
        self.exchanges.clear();
    }
}

/// The router may forget all flows at once, and all daemons ask after all of them.
#[test]
fn ten_thousand_are_back_after_a_router_forgot_them() {
    let net = Routed::new().unwrap();
    net.offload("tx", false).unwrap();
    let hosts = [net.client(), &net.server];
    let ports = format!("{}-{}", Crowd::PORTS.start, Crowd::PORTS.end - 1);
    let _attached = hosts.map(|host| mode::TC.attach(host, &["--port", &ports]).unwrap());
    let counters = || hosts.map(|host| status::counters(&host.netns).unwrap());
    let moved = |before: &[Counters; 2]| {
        let after = counters();
        [0, 1].map(|end| status::moved(&before[end], &after[end]))
    };
    let count = |of: &Counters, name| of.get(name).copied().unwrap_or(0);
    let flows = u64::from(Crowd::FLOWS);

    let mut crowd = Crowd::new(&net);
    crowd.ask_all();
    crowd.wait_answers();
    let opened = counters();
    assert_eq!(count(&opened[0], "sent_syn"), flows, "{:#?}", opened[0]);
    for _ in 0..3 {
        crowd.ask_all();
    }
    for moved in moved(&opened) {
        assert!(count(&moved, "sent_probe") <= flows / 10, "{moved:#?}");
    }

    crowd.begin_anew();
    net.router.forget().unwrap();
    let before = counters();
    for _ in 0..4 {
        crowd.ask_all();
    }
    let slowest = crowd.wait_answers();
    let [near, far] = moved(&before);
    let context = format!("{slowest:?}:\n{near:#?}\n{far:#?}");
    println!("back after {context}");
    assert!(slowest < wait::stretched(RECOVERY).unwrap(), "{context}");
    for host in [&near, &far] {
        assert!(count(host, "sent_probe") <= 8 * flows, "{context}");
    }
    let syns = count(&near, "sent_syn") + count(&far, "sent_syn");
    assert!((flows..=2 * flows).contains(&syns), "{context}");
}
