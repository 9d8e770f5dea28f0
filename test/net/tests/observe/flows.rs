//! `xdptun flows`: which flows it shows, in which order, and that they fit.

use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::thread;

use nix::sys::signal::Signal;
use serde_json::Value;
use xdptun_lab::{Direct, Family, Host, Process, udp, wait, xdptun as product};
use xdptun_test_net::cli::run;
use xdptun_test_net::{LIMIT, PORT, mode, status};

/// The width of a mail or half a screen.
const WIDTH: usize = 100;

/// Flows of `host`: remote end, datagrams sent and received.
fn flows(host: &Host, args: &[&str]) -> Vec<(String, u64, u64)> {
    let text = product::run_in(&host.netns, &[&["flows", "--json"], args].concat()).unwrap();
    let printed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(printed["schema"], 1, "{printed:#}");
    assert_eq!(printed["interfaces"][0]["name"], Host::DEV, "{printed:#}");
    let flows = printed["interfaces"][0]["flows"].as_array().unwrap();
    let flow = |flow: &Value| {
        let remote = flow["remote"].as_str().unwrap().to_owned();
        let number = |name: &str| flow[name].as_u64().unwrap();
        (remote, number("tx_packets"), number("rx_packets"))
    };
    flows.iter().map(flow).collect()
}

/// Waits until there are so many flows, and none is younger than a tick of the
/// kernel's coarse clock, which stamps them.
fn wait_older(host: &Host, count: usize) {
    const TICK: f64 = 0.02;
    wait::until_some(LIMIT, "older flows", || {
        let interface = status::interface(&host.netns, Host::DEV)?;
        let flows = interface["flows"].as_array().unwrap();
        let mut idle = flows.iter().map(|flow| flow["idle_s"].as_f64().unwrap());
        let reached = flows.len() == count && idle.all(|idle| idle > TICK);
        Ok(reached.then_some(()))
    })
    .unwrap();
}

#[test]
fn are_filtered_and_sorted() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    // Client number N sends N datagrams, the odd ones over IPv6.
    let server = |family| udp::Server::echo(&net.a.netns, net.a.socket(family, PORT)).unwrap();
    let servers = Family::BOTH.map(server);
    let clients: Vec<UdpSocket> = (1..=4)
        .map(|count| {
            let server = &servers[count % 2];
            let family = Family::BOTH[count % 2];
            let client = udp::bind(&net.b.netns, net.b.socket(family, 0)).unwrap();
            for _ in 0..count {
                udp::exchange(&client, server.address(), b"count me", LIMIT).unwrap();
            }
            wait_older(&net.a, count);
            client
        })
        .collect();
    let flow = |count: usize| {
        let client = clients[count - 1].local_addr().unwrap();
        (client.to_string(), count as u64, count as u64)
    };
    let four = [4, 3, 2, 1].map(flow);
    assert_eq!(flows(&net.a, &["--sort", "sent"]), four);
    assert_eq!(flows(&net.a, &["--sort", "received"]), four);
    let age = [1, 2, 3, 4].map(flow);
    assert_eq!(flows(&net.a, &["--sort", "age"]), age);
    assert_eq!(flows(&net.a, &["--sort", "idle"]), age);

    let v4 = [4, 2].map(flow);
    let v6 = [3, 1].map(flow);
    let sent = |peer| flows(&net.a, &["--sort", "sent", "--peer", peer]);
    assert_eq!(sent("10.0.0.2"), v4);
    assert_eq!(sent("10.0.0.0/24"), v4);
    assert_eq!(sent("fd00::/64"), v6);
    assert_eq!(sent("fd00::2,10.0.0.2"), four);
    assert_eq!(sent("10.0.1.0/24"), []);
    let mut by_remote = flows(&net.a, &["--iface", Host::DEV]);
    let ends = by_remote.iter().map(|(end, ..)| end.parse().unwrap());
    let ends: Vec<std::net::SocketAddr> = ends.collect();
    assert!(ends.is_sorted(), "{ends:?}");
    by_remote.sort_by_key(|(_, sent, _)| std::cmp::Reverse(*sent));
    assert_eq!(by_remote, four);

    let text = run(&net.a.netns, &["flows", "--peer", "10.0.0.2"]).unwrap();
    assert_eq!(text.stdout[0], "eth0: 2 flows");
    assert_eq!(text.stdout.len(), 4, "{text:#?}");
    let none = run(&net.a.netns, &["flows", "--peer", "10.0.1.0/24"]).unwrap();
    assert_eq!(none.stdout, ["eth0: no flows"]);
    // A name, which needs no name server.
    let named = run(&net.a.netns, &["flows", "--peer", "localhost,10.0.0.2"]).unwrap();
    assert_eq!(named.stdout[0], "eth0: 2 flows");
    let unknown = run(&net.a.netns, &["flows", "--peer", "peer.invalid"]).unwrap();
    unknown.assert_one_line(&["--peer peer.invalid", "no address is known"]);
    run(&net.a.netns, &["flows", "--iface", "eth9"])
        .unwrap()
        .assert_one_line(&["eth9", "nothing is attached", "xdptun status"]);
}

#[test]
fn say_if_nothing_is_attached() {
    let net = Direct::new().unwrap();
    let text = run(&net.a.netns, &["flows"]).unwrap();
    assert_eq!(
        text.stdout,
        ["nothing is attached in this network namespace"]
    );
    let json = run(&net.a.netns, &["flows", "--json"]).unwrap();
    assert_eq!(json.stdout, [r#"{"schema":1,"interfaces":[]}"#]);
}

/// Addresses of full length are shown whole, in tables that fit.
#[test]
fn long_addresses_fit() {
    let net = Direct::new().unwrap();
    let long = |number| format!("fd00:1111:2222:3333:4444:5555:6666:777{number}");
    for (host, number) in [(&net.a, 1), (&net.b, 2)] {
        let address = format!("{}/64", long(number));
        let add = ["address", "add", &address, "dev", Host::DEV, "nodad"];
        host.netns.run("ip", add).unwrap();
    }
    let _attached = mode::TC.attach_both(&net).unwrap();
    let end = |number, port| format!("[{}]:{port}", long(number));
    let [near, far] = [end(1, 51_820), end(2, PORT)];
    let bind = |host: &Host, end: &str| {
        let end: std::net::SocketAddr = end.parse().unwrap();
        udp::bind(&host.netns, end).unwrap()
    };
    let far_end: std::net::SocketAddr = far.parse().unwrap();
    let server = udp::Server::echo(&net.b.netns, far_end).unwrap();
    let client = bind(&net.a, &near);
    udp::exchange(&client, server.address(), &[7; 1000], LIMIT).unwrap();
    for verb in ["status", "flows"] {
        let lines = run(&net.a.netns, &[verb]).unwrap().stdout;
        for line in &lines {
            assert!(line.len() <= WIDTH, "{line}");
        }
        let at = lines.iter().position(|line| line.contains(&near)).unwrap();
        assert!(lines[at].contains("established  1 / 1.0 KiB"), "{lines:#?}");
        assert!(lines[at + 1].contains(&far), "{lines:#?}");
    }
}

/// Lines of the log that hold a word.
fn logged(process: &Process, word: &str) -> Vec<String> {
    let lines = process.stderr().into_iter();
    lines.filter(|line| line.contains(word)).collect()
}

/// More flows than have lines of their own are summed up: strangers make as many as
/// they like.
#[test]
fn many_at_once_take_a_few_lines() {
    const FLOWS: usize = 120;
    const LINES: usize = 20;
    let net = Direct::new().unwrap();
    let [near, _far] = mode::TC.attach_both(&net).unwrap();
    let server = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    // Each kept, or the next might get its port.
    let _clients: Vec<_> = (0..FLOWS)
        .map(|_| {
            let client = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
            udp::exchange(&client, server.address(), b"one of many", LIMIT).unwrap();
            client
        })
        .collect();
    let process = near.process();
    let told = || !logged(process, "more changes of flows").is_empty();
    let limit = LIMIT * 2;
    process
        .with_output(wait::until(limit, "the sum", told))
        .unwrap();
    assert_eq!(logged(process, " up").len(), LINES + 1, "and the sum");
    let sum = logged(process, "more changes of flows");
    assert_eq!(sum.len(), 1, "{sum:?}");
    assert!(sum[0].contains(&format!("{} up", FLOWS - LINES)), "{sum:?}");
}

#[test]
fn peers_that_do_not_answer_take_a_few_lines() {
    const PEERS: u16 = 50;
    const LINES: u16 = 20;
    let net = Direct::new().unwrap();
    let near = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    let client = udp::bind(&net.a.netns, net.a.socket(Family::V4, PORT)).unwrap();
    // Its TCP would refuse, which is told in another way.
    let silence = "table ip lab { chain in { type filter hook input priority 0; \
                   ip protocol tcp drop; }; }";
    net.b
        .netns
        .run_with_input("nft", ["-f", "-"], silence)
        .unwrap();
    for port in 1..=PEERS {
        let peer = net.b.socket(Family::V4, port);
        client.send_to(b"is somebody there?", peer).unwrap();
    }
    let lost = || status::counter(&net.a.netns, "tx_lost_in_queue").unwrap() == u64::from(PEERS);
    let given_up = wait::until(LIMIT * 2, "all to be given up", lost);
    near.process().with_output(given_up).unwrap();
    // At the end it logs the lines that it has held back.
    near.process().signal(Signal::SIGINT).unwrap();
    let told = || !logged(near.process(), "more handshakes").is_empty();
    let told = wait::until(LIMIT, "the sum", told);
    near.process().with_output(told).unwrap();
    let lines = logged(near.process(), "no answer to the handshake");
    assert_eq!(lines.len(), usize::from(LINES), "{lines:#?}");
    let rest = PEERS - LINES;
    let sum = logged(near.process(), "more handshakes");
    let expected =
        format!("{rest} more handshakes had no answer, with {rest} peers, {rest} datagrams");
    assert!(sum[0].contains(&expected), "{sum:?}");
}

/// A TCP server takes each connection, reads what no client of its sends, and hangs up.
#[test]
fn a_tcp_server_at_the_other_end_is_told_of_once() {
    const CONNECTIONS: u64 = 8;
    let net = Direct::new().unwrap();
    let near = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    let server = net.b.socket(Family::V4, PORT);
    let listener = net.b.netns.enter(|| TcpListener::bind(server)).unwrap();
    let listener = listener.unwrap();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut first = [0];
            // What is left unread makes a reset of the end.
            let _ = connection.unwrap().read(&mut first);
        }
    });
    let client = udp::bind(&net.a.netns, net.a.socket(Family::V4, 0)).unwrap();
    let connections = || status::counter(&net.a.netns, "rx_syn_ack").unwrap();
    let many = wait::until(LIMIT * 2, "connections", || {
        client.send_to(b"is xdptun there?", server).unwrap();
        connections() >= CONNECTIONS
    });
    near.process().with_output(many).unwrap();
    let lines = |word| logged(near.process(), word).len();
    assert_eq!(
        (lines(" up"), lines(" down"), lines("ended within a second")),
        (3, 2, 1),
        "{:#?}",
        near.process().stderr()
    );
    drop(client);
    near.stop().unwrap();
}
