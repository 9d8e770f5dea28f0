//! After any disturbance, data flows again as soon as the path can carry it,
//! without help.
//!
//! Every case has four conversations, over IPv4 and IPv6, one datagram in a
//! tenth of a second and one in a second, across a strict router that
//! masquerades. What is measured is the time from the moment that the path is
//! there again to the first datagram sent after it whose echo is back. From
//! then on none may be lost, and at no time may a datagram be seen as UDP.

use std::fmt::Debug;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use xdptun_lab::process::Suspended;
use xdptun_lab::topology::{Dropped, Router};
use xdptun_lab::{Attached, Family, Host, Routed, link, udp, wait};
use xdptun_test_net::conversation::{Conversation, Talkative};
use xdptun_test_net::wire::{Passage, Segment, packets};
use xdptun_test_net::{LIMIT, PORT, mode, socket, status};

/// How long a path that is there may go unused.
const RECOVERY: Duration = Duration::from_secs(3);

const OFTEN: Duration = Duration::from_millis(100);
const SELDOM: Duration = Duration::from_secs(1);

/// The program that answers at the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// Only echoes.
    Quiet,
    /// Also speaks unasked, a datagram in a tenth of a second.
    Talkative,
}

/// The address to which conversations are bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// The client's address.
    Address,
    /// Every address.
    Wildcard,
}

/// A network with its conversations. The fields end in this order.
struct Scene {
    name: String,
    conversations: Vec<Conversation>,
    echoes: Vec<udp::Server>,
    talkatives: Vec<Talkative>,
    near: Option<Attached>,
    far: Option<Attached>,
    passage: Passage,
    net: Routed,
}

impl Scene {
    fn new(name: impl Debug) -> Self {
        Self::across(Routed::new().unwrap(), name)
    }

    fn across(net: Routed, name: impl Debug) -> Self {
        Self::attached(net, name, &[])
    }

    fn attached(net: Routed, name: impl Debug, args: &[&str]) -> Self {
        net.offload("tx", false).unwrap();
        let passage = Passage::watch(&net).unwrap();
        let hosts = [net.client(), &net.server];
        let [near, far] = mode::TC.attach_with(hosts, args).unwrap();
        Self {
            name: format!("{name:?}"),
            conversations: Vec::new(),
            echoes: Vec::new(),
            talkatives: Vec::new(),
            near: Some(near),
            far: Some(far),
            passage,
            net,
        }
    }

    /// Starts the conversations.
    fn talk(&mut self, peer: Peer, bound: Bound) {
        let (client, server) = (self.net.client(), &self.net.server);
        let families = Family::BOTH.map(|family| {
            let at = server.socket(family, PORT);
            match peer {
                Peer::Quiet => self
                    .echoes
                    .push(udp::Server::echo(&server.netns, at).unwrap()),
                Peer::Talkative => {
                    let talkative = Talkative::start(&server.netns, at, OFTEN).unwrap();
                    self.talkatives.push(talkative);
                }
            }
            let from = match (bound, family) {
                (Bound::Address, _) => client.address(family),
                (Bound::Wildcard, Family::V4) => Ipv4Addr::UNSPECIFIED.into(),
                (Bound::Wildcard, Family::V6) => Ipv6Addr::UNSPECIFIED.into(),
            };
            (SocketAddr::new(from, 0), at)
        });
        let all = [OFTEN, SELDOM]
            .into_iter()
            .flat_map(|interval| families.map(|ends| (interval, ends)));
        for (id, (interval, (from, to))) in (0..).zip(all) {
            let conversation = Conversation::start(id, &client.netns, from, to, interval);
            self.conversations.push(conversation.unwrap());
        }
    }

    /// A scene in which all is well, and every conversation has just been
    /// answered: the next question of some is a second away.
    fn going(name: impl Debug, peer: Peer) -> Self {
        Self::new(name).with_talk(peer)
    }

    fn with_talk(mut self, peer: Peer) -> Self {
        self.talk(peer, Bound::Address);
        self.wait_round();
        self
    }

    fn router(&self) -> &Router {
        &self.net.router
    }

    fn wait_round(&self) {
        let start = Instant::now();
        self.wait("a round of answers", start, || {
            let mut all = self.conversations.iter();
            all.all(|conversation| conversation.first_answer(start).is_some())
        });
    }

    /// Waits until every conversation has asked in vain.
    fn wait_silence(&self, start: Instant, questions: usize) {
        self.wait("questions without an answer", start, || {
            let mut all = self.conversations.iter();
            all.all(|conversation| conversation.since(start).0 >= questions)
        });
        for conversation in &self.conversations {
            let (asked, answered) = conversation.since(start);
            assert_eq!(
                answered,
                0,
                "{}: {} of {asked}",
                self.name,
                conversation.name()
            );
        }
    }

    /// Waits until each of the flows has sent `count` SYNs since then.
    fn wait_syns(&self, since: Instant, count: usize) {
        let after = epoch(since);
        self.wait("SYNs of every flow", since, || {
            self.passage.peek(|frames| {
                let all = packets(frames, PORT);
                let syns = all.iter().filter(|packet| {
                    let is_syn = packet.tcp().is_some_and(|tcp| tcp.syn && !tcp.ack);
                    is_syn && packet.time >= after
                });
                let mut sources: Vec<SocketAddr> = syns.map(|packet| packet.source).collect();
                sources.sort();
                let flows: Vec<_> = sources.chunk_by(PartialEq::eq).collect();
                flows.len() == self.conversations.len()
                    && flows.iter().all(|syns| syns.len() >= count)
            })
        });
    }

    fn wait(&self, what: &str, start: Instant, condition: impl FnMut() -> bool) {
        if let Err(error) = wait::until(LIMIT, what, condition) {
            panic!("{}: {error:#}{}", self.name, self.describe(start));
        }
    }

    fn describe(&self, start: Instant) -> String {
        let conversations = self.conversations.iter().map(|conversation| {
            let (asked, answered) = conversation.since(start);
            format!("\n{}: {answered} of {asked} answered", conversation.name())
        });
        let conversations: String = conversations.collect();
        conversations + &self.passage.describe(PORT, epoch(start))
    }

    fn pause(&self) {
        for conversation in &self.conversations {
            conversation.pause();
        }
    }

    fn resume(&self) {
        for conversation in &self.conversations {
            conversation.resume();
        }
    }

    /// Pauses and waits until nothing is under way.
    fn settle(&self, since: Instant) {
        self.pause();
        self.wait("the last answers", since, || {
            let mut all = self.conversations.iter();
            all.all(|conversation| {
                let (asked, answered) = conversation.since(since);
                asked == answered
            })
        });
    }

    /// Requires every conversation to be back in time after a moment.
    fn assert_back(&self, moment: Instant) {
        // Longer than it may take, to say how long it took.
        let (patience, limit) = (2 * RECOVERY, wait::stretched(RECOVERY).unwrap());
        let what = "every conversation to go on";
        let all_back = wait::until(patience, what, || {
            let mut all = self.conversations.iter();
            all.all(|conversation| conversation.first_answer(moment).is_some())
        });
        let mut in_time = all_back.is_ok();
        let mut report = String::new();
        for conversation in &self.conversations {
            let took = conversation
                .first_answer(moment)
                .map(|(_, answered)| answered - moment);
            in_time &= took.is_some_and(|took| took < limit);
            let asked = conversation
                .first_question(moment)
                .map(|asked| asked - moment);
            report += &format!(
                "\n{}: {} asked after {asked:?}, back after {took:?}",
                self.name,
                conversation.name()
            );
        }
        eprintln!("{report}");
        assert!(in_time, "{report}{}", self.describe(moment));
    }

    /// Requires that nothing was lost since the conversations started, not even
    /// what had to wait.
    fn assert_all_carried(&self, start: Instant) {
        self.settle(start);
        let counters = status::counters(&self.net.client().netns).unwrap();
        let all = self.conversations.iter();
        let asked: usize = all.map(|conversation| conversation.since(start).0).sum();
        let flows = self.conversations.len() as u64;
        for (name, expected) in [
            ("tx_disguised", asked as u64),
            ("rx_restored", asked as u64),
            ("rx_syn_ack", flows),
        ] {
            assert_eq!(counters.get(name), Some(&expected), "{name}: {counters:?}");
        }
        self.resume();
    }

    /// Requires that nothing was lost from the first answer after a moment on,
    /// nor ever seen as UDP; ends the scene.
    fn finish(self, moment: Instant) {
        self.wait_round();
        let described = self.describe(moment);
        for conversation in self.conversations {
            let (sent, _) = conversation.first_answer(moment).expect("it is back");
            let finished = conversation.finish(sent);
            finished.unwrap_or_else(|error| panic!("{}: {error:#}{described}", self.name));
        }
        drop((self.echoes, self.talkatives));
        for (name, frames) in self.passage.stop(PORT).unwrap() {
            let all = packets(&frames, PORT);
            // Whatever the server tries, it cannot open a connection, but where its SYN crosses
            // that of the client, which has just opened it.
            let calls: Vec<_> = all.iter().filter(|packet| is_call(packet)).collect();
            let is_crossing = |call: &Segment<'_>| {
                let mut before = calls.iter().take_while(|other| other.time < call.time);
                before.any(|other| {
                    (other.destination, other.source) == (call.source, call.destination)
                        && call.time - other.time < CROSSING
                })
            };
            let opened = calls.iter().filter(|call| {
                name.starts_with("lan") && call.source.port() == PORT && !is_crossing(call)
            });
            assert_eq!(opened.count(), 0, "{}: {name}", self.name);
            let late = all.iter().filter(|packet| packet.time >= epoch(moment));
            assert!(late.count() > 0, "{}: {name} saw nothing", self.name);
        }
    }
}

/// How long the SYN of a client is under way, to the server and back.
const CROSSING: Duration = Duration::from_millis(100);

/// Whether a segment opens a connection.
fn is_call(packet: &Segment<'_>) -> bool {
    packet.tcp().is_some_and(|tcp| tcp.syn && !tcp.ack)
}

/// A moment as captures have it.
fn epoch(moment: Instant) -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap() - moment.elapsed()
}

/// Runs variants of a case at once: they are all but idle.
fn at_once<V: Copy + Debug + Send>(variants: impl IntoIterator<Item = V>, run: impl Fn(V) + Sync) {
    let failed: Vec<String> = thread::scope(|scope| {
        let run = &run;
        let start = |variant| {
            let thread = scope.spawn(move || catch_unwind(AssertUnwindSafe(|| run(variant))));
            (variant, thread)
        };
        let threads: Vec<_> = variants.into_iter().map(start).collect();
        let failed = threads.into_iter().filter_map(|(variant, thread)| {
            let result = thread.join().expect("panics are caught inside");
            result.is_err().then(|| format!("{variant:?}"))
        });
        failed.collect()
    });
    assert!(failed.is_empty(), "failed: {failed:?}");
}

/// How a router treats segments of a connection that it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Temper {
    /// It drops them.
    Strict,
    /// It takes them for a connection.
    Loose,
    /// It lets them pass untranslated.
    Careless,
}

impl Temper {
    fn apply(self, router: &Router) {
        match self {
            Self::Strict => {}
            Self::Loose => router.set_loose(true).unwrap(),
            Self::Careless => router.let_invalid_pass().unwrap(),
        }
    }
}

/// The router that something happens to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The only one.
    Home,
    /// The second of two; the first remembers all.
    Carrier,
}

impl Place {
    fn network(self) -> Routed {
        match self {
            Self::Home => Routed::new().unwrap(),
            Self::Carrier => Routed::behind_two().unwrap(),
        }
    }

    fn router(self, net: &Routed) -> &Router {
        match self {
            Self::Home => &net.router,
            Self::Carrier => net.carrier.as_ref().unwrap(),
        }
    }
}

/// As one does that is short of ports.
#[test]
fn a_router_gives_every_flow_another_port() {
    const PORTS: RangeInclusive<u16> = 20000..=20999;
    let cases = [
        (Place::Home, Temper::Strict),
        (Place::Home, Temper::Loose),
        (Place::Carrier, Temper::Strict),
        (Place::Carrier, Temper::Loose),
    ];
    at_once(cases, |case| {
        let (place, temper) = case;
        let scene = Scene::across(place.network(), case).with_talk(Peer::Quiet);
        let router = place.router(&scene.net);
        temper.apply(router);
        router.masquerade_to(&PORTS).unwrap();
        router.forget().unwrap();
        let moment = Instant::now();
        scene.assert_back(moment);
        let flows = status::flows(&scene.net.server.netns).unwrap();
        let moved = flows.iter().filter(|flow| {
            let remote: SocketAddr = flow.remote.parse().unwrap();
            flow.state == "established" && PORTS.contains(&remote.port())
        });
        assert_eq!(moved.count(), scene.conversations.len(), "{flows:#?}");
        scene.finish(moment);
    });
}

/// As when it is switched off and on.
#[test]
fn a_router_forgets_its_connections() {
    let cases = [
        (Place::Home, Temper::Strict, Peer::Quiet),
        (Place::Home, Temper::Strict, Peer::Talkative),
        (Place::Home, Temper::Careless, Peer::Quiet),
        (Place::Carrier, Temper::Strict, Peer::Quiet),
    ];
    at_once(cases, |case| {
        let (place, temper, peer) = case;
        let scene = Scene::across(place.network(), case).with_talk(peer);
        let router = place.router(&scene.net);
        temper.apply(router);
        router.forget().unwrap();
        let moment = Instant::now();
        scene.assert_back(moment);
        scene.finish(moment);
    });
}

/// Where the router takes a connection from its middle on, it is as if nothing
/// had happened.
#[test]
fn a_loose_router_may_forget_its_connections() {
    let scene = Scene::going(Temper::Loose, Peer::Quiet);
    Temper::Loose.apply(scene.router());
    let client = &scene.net.client().netns;
    let syns = || status::counter(client, "sent_syn").unwrap();
    let before = syns();
    scene.router().forget().unwrap();
    let moment = Instant::now();
    scene.assert_back(moment);
    scene.wait_round();
    scene.settle(moment);
    scene.resume();
    assert_eq!(syns(), before);
    assert_eq!(scene.router().dropped().unwrap(), Dropped::default());
    scene.finish(moment);
}

/// Why there is no flow when SYNs are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// There has never been one.
    Nothing,
    /// The router forgets it.
    Forgotten,
    /// The server's xdptun ends it and restarts.
    Ended,
}

#[test]
fn syns_are_dropped_for_a_while() {
    at_once(
        [Before::Nothing, Before::Forgotten, Before::Ended],
        |before| {
            let mut scene = Scene::new(before);
            if before != Before::Nothing {
                scene = scene.with_talk(Peer::Quiet);
            }
            scene.router().hold(&[Router::SYN]).unwrap();
            let start = Instant::now();
            match before {
                Before::Nothing => scene.talk(Peer::Quiet, Bound::Address),
                Before::Forgotten => scene.router().forget().unwrap(),
                Before::Ended => {
                    scene.settle(start);
                    End::Clean.of(scene.far.take().unwrap());
                    scene.resume();
                    scene.far = Some(attach(&scene.net.server));
                }
            }
            scene.wait_syns(start, 3);
            scene.router().release().unwrap();
            let moment = Instant::now();
            scene.assert_back(moment);
            if before == Before::Nothing {
                scene.assert_all_carried(start);
            }
            scene.finish(moment);
        },
    );
}

/// How an xdptun ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Asked to, with FIN.
    Clean,
    /// Killed; an operator removes what it left.
    Killed,
}

impl End {
    fn of(self, attached: Attached) {
        match self {
            Self::Clean => attached.stop().unwrap(),
            Self::Killed => drop(attached.kill().unwrap()),
        }
    }
}

fn attach(host: &Host) -> Attached {
    mode::TC
        .attach(host, &["--port", &PORT.to_string()])
        .unwrap()
}

/// The client goes on talking; only while the programs go must no answer be
/// under way, which would leave as UDP.
#[test]
fn the_servers_xdptun_is_started_anew() {
    at_once([End::Clean, End::Killed], |end| {
        let mut scene = Scene::going(end, Peer::Quiet);
        scene.settle(Instant::now());
        end.of(scene.far.take().unwrap());
        let start = Instant::now();
        scene.resume();
        scene.wait_silence(start, 1);
        scene.far = Some(attach(&scene.net.server));
        let moment = Instant::now();
        scene.assert_back(moment);
        scene.finish(moment);
    });
}

/// The client's programs that use the port are started after xdptun, as always.
#[test]
fn the_clients_xdptun_is_started_anew() {
    let cases = [
        (End::Clean, Peer::Quiet),
        (End::Killed, Peer::Quiet),
        (End::Clean, Peer::Talkative),
        (End::Killed, Peer::Talkative),
    ];
    at_once(cases, |(end, peer)| {
        let mut scene = Scene::going((end, peer), peer);
        scene.settle(Instant::now());
        end.of(scene.near.take().unwrap());
        scene.near = Some(attach(scene.net.client()));
        scene.resume();
        let moment = Instant::now();
        scene.assert_back(moment);
        scene.finish(moment);
    });
}

/// The host on which the daemon goes on first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    Client,
    Server,
}

fn suspend(daemon: &Option<Attached>) -> Suspended<'_> {
    daemon.as_ref().unwrap().process().suspend().unwrap()
}

/// For a daemon that stood still the clock has jumped, as in a virtual machine that
/// was paused. Meanwhile flows carry data without it. When it goes on, it ends none of
/// them, and none whose last datagram was lost and that has been silent for longer than
/// any timer except that of idle flows.
#[test]
fn daemons_stand_still_for_a_while() {
    const PAUSE: Duration = Duration::from_secs(4);
    const LOST: &[u8] = b"lost";
    at_once([First::Client, First::Server], |first| {
        let net = Routed::new().unwrap();
        let scene = Scene::attached(net, first, &["--keepalive", "1"]).with_talk(Peer::Quiet);
        let begun = Instant::now();
        let hosts = [scene.net.client(), &scene.net.server];
        let silent = Family::BOTH.map(|family| {
            let from = scene.net.client().socket(family, 0);
            let socket = socket::roomy(&scene.net.client().netns, from).unwrap();
            (socket, scene.net.server.socket(family, PORT))
        });
        let exchange = |payload: &[u8]| {
            for (socket, to) in &silent {
                udp::exchange(socket, *to, payload, LIMIT).unwrap();
            }
        };
        exchange(b"hello");
        let flows = || {
            hosts.map(|host| {
                let all = status::flows(&host.netns).unwrap().into_iter();
                let mut all: Vec<_> = all.map(|f| (f.local, f.remote, f.state)).collect();
                all.sort();
                all
            })
        };
        let counters = || hosts.map(|host| status::counters(&host.netns).unwrap());
        let (flows_before, before) = (flows(), counters());

        scene.settle(begun);
        let near = suspend(&scene.near);
        let far = suspend(&scene.far);
        let port = format!("th dport {PORT}");
        scene.router().hold(&[&port]).unwrap();
        for (socket, to) in &silent {
            socket.send_to(LOST, to).unwrap();
        }
        scene.wait("datagrams to be lost", Instant::now(), || {
            scene.passage.peek(|frames| {
                let all = packets(frames, PORT);
                all.iter().filter(|packet| packet.payload == LOST).count() == silent.len()
            })
        });
        scene.router().release().unwrap();
        scene.resume();
        let start = Instant::now();
        scene.wait("answers during a long pause", start, || {
            let mut all = scene.conversations.iter();
            start.elapsed() >= PAUSE && all.all(|conversation| conversation.since(start).1 >= 3)
        });
        let (host, early, late) = match first {
            First::Client => (hosts[0], near, far),
            First::Server => (hosts[1], far, near),
        };
        let probes = || status::counter(&host.netns, "sent_probe").unwrap();
        let asked = probes();
        early.resume();
        // It has looked at all flows when it asks about the silent ones.
        scene.wait("the silent flows to be probed", start, || {
            probes() >= asked + silent.len() as u64
        });
        late.resume();
        scene.wait_round();
        scene.settle(start);
        exchange(b"still there?");
        scene.resume();

        for (before, after) in before.iter().zip(&counters()) {
            let moved = status::moved(before, after);
            for name in [
                "sent_syn", "rx_syn", "sent_fin", "rx_fin", "sent_rst", "rx_rst",
            ] {
                assert_eq!(moved.get(name), None, "{first:?}: {moved:?}");
            }
        }
        assert_eq!(flows(), flows_before, "{first:?}");
        let states = flows_before.iter().flatten().map(|(_, _, state)| state);
        let established = states.filter(|state| *state == "established").count();
        let count = scene.conversations.len() + silent.len();
        assert_eq!(established, 2 * count, "{first:?}: {flows_before:#?}");
        assert_eq!(scene.router().dropped().unwrap(), Dropped::default());
        scene.finish(start);
    });
}

/// The first datagram after a pause that the router would not have waited for
/// needs no handshake.
#[test]
fn keepalive_outlasts_the_router() {
    const PATIENCE: u32 = 3;
    const PAUSE: Duration = Duration::from_secs(5);
    let net = Routed::new().unwrap();
    net.offload("tx", false).unwrap();
    net.router.set_patience(PATIENCE).unwrap();
    let (client, server) = (net.client(), &net.server);
    let port = PORT.to_string();
    let _near = mode::TC
        .attach(client, &["--port", &port, "--keepalive", "1"])
        .unwrap();
    let _far = attach(server);
    let passage = Passage::watch(&net).unwrap();
    let ends = Family::BOTH.map(|family| {
        let echo = udp::Server::echo(&server.netns, server.socket(family, PORT)).unwrap();
        let socket = socket::roomy(&client.netns, client.socket(family, 0)).unwrap();
        udp::exchange(&socket, echo.address(), b"hello", LIMIT).unwrap();
        (socket, echo)
    });
    let before = [client, server].map(|host| status::counters(&host.netns).unwrap());
    let start = Instant::now();
    wait::until(2 * PAUSE, "a long pause", || start.elapsed() >= PAUSE).unwrap();
    for (socket, echo) in &ends {
        udp::exchange(socket, echo.address(), b"still there?", LIMIT).unwrap();
    }
    for (host, before) in [client, server].iter().zip(&before) {
        let moved = status::moved(before, &status::counters(&host.netns).unwrap());
        let probes = moved.get("sent_probe").copied().unwrap_or(0);
        assert_eq!(probes >= 2, host.v4 == client.v4, "{probes}");
        let expected = status::expected(&[("tx_disguised", 2), ("rx_restored", 2)]);
        assert_eq!(status::apart_from_timed(moved), expected);
    }
    let entries = net.router.conntrack("tcp", PORT).unwrap();
    assert_eq!(entries.len(), 2, "{entries:#?}");
    assert_eq!(net.router.dropped().unwrap(), Dropped::default());
    passage.stop(PORT).unwrap();
}

#[test]
fn a_pause_is_too_long_for_the_router() {
    let scene = Scene::new("a pause");
    // Longer than between any two questions.
    scene.router().set_patience(2).unwrap();
    let scene = scene.with_talk(Peer::Quiet);
    scene.settle(Instant::now());
    wait::until_some(LIMIT, "the router to forget", || {
        let entries = scene.router().conntrack("tcp", PORT)?;
        Ok(entries.is_empty().then_some(()))
    })
    .unwrap();
    scene.resume();
    let moment = Instant::now();
    scene.assert_back(moment);
    scene.finish(moment);
}

/// The interface that is down, and so its wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// The router's; the client sees its carrier gone.
    Router,
    /// The client's own, with its routes.
    Client,
}

#[test]
fn an_interface_is_down_for_a_while() {
    let cases = [
        (Side::Router, Peer::Quiet),
        (Side::Router, Peer::Talkative),
        (Side::Client, Peer::Quiet),
        (Side::Client, Peer::Talkative),
    ];
    at_once(cases, |case| {
        let (side, peer) = case;
        let scene = Scene::going(case, peer);
        let (netns, dev) = match side {
            Side::Router => (&scene.router().netns, Router::lan(0)),
            Side::Client => (&scene.net.client().netns, Host::DEV.to_owned()),
        };
        let down = link::down(netns, &dev).unwrap();
        scene.wait_silence(Instant::now(), 3);
        down.up().unwrap();
        let moment = Instant::now();
        scene.assert_back(moment);
        scene.finish(moment);
    });
}

#[test]
fn the_client_gets_another_address() {
    at_once([Peer::Quiet, Peer::Talkative], |peer| {
        let mut scene = Scene::new(peer);
        scene.talk(peer, Bound::Wildcard);
        scene.wait_round();
        let client = scene.net.client();
        let change = format!(
            "address del {}/24 dev eth0
             address del {}/64 dev eth0
             address add 10.1.0.77/24 dev eth0
             address add fd00:1::77/64 dev eth0 nodad",
            client.v4, client.v6
        );
        client
            .netns
            .run_with_input("ip", ["-batch", "-"], &change)
            .unwrap();
        scene.net.route_client(0).unwrap();
        let moment = Instant::now();
        scene.assert_back(moment);
        scene.finish(moment);
    });
}
