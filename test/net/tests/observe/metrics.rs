//! The metrics of `xdptun attach --metrics`: their numbers, their server, and the
//! dashboard that is made for them.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, SystemTime};

use xdptun_lab::{Attached, Direct, Family, Host, Multihomed, Netns, Served, udp, wait, xdptun};
use xdptun_test_net::cli::run;
use xdptun_test_net::dashboard::{address, attach_all, queries};
use xdptun_test_net::exposition::Exposition;
use xdptun_test_net::groups::{BOTH, ends};
use xdptun_test_net::http::{connect, request, request_with};
use xdptun_test_net::traces::Traces;
use xdptun_test_net::{LIMIT, PORT, mode, status};

/// A free port.
const LOOPBACK: &str = "127.0.0.1:0";

/// Attaches to a host, with metrics.
fn attach(host: &Host) -> (Attached, SocketAddr) {
    let args = ["--port", "8000", "--metrics", LOOPBACK];
    let attached = mode::TC.attach(host, &args).unwrap();
    let address = address(&attached).unwrap();
    (attached, address)
}

fn scrape(netns: &Netns, address: SocketAddr) -> Exposition {
    let answer = request(netns, address, "GET", "/metrics").unwrap();
    assert_eq!(answer.status, 200, "{answer:#?}");
    let content_type = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    let has = answer.headers.iter().any(|header| header == content_type);
    assert!(has, "{:?}", answer.headers);
    Exposition::parse(&answer.body).unwrap_or_else(|error| panic!("{error:#}\n{}", answer.body))
}

#[test]
fn tell_what_status_tells() {
    const COUNT: u64 = 7;
    const UNANSWERED: u64 = 2;
    let begun = unix_time();
    let net = Direct::new().unwrap();
    let (near, address) = attach(&net.a);
    let _far = mode::TC.attach(&net.b, &["--port", "8000"]).unwrap();
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V6, PORT)).unwrap();
    let client = udp::bind(&net.a.netns, net.a.socket(Family::V6, 0)).unwrap();
    for _ in 0..COUNT {
        udp::exchange(&client, echo.address(), &[7; 100], LIMIT).unwrap();
    }
    // Some without an answer, so that the two ways differ.
    drop(echo);
    let sink = udp::Server::sink(&net.b.netns, net.b.socket(Family::V6, PORT)).unwrap();
    for _ in 0..UNANSWERED {
        client.send_to(&[7; 100], sink.address()).unwrap();
    }
    wait::until(LIMIT, "the last datagram", || {
        sink.datagrams() == UNANSWERED
    })
    .unwrap();
    // An acknowledgement may still be under way: equal means that none was.
    let metrics = wait::until_some(LIMIT, "two readings of the same moment", || {
        let before = status::counters(&net.a.netns)?;
        let metrics = scrape(&net.a.netns, address);
        Ok((before == status::counters(&net.a.netns)?).then_some(metrics))
    })
    .unwrap();
    let shown = status::interface(&net.a.netns, Host::DEV).unwrap();
    let value = |name: &str, label: Option<(&str, &str)>| {
        let labels = [("interface", Host::DEV)].into_iter().chain(label);
        metrics.value(name, &labels.collect::<Vec<_>>())
    };
    let of_attachment = |name: &str, outcome: Option<&str>| {
        let labels = [("interface", Host::DEV), ("function", "tunnel")];
        let outcome = outcome.map(|outcome| ("outcome", outcome));
        let labels = labels.into_iter().chain(outcome);
        metrics.value(name, &labels.collect::<Vec<_>>())
    };
    // The headers of Ethernet, IPv6 and TCP, or UDP.
    let (segment, datagram) = (14 + 40 + 20 + 100, 14 + 40 + 8 + 100);
    for (name, count, len) in [
        ("tx_disguised", COUNT + UNANSWERED, segment),
        ("rx_restored", COUNT, datagram),
    ] {
        let counted = of_attachment("xdptun_packets_total", Some(name));
        assert_eq!(counted, Some(count as f64), "{name}");
        let bytes = of_attachment("xdptun_packet_bytes_total", Some(name));
        assert_eq!(bytes, Some((count * len) as f64), "{name}");
        assert_eq!(shown["bytes"][name].as_f64(), bytes, "{name}");
    }
    let counters = shown["counters"].as_object().unwrap();
    for (name, count) in counters {
        let metric = match name.as_str() {
            "tx_lost_in_queue" => "xdptun_queue_lost_datagrams_total",
            name if name.starts_with("sent_") || name == "replies_limited" => {
                "xdptun_control_segments_total"
            }
            "rx_gro_sent" | "rx_gro_returned" | "rx_gro_merged" => "xdptun_gro_datagrams_total",
            _ => "xdptun_packets_total",
        };
        let told = of_attachment(metric, Some(name));
        assert_eq!(told, count.as_f64(), "{name}");
    }
    let names = [
        "xdptun_packets_total",
        "xdptun_control_segments_total",
        "xdptun_gro_datagrams_total",
        "xdptun_queue_lost_datagrams_total",
    ];
    let outcomes = names.map(|name| metrics.label_values(name, "outcome").len());
    assert_eq!(outcomes.iter().sum::<usize>(), counters.len());
    let bytes = metrics.label_values("xdptun_packet_bytes_total", "outcome");
    assert_eq!(
        bytes,
        metrics.label_values("xdptun_packets_total", "outcome")
    );

    let state = |name| value("xdptun_flows", Some(("state", name)));
    assert_eq!(state("established"), Some(1.0));
    for name in ["closed", "syn-sent", "syn-received", "fin-sent"] {
        assert_eq!(state(name), Some(0.0), "{name}");
    }
    assert_eq!(value("xdptun_flow_table_capacity", None), Some(65_536.0));
    for (name, expected) in [
        ("xdptun_interface_mtu_bytes", 1500.0),
        ("xdptun_daemon_up", 1.0),
    ] {
        assert_eq!(of_attachment(name, None), Some(expected), "{name}");
    }
    let started = of_attachment("xdptun_attachment_start_time_seconds", None).unwrap();
    let meanwhile = begun.floor()..=unix_time().ceil();
    assert!(meanwhile.contains(&started), "{started} {meanwhile:?}");
    let about = [
        ("interface", Host::DEV),
        ("function", "tunnel"),
        ("group", Host::DEV),
        ("ingress", "tc"),
    ];
    assert_eq!(metrics.value("xdptun_attachment_info", &about), Some(1.0));
    let ports = value("xdptun_tunnel_info", Some(("ports", "8000")));
    assert_eq!(ports, Some(1.0));
    let version = run(&net.a.netns, &["--version"]).unwrap().stdout[0].clone();
    let version = version.strip_prefix("xdptun ").unwrap();
    let build = metrics.value("xdptun_build_info", &[("version", version)]);
    assert_eq!(build, Some(1.0));

    near.stop().unwrap();
    let refused = connect(&net.a.netns, address);
    assert!(refused.is_err(), "it still listens");
}

/// The interfaces of a group share one table, so its flows are those of all of them.
#[test]
fn tell_which_interfaces_share_a_table() {
    let net = Multihomed::new().unwrap();
    let netns = &net.a.netns;
    let args = ["--port", "8000", "--max-flows", "1000"];
    let with_metrics = [&args[..], &["--metrics", LOOPBACK]].concat();
    let near = mode::TC.attach_group(&net.a, &BOTH, &with_metrics).unwrap();
    let _far = mode::TC.attach_group(&net.b, &BOTH, &args).unwrap();
    for (link, family) in [(0, Family::V4), (1, Family::V6)] {
        net.route(link).unwrap();
        let (client, server) = ends(&net, family).unwrap();
        udp::exchange(&client, server.address(), b"hello", LIMIT).unwrap();
    }
    wait::until(LIMIT, "a flow on each interface", || {
        BOTH.map(|dev| status::flows_on(netns, dev).unwrap().len()) == [1, 1]
    })
    .unwrap();
    let metrics = scrape(&net.a.netns, address(&near).unwrap());
    for dev in BOTH {
        let about = [
            ("interface", dev),
            ("function", "tunnel"),
            ("group", "eth0,eth1"),
            ("ingress", "tc"),
        ];
        assert_eq!(metrics.value("xdptun_attachment_info", &about), Some(1.0));
        let flows = [("interface", dev), ("state", "established")];
        assert_eq!(metrics.value("xdptun_flows", &flows), Some(1.0), "{dev}");
        let capacity = metrics.value("xdptun_flow_table_capacity", &[("interface", dev)]);
        assert_eq!(capacity, Some(1000.0), "{dev}");
    }
}

/// The interfaces of a group share one table, so its sessions are those of the group.
#[test]
fn tell_what_the_gateway_forwards() {
    const LISTEN: u16 = 7000;
    let net = Served::new().unwrap();
    let service = net.back_end.socket(Family::V4, 8080);
    let args = [
        "--listen",
        &LISTEN.to_string(),
        "--to",
        &service.to_string(),
        "--source",
        "masquerade",
        "--max-sessions",
        "1000",
        "--metrics",
        LOOPBACK,
    ];
    let attached = Attached::forward(&net.gateway, Served::WAN, &args).unwrap();
    let _echo = udp::Server::echo(&net.back_end.netns, service).unwrap();
    let remote = net.listen_at(Family::V4, LISTEN);
    // The second client goes on after an answer, which opens its session.
    for exchanges in [1, 2] {
        let client = udp::bind(&net.client.netns, net.client.socket(Family::V4, 0)).unwrap();
        for _ in 0..exchanges {
            let exchanged = udp::exchange(&client, remote, b"hello", LIMIT);
            attached.explain(exchanged).unwrap();
        }
    }
    let metrics = scrape(&net.gateway, address(&attached).unwrap());
    let shown = xdptun::status(&net.gateway).unwrap();
    let gateways = shown["gateways"].as_array().unwrap();
    let on = |dev, name: &str, outcome| {
        let labels = [("interface", dev), ("function", "gateway")];
        metrics.value(name, &[&labels[..], &[("outcome", outcome)]].concat())
    };
    for (name, outcome, count) in [
        ("xdptun_packets_total", "in_forwarded", 3.0),
        ("xdptun_sessions_total", "sessions_began", 2.0),
        ("xdptun_sessions_total", "sessions_proven", 1.0),
    ] {
        assert_eq!(on(Served::WAN, name, outcome), Some(count), "{outcome}");
    }
    let mut names = BTreeSet::new();
    for gateway in gateways {
        let dev = gateway["name"].as_str().unwrap();
        names.insert(dev);
        let counters = gateway["counters"].as_object().unwrap();
        for (name, count) in counters {
            let is_of_sessions = name.starts_with("sessions_") || name.starts_with("bindings_");
            let metric = match name.as_str() {
                "fragments_lost" => "xdptun_fragments_lost_total",
                _ if is_of_sessions => "xdptun_sessions_total",
                _ => "xdptun_packets_total",
            };
            assert_eq!(on(dev, metric, name), count.as_f64(), "{dev} {name}");
        }
        let names = [
            "xdptun_packets_total",
            "xdptun_sessions_total",
            "xdptun_fragments_lost_total",
        ];
        let told = names.map(|name| metrics.label_values(name, "outcome").len());
        assert_eq!(told.iter().sum::<usize>(), counters.len());
    }
    assert_eq!(names, BTreeSet::from([Served::WAN, Served::LAN]));

    let group = gateways[0]["group"].as_array().unwrap().iter();
    let group: Vec<&str> = group.map(|name| name.as_str().unwrap()).collect();
    let group = group.join(",");
    for (state, count) in [("new", 0), ("answered", 1), ("open", 1), ("closing", 0)] {
        let listed = gateways[0]["session_states"][state].as_u64();
        assert_eq!(listed.unwrap_or(0), count, "{state}");
        let labels = [("group", group.as_str()), ("state", state)];
        let told = metrics.value("xdptun_session_states", &labels);
        assert_eq!(told, Some(count as f64), "{state}");
    }
    for (name, field) in [
        ("xdptun_session_table_capacity", "max_sessions"),
        ("xdptun_bindings", "bindings"),
        ("xdptun_binding_table_capacity", "max_bindings"),
    ] {
        let told = metrics.value(name, &[("group", &group)]);
        assert_eq!(told, gateways[0][field].as_f64(), "{name}");
    }
    assert_eq!(gateways[0]["max_sessions"], 1000);
    for name in ["xdptun_session_states", "xdptun_session_table_capacity"] {
        assert_eq!(metrics.label_values(name, "group").len(), 1, "{name}");
    }
    attached.stop().unwrap();
}

fn unix_time() -> f64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64()
}

#[test]
fn only_reads_of_one_path_are_answered() {
    let net = Direct::new().unwrap();
    let (_attached, address) = attach(&net.a);
    let ask = |method, path| request(&net.a.netns, address, method, path).unwrap();
    for path in ["/", "/metrics/", "/metricsx", "//metrics"] {
        assert_eq!(ask("GET", path).status, 404, "{path}");
    }
    assert_eq!(ask("GET", "/metrics?name=x").status, 200);
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let refused = ask(method, "/metrics");
        assert_eq!(refused.status, 405, "{method}");
        let mut headers = refused.headers.iter();
        assert!(
            headers.any(|header| header == "allow: get, head"),
            "{refused:?}"
        );
    }
    let head = ask("HEAD", "/metrics");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let mut stream = connect(&net.a.netns, address).unwrap();
    stream.write_all(b"\0\xff nonsense\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

/// What does not read OpenMetrics asks for plain text.
#[test]
fn who_asks_for_the_format_of_prometheus_gets_it() {
    let net = Direct::new().unwrap();
    let (_attached, address) = attach(&net.a);
    let ask = |accept: &str| {
        let accept = format!("Accept: {accept}\r\n");
        request_with(&net.a.netns, address, "GET", "/metrics", &accept).unwrap()
    };
    let plain = ask("text/plain;version=0.0.4;q=0.3, */*;q=0.1");
    let has = |header: &str| plain.headers.iter().any(|one| one == header);
    assert!(
        has("content-type: text/plain; version=0.0.4; charset=utf-8"),
        "{plain:#?}"
    );
    assert!(has("vary: accept"), "{plain:#?}");
    for line in [
        "# TYPE xdptun_packets_total counter",
        "# TYPE xdptun_tunnel_info gauge",
        "# TYPE xdptun_interface_mtu_bytes gauge",
    ] {
        assert!(
            plain.body.lines().any(|one| one == line),
            "{line}: {}",
            plain.body
        );
    }
    assert!(
        !plain.body.contains("# UNIT") && !plain.body.contains("# EOF"),
        "{}",
        plain.body
    );
    // The values are the same.
    let values = |text: &str| -> Vec<String> {
        let values = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.contains("seconds"));
        values.map(str::to_owned).collect()
    };
    let open = ask("application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    assert!(open.body.ends_with("# EOF\n"), "{}", open.body);
    assert_eq!(values(&plain.body), values(&open.body));
}

/// Clients that send nothing, or not enough, delay no other client and are disconnected.
#[test]
fn slow_clients_block_no_others() {
    let net = Direct::new().unwrap();
    let (_attached, address) = attach(&net.a);
    let idle = |number: usize| {
        let mut stream = connect(&net.a.netns, address).unwrap();
        if number % 2 == 1 {
            let half = b"GET /metrics HTTP/1.1\r\nHost: ";
            stream.write_all(half).unwrap();
        }
        stream
    };
    let mut clients: Vec<TcpStream> = (0..100).map(idle).collect();
    scrape(&net.a.netns, address);
    let latest = clients.pop().unwrap();
    // Long before it is too slow.
    let oldest = clients.remove(0);
    assert!(is_sent_away(oldest, LIMIT / 2), "the oldest of too many");
    assert!(is_sent_away(latest, 2 * LIMIT), "a slow one");
}

/// Whether the server closes a connection in time.
fn is_sent_away(mut stream: TcpStream, limit: Duration) -> bool {
    let limit = wait::stretched(limit).unwrap();
    stream.set_read_timeout(Some(limit)).unwrap();
    match stream.read(&mut [0; 1]) {
        Ok(length) => length == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn an_address_in_use_changes_nothing() {
    let net = Direct::new().unwrap();
    let before = Traces::of(&net.a).unwrap();
    let other = || TcpListener::bind(LOOPBACK).unwrap();
    let other = net.a.netns.enter(other).unwrap();
    let taken = other.local_addr().unwrap().to_string();
    let attach_at = |metrics: &str| {
        let args = ["attach", "--iface", Host::DEV, "--port", "8000"];
        run(&net.a.netns, &[&args[..], &["--metrics", metrics]].concat()).unwrap()
    };
    attach_at(&taken).assert_one_line(&[&taken, "in use", "--metrics"]);
    attach_at("10.9.9.9:9500").assert_one_line(&["10.9.9.9:9500", "--metrics"]);
    let refused = attach_at("9500");
    assert_eq!(refused.code, Some(2), "{refused:#?}");
    refused.assert_first_line(&["--metrics", "9500"]);
    assert_eq!(Traces::of(&net.a).unwrap(), before);

    // Nor does another xdptun share it.
    let (attached, address) = attach(&net.a);
    let address = address.to_string();
    attach_at(&address).assert_one_line(&[&address, "in use"]);
    attached.stop().unwrap();
}

/// After a take-over the new process serves on the same address.
#[test]
fn a_successor_takes_the_address_over() {
    let net = Direct::new().unwrap();
    let (first, address) = attach(&net.a);
    let at = address.to_string();
    let args = ["--port", "8000", "--metrics", &at, "--take-over"];
    let second = mode::TC.attach(&net.a, &args).unwrap();
    assert_eq!(self::address(&second).unwrap(), address);
    let ended = || !first.process().is_running().unwrap();
    wait::until(LIMIT, "the first one to end", ended).unwrap();
    let metrics = scrape(&net.a.netns, address);
    let labels = [("interface", Host::DEV), ("function", "tunnel")];
    let up = metrics.value("xdptun_daemon_up", &labels);
    assert_eq!(up, Some(1.0));
    second.stop().unwrap();
}

/// Every name, label and value that the dashboard asks for is one that is told.
#[test]
fn the_dashboard_asks_for_what_there_is() {
    let net = Served::new().unwrap();
    let (_attached, address) = attach_all(&net).unwrap();
    let metrics = scrape(&net.gateway, address);
    let mut used = BTreeSet::new();
    for query in queries().unwrap() {
        used.extend(check(&metrics, &query.expression, &query.legend));
    }
    let told: BTreeSet<String> = metrics.names().into_iter().map(str::to_owned).collect();
    assert_eq!(used, told, "what the dashboard shows, and what is measured");
}

/// Checks one expression; returns the names it uses.
fn check(metrics: &Exposition, expression: &str, legend: &str) -> BTreeSet<String> {
    let is_letter = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
    let word = |text: &str| -> String { text.chars().take_while(is_letter).collect() };
    let mut names = BTreeSet::new();
    for (at, _) in expression.match_indices("xdptun_") {
        let name = word(&expression[at..]);
        let known = metrics.names().contains(&name.as_str());
        assert!(known, "no {name}: {expression}");
        let selector = expression[at + name.len()..].strip_prefix('{');
        let selector = selector.map_or("", |rest| rest.split_once('}').unwrap().0);
        for matcher in selector.split("\",").filter(|matcher| !matcher.is_empty()) {
            let label = word(matcher);
            let values = metrics.label_values(&name, &label);
            assert!(!values.is_empty(), "no label {label}: {expression}");
            if let Some(value) = matcher.strip_prefix(&format!("{label}=\"")) {
                let value = value.trim_end_matches('"');
                assert!(values.contains(value), "no {value}: {expression}");
            }
        }
        names.insert(name);
    }
    assert!(!names.is_empty(), "{expression}");
    // Prometheus adds `instance`.
    let known = |label: &str| {
        let has = |name: &String| !metrics.label_values(name, label).is_empty();
        label == "instance" || names.iter().any(has)
    };
    let grouped = ["by (", "on (", "group_left ("].iter().flat_map(|words| {
        expression.split(words).skip(1).flat_map(|rest| {
            let (labels, _) = rest.split_once(')').unwrap();
            labels.split(", ")
        })
    });
    let shown = legend.split("{{").skip(1).map(word);
    for label in grouped.map(str::to_owned).chain(shown) {
        assert!(known(&label), "no label {label}: {expression} {legend}");
    }
    names
}
