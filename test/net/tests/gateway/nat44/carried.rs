//! What inside hosts send arrives with the outside address, and answers come back.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use nix::libc;
use serde_json::Value;
use xdptun_lab::xdptun::{Attached, status};
use xdptun_lab::{Capture, Family, Frame, Host, Inside, path, sockopt, udp, wait};
use xdptun_test_net::inside::{
    Packet, counter, counters, end, nat, outside_end, packets, pass, sessions, socket,
    without_inside,
};
use xdptun_test_net::socket::never_fragment;
use xdptun_test_net::status::expected;
use xdptun_test_net::{LIMIT, cli, tcp};

/// The port of both inside hosts.
const LOCAL: u16 = 5000;
/// That of the outside host.
const SERVICE: u16 = 8080;

/// TCP, UDP and echoes of two hosts at once, from the same port to the same one: every byte, every
/// checksum, every address and every counter.
#[test]
fn two_hosts_share_a_port() {
    let net = Inside::new().unwrap();
    net.complete_checksums().unwrap();
    let attached = nat(&net, &[]);
    let [server, _] = &net.outside;
    let wire = Capture::start(&net.gateway, Inside::WAN).unwrap();
    let hosts = [&net.a, &net.b];
    let near = hosts.map(|host| Capture::start(&host.netns, Host::DEV).unwrap());

    let service = server.socket(Family::V4, SERVICE);
    let listener = listen(server, service);
    let connect = |host: &Host| {
        let local = host.socket(Family::V4, LOCAL);
        let near = attached.explain(tcp::connect(&host.netns, local, service));
        let (far, seen) = listener.accept().unwrap();
        (near.unwrap(), far, seen)
    };
    let connections = hosts.map(connect);
    thread::scope(|scope| {
        for (near, far, _) in &connections {
            scope.spawn(|| attached.explain(tcp::exchange_over(near, far)).unwrap());
        }
    });
    let answerer = socket(server, SERVICE);
    let seen = hosts.map(|host| outside_end(&socket(host, LOCAL), &answerer));
    thread::scope(|scope| {
        for host in hosts {
            scope.spawn(|| ping(host, server, &["-c", "3", "-i", "0.01", "-e", "4242"]));
        }
    });

    // The first has its own port, the other one of the same parity.
    let tcp_seen = [connections[0].2, connections[1].2];
    for [first, second] in [tcp_seen, seen] {
        assert_eq!(first, Inside::outside_at(LOCAL));
        assert_eq!(second.ip(), first.ip());
        assert!(
            second != first && second.port() % 2 == LOCAL % 2,
            "{second}"
        );
    }
    drop(connections);
    let found = sessions(&net);
    assert_eq!(found.len(), 6, "{found:#?}");
    for (host, seen) in hosts.iter().zip(seen) {
        let inside = host.socket(Family::V4, LOCAL).to_string();
        let mut of_host = found.iter().filter(|one| one["inside"] == inside);
        let datagrams = of_host.find(|one| one["protocol"] == "udp").unwrap();
        for (name, value) in [
            ("function", "nat".to_owned()),
            ("outside", seen.to_string()),
            ("remote", service.to_string()),
            ("began", "inside".to_owned()),
        ] {
            assert_eq!(datagrams[name], value, "{datagrams}");
        }
        for name in ["call_packets", "answer_packets"] {
            assert_eq!(datagrams[name], 1, "{datagrams}");
        }
        let echo = found
            .iter()
            .find(|one| one["protocol"] == "icmp" && one["inside"] == format!("{}:4242", host.v4));
        assert_eq!(echo.unwrap()["remote"], format!("{}:0", server.v4));
    }
    assert_seen(&net, wire, near);
    attached.stop().unwrap();
    assert_eq!(status(&net.gateway).unwrap()["gateways"], Value::Null);
}

/// What the captures of the link outside and of both inside hosts have to show, and the counters.
fn assert_seen(net: &Inside, wire: Capture<Vec<Frame>>, near: [Capture<Vec<Frame>>; 2]) {
    let hosts = [&net.a, &net.b];
    let server = net.outside[0].v4;
    let all = without_inside(&wire.stop().unwrap());
    let pairs: BTreeSet<_> = all
        .iter()
        .map(|one| (one.source, one.destination))
        .collect();
    let both_ways = |one, other| BTreeSet::from([(one, other), (other, one)]);
    assert_eq!(pairs, both_ways(Inside::ADDRESS, server));
    let (out, back) = all.iter().partition::<Vec<Packet>, _>(|one| one.outgoing);
    assert!(out.len() > 1000 && back.len() > 1000, "{}", all.len());
    for (host, capture) in hosts.iter().zip(near) {
        let all = packets(&capture.stop().unwrap());
        let pairs: BTreeSet<_> = all
            .iter()
            .map(|one| (one.source, one.destination))
            .collect();
        assert_eq!(pairs, both_ways(host.v4, server));
    }
    let moved = [
        ("bindings_began", 6),
        ("in_translated", back.len() as u64),
        ("out_translated", out.len() as u64),
        ("sessions_began", 6),
        ("sessions_proven", 4),
    ];
    assert_eq!(counters(net, Inside::WAN), expected(&moved));
    assert_eq!(counters(net, Inside::LAN), expected(&[]));
}

fn listen(host: &Host, at: SocketAddr) -> TcpListener {
    let listener = host.netns.enter(|| TcpListener::bind(at)).unwrap();
    listener.unwrap()
}

/// Sends echo requests, each of which has to be answered.
fn ping(from: &Host, to: &Host, more: &[&str]) {
    let (limit, to) = (LIMIT.as_secs().to_string(), to.v4.to_string());
    let arguments = [&["-w", &limit], more, &[&to]].concat();
    from.netns.run("ping", &arguments).unwrap();
}

/// IPv6 is routed as it is.
#[test]
fn other_traffic_passes_as_it_is() {
    let net = Inside::new().unwrap();
    let attached = nat(&net, &[]);
    // Inside hosts of two networks, and this host.
    let [there, here] = [socket(&net.c, SERVICE), socket(&net.a, LOCAL)];
    assert_eq!(pass(&here, end(&there), &there, 1).unwrap(), end(&here));
    assert_eq!(pass(&there, end(&here), &here, 2).unwrap(), end(&there));
    let own = udp::bind(&net.gateway, ([192, 168, 7, 1], SERVICE)).unwrap();
    assert_eq!(pass(&here, end(&own), &own, 3).unwrap(), end(&here));
    let v6 = [&net.a, &net.c]
        .map(|host| udp::bind(&host.netns, host.socket(Family::V6, SERVICE)).unwrap());
    for host in [&net.a, &net.c] {
        let [.., subnet, _, _, _, _, _, _] = host.v6.segments();
        let default = [
            "-6",
            "route",
            "add",
            "default",
            "via",
            &format!("fd00:{subnet:x}::1"),
        ];
        host.netns.run("ip", default).unwrap();
    }
    let [near, far] = &v6;
    assert_eq!(pass(near, end(far), far, 4).unwrap(), end(near));
    for dev in [Inside::WAN, Inside::LAN] {
        assert_eq!(counters(&net, dev), expected(&[]));
    }
    attached.stop().unwrap();
}

/// An inside host hears what an outside host, or the network before it, has to say.
#[test]
fn refusals_and_errors_reach_the_inside_host() {
    let net = Inside::new().unwrap();
    net.complete_checksums().unwrap();
    let attached = nat(&net, &[]);
    let wire = Capture::start(&net.gateway, Inside::WAN).unwrap();
    let [server, narrow] = &net.outside;
    // No server: TCP resets, and UDP is answered by an ICMP error.
    let to = server.socket(Family::V4, SERVICE);
    let refused = net.a.netns.enter(|| TcpStream::connect(to)).unwrap();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let refused = socket(&net.a, LOCAL);
    refused.connect(to).unwrap();
    refused.set_read_timeout(Some(LIMIT)).unwrap();
    refused.send(b"hello").unwrap();
    let error = refused.recv(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(counter(&net, "in_error"), 1);
    // This host, and the router beyond, on the way of an echo.
    for (ttl, from) in [("1", "192.168.7.1"), ("2", "192.0.2.1")] {
        let to = server.v4.to_string();
        let arguments = ["-c", "1", "-t", ttl, "-W", "5", &to];
        let told = cli::finish(net.a.netns.command("ping").args(arguments)).unwrap();
        assert_eq!(told.code, Some(1), "{told:#?}");
        let line = format!("From {from} icmp_seq=1 Time to live exceeded");
        assert!(told.stdout.contains(&line), "{told:#?}");
    }
    assert_eq!(counter(&net, "in_error"), 2);
    // A link further on is narrow.
    let _narrow = path::narrow(&net.router, Inside::OUT[1], 1300).unwrap();
    let large = socket(&net.a, LOCAL + 1);
    never_fragment(&large, Family::V4).unwrap();
    large.connect(narrow.socket(Family::V4, SERVICE)).unwrap();
    large.send(&[0; 1400]).unwrap();
    wait::until(LIMIT, "the narrow link to be known", || {
        mtu_of(&large) == 1300
    })
    .unwrap();
    assert_eq!(counter(&net, "in_error"), 3);
    let exchanged = tcp::exchange(
        &net.a.netns,
        net.a.socket(Family::V4, LOCAL),
        &narrow.netns,
        narrow.socket(Family::V4, SERVICE),
    );
    attached.explain(exchanged).unwrap();
    without_inside(&wire.stop().unwrap());
    attached.stop().unwrap();
}

/// The MTU of the path of a connected socket.
fn mtu_of(socket: &std::net::UdpSocket) -> i32 {
    sockopt::int(socket, libc::IPPROTO_IP, libc::IP_MTU).unwrap()
}

/// An outside host hears what an inside host, or a link before that, has to say, from the outside
/// address.
#[test]
fn refusals_and_errors_reach_the_outside_host() {
    let net = Inside::new().unwrap();
    net.complete_checksums().unwrap();
    let attached = Attached::nat(
        &net.gateway,
        Inside::WAN,
        &["--inside", Inside::SECOND_NETWORK],
    );
    let attached = attached.unwrap();
    let wire = Capture::start(&net.gateway, Inside::WAN).unwrap();
    let [server, _] = &net.outside;
    let caller = socket(server, SERVICE);
    let inside = socket(&net.c, LOCAL);
    let seen = outside_end(&inside, &caller);
    caller.connect(seen).unwrap();
    let narrow = path::narrow(&net.gateway, Inside::SECOND_LAN, 1300).unwrap();
    never_fragment(&caller, Family::V4).unwrap();
    caller.send(&[0; 1400]).unwrap();
    wait::until(LIMIT, "the narrow link to be known", || {
        mtu_of(&caller) == 1300
    })
    .unwrap();
    narrow.widen().unwrap();
    let told = caller.take_error().unwrap();
    let told = told.and_then(|error| error.raw_os_error());
    assert_eq!(told, Some(libc::EMSGSIZE));
    drop(inside);
    caller.set_read_timeout(Some(LIMIT)).unwrap();
    caller.send(b"nobody").unwrap();
    let error = caller.recv(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let all = without_inside(&wire.stop().unwrap());
    assert!(
        all.iter()
            .all(|one| !one.outgoing || one.source == Inside::ADDRESS)
    );
    assert_eq!(counter(&net, "out_error"), 2);
    attached.stop().unwrap();
}
