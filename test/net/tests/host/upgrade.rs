//! Another process goes on with the attached programs: after a crash, and in place of
//! a running process.

use aya::maps::{Array, Map, MapData};
use nix::sys::signal::Signal;
use xdptun_lab::{Attached, Direct, Family, Host, WireStats, udp, wait, xdptun};
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::traces::Traces;
use xdptun_test_net::traffic::Traffic;
use xdptun_test_net::wire::Wire;
use xdptun_test_net::{LIMIT, PORT, cli, socket, status};

/// Each way that programs are held.
const MODES: [Mode; 4] = [mode::TC, mode::XDP, mode::TC_CLSACT, mode::XDP_CLSACT];

fn both(net: &Direct) -> [Traces; 2] {
    [&net.a, &net.b].map(|host| Traces::of(host).unwrap())
}

/// The traces that stay the same when programs are replaced.
fn outline(net: &Direct) -> Vec<[Vec<String>; 3]> {
    let outline = |traces: Traces| {
        let filters = traces.filters.lines().count().to_string();
        let held = [traces.tcx, vec![traces.qdiscs, filters]].concat();
        [traces.links, held, traces.pins]
    };
    both(net).into_iter().map(outline).collect()
}

fn says(attached: &Attached, what: &str) {
    let summary = attached.summary().join("\n");
    assert!(summary.contains(what), "{what:?} is not in\n{summary}");
}

#[test]
fn after_a_crash_the_next_attach_goes_on() {
    for mode in MODES {
        let net = Direct::new().unwrap();
        let before = both(&net);
        let [near, far] = mode.attach_both(&net).unwrap();
        let servers = Family::BOTH
            .map(|family| udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap());
        let sockets =
            Family::BOTH.map(|family| udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap());
        let exchange = |payload: &[u8]| {
            for (socket, server) in sockets.iter().zip(&servers) {
                udp::exchange(socket, server.address(), payload, LIMIT)
                    .unwrap_or_else(|error| panic!("{mode:?}: {error:#}"));
            }
        };
        exchange(b"opens the flows");
        let wire = Wire::watch(&[&net.a, &net.b]).unwrap();
        let attached = outline(&net);
        let remains = [near, far].map(|attached| attached.kill().unwrap());
        exchange(b"without a daemon");
        let again = mode.attach_both(&net).unwrap();
        says(&again[0], "took over what was attached, with 2 flows");
        assert_eq!(outline(&net), attached, "{mode:?}");
        exchange(b"with the next");
        // A new flow waits for its handshake, which takes a daemon.
        for family in Family::BOTH {
            let socket = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
            let to = net.b.socket(family, PORT);
            udp::exchange(&socket, to, b"a new flow", LIMIT).unwrap();
        }
        let stats = WireStats::of(PORT, &wire.stop().unwrap());
        assert_eq!((stats.udp_datagrams, stats.rst), (0, 0), "{stats:#?}");
        assert_eq!((stats.syn, stats.fin), (2, 0), "{mode:?}: {stats:#?}");
        for attached in again {
            attached.stop().unwrap();
        }
        assert_eq!(both(&net), before, "{mode:?}");
        drop((remains, servers));
    }
}

/// The upgrade of a busy tunnel: not one datagram is lost, on either end.
#[test]
fn a_running_one_is_replaced_without_loss() {
    for mode in MODES {
        let net = Direct::new().unwrap();
        let before = both(&net);
        let old = mode.attach_both(&net).unwrap();
        let sink = udp::Server::sink(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
        let socket = socket::roomy(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
        let to = sink.address();
        socket.send_to(&[0; 1200], to).unwrap();
        wait::until(LIMIT, "the flow", || sink.datagrams() == 1).unwrap();
        let wire = Wire::watch(&[&net.a]).unwrap();
        let traffic = Traffic::start(&socket, to, 1200).unwrap();
        let arguments = ["--port", "8000", "--take-over"];
        let new = [&net.a, &net.b].map(|host| mode.attach(host, &arguments).unwrap());
        let flowing = sink.datagrams();
        wait::until(LIMIT, "traffic after it", || {
            sink.datagrams() > flowing + 100
        })
        .unwrap();
        // And the one that opened the flow.
        let sent = 1 + traffic.stop().unwrap();
        for attached in &old {
            let ended = || !attached.process().is_running().unwrap();
            wait::until(LIMIT, "the old one to end", ended).unwrap();
        }
        wait::until(LIMIT, "the last datagram", || sink.datagrams() >= sent)
            .unwrap_or_else(|_| panic!("{mode:?}: {} of {sent}", sink.datagrams()));
        says(&new[0], "took over what was attached, with 1 flows");
        let counted = status::counter(&net.a.netns, "tx_disguised").unwrap();
        assert_eq!(counted, sent, "counters go on");
        for attached in new {
            attached.stop().unwrap();
        }
        assert_eq!(sink.datagrams(), sent);
        let stats = WireStats::of(PORT, &wire.stop().unwrap());
        assert_eq!(
            (stats.udp_datagrams, stats.syn, stats.rst),
            (0, 0, 0),
            "{stats:#?}"
        );
        assert_eq!(both(&net), before, "{mode:?}");
        drop(old);
    }
}

/// A port that the successor does not have takes its flows with it.
#[test]
fn a_successor_tells_what_it_does_not_carry() {
    let net = Direct::new().unwrap();
    let old = mode::TC.attach(&net.a, &["--port", "8000,8001"]).unwrap();
    let _far = mode::TC.attach(&net.b, &["--port", "8000,8001"]).unwrap();
    let socket = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    for port in [8000, 8001] {
        let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, port)).unwrap();
        udp::exchange(&socket, echo.address(), b"opens a flow", LIMIT).unwrap();
    }
    let arguments = ["--port", "8000", "--take-over"];
    let new = mode::TC.attach(&net.a, &arguments).unwrap();
    says(&new, "took over what was attached, with 2 flows");
    let left = "flows of ports or peers that are not carried any more: 1; they end without a FIN";
    says(&new, left);
    new.stop().unwrap();
    drop(old);
}

#[test]
fn ports_and_peers_can_change_but_not_what_flows_depend_on() {
    let net = Direct::new().unwrap();
    let first = [
        "--port",
        "8000-8002",
        "--peer",
        "10.0.0.0/24",
        "--peer",
        "fd00::/64",
    ];
    let old = mode::TC.attach(&net.a, &first).unwrap();
    for (arguments, words) in [
        (
            ["--ingress", "xdp"],
            ["`ingress` tc", "become xdp", "detach"],
        ),
        (["--tc", "clsact"], ["`tc` tcx", "become clsact", "detach"]),
        (
            ["--max-flows", "1000"],
            ["`max-flows` 65536", "become 1000", "detach"],
        ),
    ] {
        let attach = [
            "attach",
            "--iface",
            Host::DEV,
            "--port",
            "8000",
            "--take-over",
        ];
        let before = Traces::of(&net.a).unwrap();
        let arguments = [&attach[..], &arguments].concat();
        let refused = cli::run(&net.a.netns, &arguments).unwrap();
        refused.assert_one_line(&words);
        assert_eq!(Traces::of(&net.a).unwrap(), before);
    }
    drop(old);
    let second = [
        "--port",
        "8001",
        "--peer",
        "10.0.0.2",
        "--peer",
        "fd00::/64",
    ];
    let arguments = [&second[..], &["--take-over"]].concat();
    let new = mode::TC.attach(&net.a, &arguments).unwrap();
    let interface = status::interface(&net.a.netns, Host::DEV).unwrap();
    assert_eq!(interface["ports"], serde_json::json!(["8001"]));
    let mut peers: Vec<&str> = interface["peers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p.as_str().unwrap())
        .collect();
    peers.sort_unstable();
    assert_eq!(peers, ["10.0.0.2/32", "fd00::/64"]);
    new.process().signal(Signal::SIGINT).unwrap();
}

/// A version that keeps its tables in another way can do nothing with these but
/// end them, and says so.
#[test]
fn another_layout_is_refused_and_can_be_ended() {
    let net = Direct::new().unwrap();
    let before = Traces::of(&net.a).unwrap();
    for daemon_lives in [true, false] {
        let attached = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
        let owner = xdptun::pin_dir(&net.a.netns, Host::DEV)
            .unwrap()
            .join("OWNER");
        let owner = Map::Array(MapData::from_pin(owner).unwrap());
        let mut owner: Array<_, [u32; 2]> = owner.try_into().unwrap();
        let [layout, pid] = owner.get(&0, 0).unwrap();
        assert_eq!(i64::from(pid), i64::from(attached.process().pid().as_raw()));
        owner.set(0, [layout + 1, pid], 0).unwrap();

        let run = |args: &[&str]| cli::run(&net.a.netns, args).unwrap();
        let attach = ["attach", "--iface", Host::DEV, "--port", "8000"];
        let told = ["another version", "xdptun detach --iface"];
        run(&["status"]).assert_one_line(&told);
        run(&[&attach[..], &["--take-over"]].concat()).assert_one_line(&told);
        let mut remains = None;
        let mut attached = Some(attached);
        if !daemon_lives {
            remains = attached.take().map(|attached| attached.kill().unwrap());
            run(&attach).assert_one_line(&told);
        }
        let ended = run(&["detach", "--iface", Host::DEV]);
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        assert_eq!(Traces::of(&net.a).unwrap(), before);
        drop((attached, remains));
    }
}
