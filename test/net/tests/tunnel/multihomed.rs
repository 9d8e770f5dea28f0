//! Interfaces of one group: a flow comes in by one, leaves by another, and goes on by
//! whichever the routes choose.

use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use anyhow::Result;
use xdptun_lab::{Capture, Family, Frame, Multihomed, Side, Uplinked, udp};
use xdptun_test_net::PORT;
use xdptun_test_net::groups::{
    BOTH, Talk, assert_nothing_lost, assert_only_goes_on, count, echo, ends, numbers,
    payload_bytes, watch,
};
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::socket::roomy;
use xdptun_test_net::status::{
    Counters, apart_from_timed, counters_of, counters_on, expected, flows_of, moved,
};
use xdptun_test_net::wire::{Wire, segments};

/// Each way that programs are held.
const MODES: [Mode; 4] = [mode::TC, mode::XDP, mode::TC_CLSACT, mode::XDP_CLSACT];

/// Datagrams each way.
const COUNT: u32 = 3000;

/// Sends [`COUNT`] datagrams to an echo server while captures of both links run. Requires
/// that each datagram took the first link once, its answer the second link once, and that one
/// handshake opened the flow. `stop` ends a capture.
fn echo_across<C>(
    socket: &UdpSocket,
    server: SocketAddr,
    captures: [C; 2],
    stop: fn(C) -> Result<Vec<Frame>>,
    context: &str,
) {
    echo(socket, server, 0..COUNT).unwrap_or_else(|error| panic!("{context}: {error:#}"));
    let client = socket.local_addr().unwrap();
    let frames = captures.map(|capture| stop(capture).unwrap());
    let [there, back] = frames.each_ref().map(|frames| segments(frames, PORT));
    let all: Vec<u32> = (0..COUNT).collect();
    assert_eq!(numbers(&there, client), all, "{context}");
    assert_eq!(numbers(&back, server), all, "{context}");
    assert_eq!(numbers(&there, server), [0; 0], "{context}");
    assert_eq!(numbers(&back, client), [0; 0], "{context}");
    let both = |flags| count(&there, flags) + count(&back, flags);
    let control = ["S", "S.", "F.", "R", "R."].map(both);
    assert_eq!(control, [1, 1, 0, 0, 0], "{context}");
}

/// Requires that the client counted the opening of one flow, and both [`COUNT`] datagrams
/// each way, since then.
fn assert_counted(client: &Counters, server: &Counters, context: &str) {
    let count = u64::from(COUNT);
    let data = [("tx_disguised", count), ("rx_restored", count)];
    let opens = [("tx_opened", 1), ("sent_syn", 1), ("rx_syn_ack", 1)];
    let answers = [("rx_syn", 1), ("sent_syn_ack", 1)];
    for (counted, handshake) in [(client, &opens[..]), (server, &answers)] {
        let all = expected(&[&data[..], handshake].concat());
        assert_eq!(apart_from_timed(counted.clone()), all, "{context}");
    }
}

/// Requires that an interface carried [`COUNT`] datagrams one way, and none the other.
fn assert_one_way(moved: &Counters, way: &str, context: &str) {
    for name in ["tx_disguised", "rx_restored"] {
        let count = (name == way).then_some(u64::from(COUNT));
        assert_eq!(moved.get(name).copied(), count, "{context}: {moved:?}");
    }
}

#[test]
fn answers_take_another_link() {
    for mode in MODES {
        let net = Multihomed::new().unwrap();
        net.route_from(Side::B, 1).unwrap();
        let hosts = [&net.a, &net.b];
        let attached = mode.attach_groups(hosts, &BOTH, &[]).unwrap();
        let read = || hosts.map(|host| BOTH.map(|dev| counters_on(&host.netns, dev).unwrap()));
        for family in Family::BOTH {
            let context = format!("{mode:?}, {family}");
            let before = read();
            let (client, server) = ends(&net, family).unwrap();
            let wires = watch(&net).unwrap();
            echo_across(&client, server.address(), wires, Wire::stop, &context);

            let after = read();
            let moved = [0, 1].map(|host: usize| {
                let pairs = before[host].iter().zip(&after[host]);
                let moved = pairs.map(|(before, after)| moved(before, after));
                moved.collect::<Vec<_>>()
            });
            let [near, far] = &moved;
            assert_one_way(&near[0], "tx_disguised", &context);
            assert_one_way(&near[1], "rx_restored", &context);
            assert_one_way(&far[0], "rx_restored", &context);
            assert_one_way(&far[1], "tx_disguised", &context);
            let [near, far] = moved.map(sum);
            assert_counted(&near, &far, &context);

            let local = client.local_addr().unwrap();
            let bytes = payload_bytes(0..COUNT);
            for (host, remote) in [(&net.a, server.address()), (&net.b, local)] {
                let mut flows = flows_of(&host.netns, &BOTH).unwrap();
                flows.retain(|flow| flow.remote == remote.to_string());
                assert_eq!(flows.len(), 1, "{context}: {flows:?}");
                let carried = (u64::from(COUNT), bytes);
                assert_eq!((flows[0].tx, flows[0].rx), (carried, carried), "{context}");
                assert_eq!(flows[0].state, "established", "{context}");
            }
        }
        for attached in attached {
            attached.stop().unwrap();
        }
    }
}

fn sum(all: Vec<Counters>) -> Counters {
    let mut sum = Counters::new();
    for (name, value) in all.into_iter().flatten() {
        *sum.entry(name).or_default() += value;
    }
    sum
}

/// A client with one interface, and a server whose default route is another uplink than the
/// one that the client's datagrams arrive by.
#[test]
fn a_server_answers_by_another_uplink() {
    for mode in MODES {
        let net = Uplinked::new().unwrap();
        let port = PORT.to_string();
        let _client = mode.attach(&net.client, &["--port", &port]).unwrap();
        let _server = mode
            .attach_group(&net.server, &BOTH, &["--port", &port])
            .unwrap();
        for family in Family::BOTH {
            let context = format!("{mode:?}, {family}");
            let read = || BOTH.map(|dev| counters_on(&net.server.netns, dev).unwrap());
            let before = read();
            let of_client = || counters_on(&net.client.netns, "eth0").unwrap();
            let client_before = of_client();
            let server = net.server.socket(family, PORT);
            let server = udp::Server::echo(&net.server.netns, server).unwrap();
            let client = roomy(&net.client.netns, net.client.socket(family, 0)).unwrap();
            // On the router both directions are as they were on the wire.
            let captures = Uplinked::UPLINKS.map(|dev| Capture::start(&net.router, dev).unwrap());
            echo_across(&client, server.address(), captures, Capture::stop, &context);
            let after = read();
            let moved_on = [0, 1].map(|link: usize| moved(&before[link], &after[link]));
            assert_one_way(&moved_on[0], "rx_restored", &context);
            assert_one_way(&moved_on[1], "tx_disguised", &context);
            let near = moved(&client_before, &of_client());
            assert_counted(&near, &sum(moved_on.into()), &context);
        }
    }
}

#[test]
fn routes_change_under_traffic() {
    /// Changes of the routes of each host.
    const TURNS: u8 = 20;
    for mode in [mode::TC, mode::XDP, mode::TC_CLSACT] {
        let net = Multihomed::new().unwrap();
        let hosts = [&net.a, &net.b];
        let _attached = mode.attach_groups(hosts, &BOTH, &[]).unwrap();
        let talk = Talk::start(&net.a, &net.b).unwrap();
        let wires = watch(&net).unwrap();
        for turn in 1..=TURNS {
            for side in [Side::A, Side::B] {
                net.route_from(side, turn % 2).unwrap();
                talk.round().unwrap();
            }
        }
        let asked = talk.settle().unwrap();
        for (dev, wire) in BOTH.iter().zip(wires) {
            assert_only_goes_on(wire, &format!("{mode:?}, {dev}"));
        }
        for host in hosts {
            let name = host.netns.name();
            let all = counters_of(&host.netns, &BOTH).unwrap();
            assert_nothing_lost(&all, name);
            let carried = ["tx_disguised", "rx_restored"].map(|way| all.get(way));
            assert_eq!(carried, [Some(&asked); 2], "{mode:?}, {name}: {all:?}");
            // Each turn that leads to a link carried a round of both conversations there.
            let least = u64::from(TURNS / 2) * talk.of_round();
            for dev in BOTH {
                let sent = counters_on(&host.netns, dev).unwrap()["tx_disguised"];
                assert!(sent >= least, "{mode:?}, {name}, {dev}: {sent} of {least}");
            }
        }
        talk.finish().unwrap();
    }
}

/// How link 0 fails.
#[derive(Debug, Clone, Copy)]
enum Failure {
    /// The client's interface is taken down.
    Near,
    /// The server's interface is taken down; the client's loses its carrier.
    Far,
    /// The interfaces are deleted.
    Gone,
}

impl Failure {
    fn strike(self, net: &Multihomed) {
        let down = |side| {
            let set = ["link", "set", "eth0", "down"];
            net.host(side).netns.run("ip", set).unwrap();
        };
        match self {
            Self::Near => down(Side::A),
            Self::Far => down(Side::B),
            Self::Gone => net.unplug(0).unwrap(),
        }
    }
}

/// The sockets stay bound to the hosts' own addresses, so the flows are the same; their
/// datagrams are lost until the routes change, and none afterwards.
#[test]
fn flows_go_on_by_the_other_link_when_theirs_fails() {
    for failure in [Failure::Near, Failure::Far, Failure::Gone] {
        let net = Multihomed::new().unwrap();
        let hosts = [&net.a, &net.b];
        let _attached = mode::TC.attach_groups(hosts, &BOTH, &[]).unwrap();
        let talk = Talk::start(&net.a, &net.b).unwrap();
        // No answer is under way, for which there would be no route.
        talk.settle().unwrap();
        let wire = Wire::watch_on(&hosts, "eth1").unwrap();
        let before = hosts.map(|host| counters_on(&host.netns, "eth1").unwrap());
        failure.strike(&net);
        talk.resume();
        talk.silence().unwrap();
        net.route(1).unwrap();
        let moment = Instant::now();
        talk.round().unwrap();
        talk.finish_since(moment).unwrap();
        assert_only_goes_on(wire, &format!("{failure:?}"));
        for (host, before) in hosts.iter().zip(&before) {
            let moved = moved(before, &counters_on(&host.netns, "eth1").unwrap());
            let handshake = [
                "tx_opened",
                "sent_syn",
                "rx_syn",
                "sent_syn_ack",
                "rx_syn_ack",
            ];
            let opened = handshake.map(|name| moved.get(name));
            assert_eq!(opened, [None; 5], "{failure:?}: {moved:?}");
            assert_nothing_lost(&moved, &format!("{failure:?}"));
        }
    }
}
