//! Two functions on one interface: the tunnel, and one that counts packets. Neither knows the
//! other; the engine attaches, follows, hands over and removes both.

mod count;

use nix::sys::socket::{setsockopt, sockopt};
use xdptun::config::TcChoice;
use xdptun::group::{Incumbent, Trace};
use xdptun_lab::{Direct, Family, Host, Multihomed, link, udp, wait};
use xdptun_test_net::cli::run;
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::socket::roomy;
use xdptun_test_net::traces::pins;
use xdptun_test_net::{LIMIT, PORT};

use count::{Count, Counting, Plan, counted, metrics, status};

/// The ways to attach tc programs.
const BOTH: [(Mode, TcChoice); 2] = [
    (mode::TC, TcChoice::Tcx),
    (mode::TC_CLSACT, TcChoice::Clsact),
];

/// Two hosts whose every IP packet is of a test: no neighbour discovery of IPv6.
fn quiet() -> Direct {
    let net = Direct::new().unwrap();
    for host in [&net.a, &net.b] {
        let key = "net.ipv6.conf.all.disable_ipv6";
        host.netns.sysctl(key, "1").unwrap();
    }
    net
}

/// Whether the tunnel is there before the function that counts, or after it.
#[derive(Clone, Copy, Debug)]
enum First {
    Tunnel,
    Count,
}

/// What comes in is restored before it is counted, and what leaves is counted before it is
/// disguised, whichever function was attached first: none of the handshake's segments, of the
/// acknowledgements and of the daemon's requests is counted, and each datagram is once. The
/// first of them is held by the daemon and sent again.
#[test]
fn others_meet_datagrams_whichever_function_came_first() {
    const ROUNDS: u64 = 500;
    for (mode, tc) in BOTH {
        for first in [First::Tunnel, First::Count] {
            let context = format!("{mode:?}, first {first:?}");
            let net = quiet();
            let early = matches!(first, First::Count)
                .then(|| Counting::start(&net.a.netns, &[Host::DEV], tc).unwrap());
            let attached = mode.attach_both(&net).unwrap();
            let counting =
                early.unwrap_or_else(|| Counting::start(&net.a.netns, &[Host::DEV], tc).unwrap());
            let server = net.b.socket(Family::V4, PORT);
            let echo = udp::Server::echo(&net.b.netns, server).unwrap();
            let socket = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
            for round in 0..ROUNDS {
                let payload = udp::pattern(1000, round as u8);
                udp::exchange(&socket, echo.address(), &payload, LIMIT).unwrap();
            }
            let counts = counted(&net.a.netns, Host::DEV).unwrap();
            assert_eq!(counts, [ROUNDS; 2], "{context}");
            let metrics = metrics(&net.a.netns).unwrap();
            for outcome in ["in_packets", "out_packets"] {
                let labels = [
                    ("interface", Host::DEV),
                    ("function", "count"),
                    ("outcome", outcome),
                ];
                let told = metrics.value("xdptun_packets_total", &labels);
                assert_eq!(told, Some(ROUNDS as f64), "{context} {outcome}");
            }
            counting.stop().unwrap();
            udp::exchange(&socket, echo.address(), b"without it", LIMIT).unwrap();
            for attached in attached {
                attached.stop().unwrap();
            }
            assert_eq!(pins(&net.a.netns).unwrap(), [""; 0], "{context}");
        }
    }
}

/// The pieces of a super-packet pass the hook again, and are not counted again.
#[test]
fn a_super_packet_is_counted_once() {
    const PIECES: usize = 20;
    const SENDS: u64 = 30;
    for (mode, tc) in BOTH {
        let net = quiet();
        let attached = mode.attach_both(&net).unwrap();
        let server = roomy(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
        let socket = roomy(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
        socket.connect(server.local_addr().unwrap()).unwrap();
        socket.send(b"opens the flow").unwrap();
        udp::receive(&server, LIMIT).unwrap();
        let counting = Counting::start(&net.a.netns, &[Host::DEV], tc).unwrap();
        setsockopt(&socket, sockopt::UdpGsoSegment, &1000).unwrap();
        for number in 0..SENDS {
            let payload = udp::pattern(1000 * PIECES, number as u8);
            socket.send(&payload).unwrap();
            for piece in payload.chunks(1000) {
                assert_eq!(udp::receive(&server, LIMIT).unwrap().0, piece, "{mode:?}");
            }
        }
        let [_, sent] = counted(&net.a.netns, Host::DEV).unwrap();
        assert_eq!(sent, SENDS, "{mode:?}");
        counting.stop().unwrap();
        drop(attached);
    }
}

/// Sends datagrams to the other host, which has nothing attached, and waits until that many
/// more are counted.
fn sends(net: &Direct, name: &str, more: u64) {
    let before = counted(&net.a.netns, name).unwrap();
    let server = roomy(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let socket = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    for _ in 0..more {
        socket
            .send_to(b"one more", server.local_addr().unwrap())
            .unwrap();
        udp::receive(&server, LIMIT).unwrap();
    }
    let after = counted(&net.a.netns, name).unwrap();
    assert_eq!(after[1] - before[1], more);
}

/// Counters go on when a process is killed and another goes on, and when its programs are
/// replaced. A process that does not take over is refused.
#[test]
fn counters_go_on_from_process_to_process() {
    for (_, tc) in BOTH {
        let net = quiet();
        let netns = &net.a.netns;
        let first = Counting::start(netns, &[Host::DEV], tc).unwrap();
        sends(&net, Host::DEV, 10);
        first.abandon().unwrap();
        let left = status(netns, Host::DEV).unwrap().unwrap();
        assert!(left["daemon"].is_null(), "{left}");
        sends(&net, Host::DEV, 10);
        let second = Counting::start(netns, &[Host::DEV], tc).unwrap();
        sends(&net, Host::DEV, 10);
        let replaced = Plan {
            tc,
            trace: Trace::On,
        };
        second.change(replaced).unwrap();
        sends(&net, Host::DEV, 10);
        let refused = Counting::begin(netns, &[Host::DEV], tc.into(), Incumbent::Respect);
        let refused = refused.unwrap().join().unwrap_err();
        assert!(
            format!("{refused:#}").contains("already attached"),
            "{refused:#}"
        );
        assert_eq!(counted(netns, Host::DEV).unwrap()[1], 40);
        second.stop().unwrap();
        assert_eq!(pins(netns).unwrap(), [""; 0]);
    }
}

/// The interface is renamed, and then made anew.
#[test]
fn an_interface_is_followed() {
    const NEW: &str = "wan0";
    let net = quiet();
    let netns = &net.a.netns;
    let counting = Counting::start(netns, &[Host::DEV], TcChoice::Tcx).unwrap();
    for step in [&["down"][..], &["name", NEW]] {
        let dev = ["link", "set", Host::DEV];
        netns.run("ip", [&dev, step].concat()).unwrap();
    }
    netns.run("ip", ["link", "set", NEW, "up"]).unwrap();
    let renamed = status(netns, NEW).unwrap().unwrap();
    assert_eq!(renamed["group"], serde_json::json!([NEW]));
    assert_eq!(
        renamed["hooks"],
        serde_json::json!(["tc ingress (TCX)", "tc egress (TCX)"])
    );
    netns.run("ip", ["link", "del", NEW]).unwrap();
    counting
        .wait(&format!("waiting for {}", Host::DEV))
        .unwrap();
    netns
        .run("ip", ["link", "add", Host::DEV, "type", "veth"])
        .unwrap();
    counting.wait(&format!("carrying {}", Host::DEV)).unwrap();
    let anew = status(netns, Host::DEV).unwrap().unwrap();
    assert_eq!(anew["ifindex"], link::index(netns, Host::DEV).unwrap());
    counting.stop().unwrap();
    assert_eq!(pins(netns).unwrap(), [""; 0]);
}

/// Interfaces join a running group and leave it; each has counters of its own.
#[test]
fn interfaces_join_and_leave() {
    let net = Multihomed::new().unwrap();
    let netns = &net.a.netns;
    let counting = Counting::start(netns, &["eth0"], TcChoice::Auto).unwrap();
    counting.join_interface("eth1").unwrap();
    let group = serde_json::json!(["eth0", "eth1"]);
    for name in ["eth0", "eth1"] {
        let status = status(netns, name).unwrap().unwrap();
        assert_eq!(status["group"], group);
    }
    counting.leave_interface("eth0").unwrap();
    assert!(status(netns, "eth0").unwrap().is_none());
    assert!(status(netns, "eth1").unwrap().is_some());
    counting.stop().unwrap();
    assert_eq!(pins(netns).unwrap(), [""; 0]);
}

/// The packets of an interface can be recorded, by programs that take the place of others.
#[test]
fn packets_are_recorded() {
    let net = quiet();
    let netns = &net.a.netns;
    let counting = Counting::start(netns, &[Host::DEV], TcChoice::Auto).unwrap();
    let mut recorders = counting.record(Host::DEV);
    let mut recorder = recorders.blocking_recv().unwrap().unwrap();
    sends(&net, Host::DEV, 25);
    let mut copies = 0;
    wait::until(LIMIT, "both copies of each packet", || {
        recorder.drain(|_, _, _| copies += 1);
        copies >= 50
    })
    .unwrap();
    assert_eq!(copies, 50);
    drop(recorders);
    counting.stop().unwrap();
}

/// Detaching one function leaves the other; a process that is gone leaves each to be removed
/// by itself.
#[test]
fn each_function_is_removed_alone() {
    for (mode, tc) in BOTH {
        let net = quiet();
        let netns = &net.a.netns;
        let [near, _far] = mode.attach_both(&net).unwrap();
        Counting::start(netns, &[Host::DEV], tc)
            .unwrap()
            .abandon()
            .unwrap();
        let echo = net.b.socket(Family::V4, PORT);
        let echo = udp::Server::echo(&net.b.netns, echo).unwrap();
        let socket = udp::bind(netns, net.a.socket(Family::V4, 0)).unwrap();
        udp::exchange(&socket, echo.address(), b"tunnelled", LIMIT).unwrap();
        near.stop().unwrap();
        let left = status(netns, Host::DEV).unwrap().unwrap();
        assert_eq!(left["counters"]["out_packets"], 1, "{mode:?}: {left}");
        assert_eq!(
            left["hooks"].as_array().unwrap().len(),
            2,
            "{mode:?}: {left}"
        );
        netns
            .enter(|| xdptun::group::detach::detach::<Count>(Host::DEV))
            .unwrap()
            .unwrap();
        assert_eq!(pins(netns).unwrap(), [""; 0], "{mode:?}");
    }
}

/// Packets meet links before filters, so one function with links and another with filters
/// would be in the wrong order: the second one is refused.
#[test]
fn links_and_filters_do_not_mix() {
    let net = quiet();
    let netns = &net.a.netns;
    let counting = Counting::start(netns, &[Host::DEV], TcChoice::Tcx).unwrap();
    let mixed = run(
        netns,
        &[
            "attach",
            "--iface",
            Host::DEV,
            "--port",
            "8000",
            "--tc",
            "clsact",
        ],
    )
    .unwrap();
    mixed.assert_one_line(&[Host::DEV, "wrong order", "`tc`"]);
    counting.stop().unwrap();
    assert_eq!(pins(netns).unwrap(), [""; 0]);
}

/// A filter of another program has the first priority: ours takes the next.
#[test]
fn a_priority_that_is_taken_is_left_alone() {
    let net = quiet();
    let netns = &net.a.netns;
    netns
        .run("tc", ["qdisc", "add", "dev", Host::DEV, "clsact"])
        .unwrap();
    let pass = "1,6 0 0 4294967295,";
    let filter = ["filter", "add", "dev", Host::DEV, "ingress", "pref", "1"];
    let bpf = ["protocol", "ip", "bpf", "bytecode", pass, "flowid", "1:1"];
    netns.run("tc", [&filter[..], &bpf].concat()).unwrap();
    let attached = mode::TC_CLSACT.attach_both(&net).unwrap();
    let shown = netns
        .run("tc", ["filter", "show", "dev", Host::DEV, "ingress"])
        .unwrap();
    assert!(shown.contains("pref 1 "), "{shown}");
    assert!(shown.contains("pref 2 "), "{shown}");
    for attached in attached {
        attached.stop().unwrap();
    }
}
