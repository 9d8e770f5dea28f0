//! The least that must hold under every kernel: each way to attach, both
//! families, complete and pending checksums, super-packets, and WireGuard in the
//! kernel. The suites of `test/net` and `test/wg` go into depth.
//!
//! Few attachments, because the verifier takes ten seconds in a guest.

use std::net::{TcpListener, TcpStream, UdpSocket};

use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};
use xdptun_lab::content::Filling;
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Direct, Family, Host, Inside, Served, secret, udp, xdptun};
use xdptun_test_net::cli::run;
use xdptun_test_net::inside::{nat, outside_end, pass};
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::wire::{Wire, segments};
use xdptun_test_net::{LIMIT, PORT, divided, kernel, socket, status, tcp, translated};
use xdptun_test_wg::{Between, Implementation, Path, Scenario};

/// Shorter and longer than what the room-making saves, odd, and the most that
/// fits.
fn lengths(family: Family) -> [usize; 9] {
    [0, 1, 2, 27, 46, 47, 333, 1000, divided::fits(family)]
}

/// All that the hosts sent must be TCP with final and good checksums; returns
/// how many segments of the client's flow carried data. Flows from before may
/// still be asked whether they are there.
fn judge(wire: Wire, client: &UdpSocket, context: &str) -> usize {
    let frames = wire.stop().unwrap();
    let port = client.local_addr().unwrap().port();
    let mut segments = segments(&frames, PORT);
    segments.retain(|segment| segment.has_port(port));
    // The first datagram may overtake the ACK on another core; both complete the
    // handshake.
    let flags: Vec<String> = segments.iter().take(2).map(|s| s.flags()).collect();
    assert_eq!(flags, ["S", "S."], "{context}");
    segments.iter().filter(|segment| segment.is_data()).count()
}

/// Datagrams there and back.
fn echo(net: &Direct, family: Family, context: &str) {
    let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
    let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
    let wire = Wire::watch(&[&net.a, &net.b]).unwrap();
    for length in lengths(family) {
        let payload = udp::pattern(length, 7);
        udp::exchange(&client, server.address(), &payload, LIMIT)
            .unwrap_or_else(|error| panic!("{context}, {length} bytes: {error:#}"));
    }
    assert_eq!(
        judge(wire, &client, context),
        2 * lengths(family).len(),
        "{context}"
    );
}

/// A super-packet there, its datagrams back.
fn split(net: &Direct, family: Family, context: &str) {
    let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
    let client = socket::roomy(&net.a.netns, net.a.socket(family, 0)).unwrap();
    let wire = Wire::watch(&[&net.a, &net.b]).unwrap();
    udp::exchange(&client, server.address(), b"opens the flow", LIMIT).unwrap();
    let piece = divided::fits(family);
    setsockopt(&client, UdpGsoSegment, &i32::try_from(piece).unwrap()).unwrap();
    let batch = udp::pattern(7 * piece + 1, 9);
    client.send_to(&batch, server.address()).unwrap();
    let mut echoed = Vec::new();
    while echoed.len() < batch.len() {
        let (bytes, _) = udp::receive(&client, LIMIT)
            .unwrap_or_else(|error| panic!("{context}, super-packet: {error:#}"));
        echoed.extend(bytes);
    }
    assert!(echoed == batch, "{context}: other bytes came back");
    assert_eq!(judge(wire, &client, context), 2 * (1 + 8), "{context}");
}

fn carry_in(mode: Mode) {
    let net = Direct::new().unwrap();
    let splitting = kernel::offloads_for_super_packets(&net).unwrap();
    let attached = mode.attach_both(&net).unwrap();
    for offload in [true, false] {
        net.offload("tx", offload).unwrap();
        for family in Family::BOTH {
            let context = format!("{mode:?}, {family}, tx {offload}");
            echo(&net, family, &context);
            if splitting.contains(&offload) {
                split(&net, family, &context);
            }
        }
    }
    let status = xdptun::status(&net.a.netns).unwrap();
    assert_eq!(status["interfaces"][0]["ingress"], mode.ingress);
    let split = status::counter(&net.a.netns, "tx_split").unwrap();
    assert_eq!(split, 2 * splitting.len() as u64);
    for attached in attached {
        attached.stop().unwrap();
    }
}

#[test]
fn tc_as_the_kernel_has_it() {
    carry_in(mode::TC);
}

#[test]
fn native_xdp_and_clsact_filters() {
    carry_in(mode::XDP_CLSACT);
}

/// fq sorts and paces by flow. A second fragment that overtakes the first is dropped, so all datagrams
/// arrive only if fq keeps their order. The socket is not connected, like WireGuard's.
#[test]
fn fair_queuing_loses_no_divided_datagram() {
    let net = Direct::new().unwrap();
    let tc = |words: &str| net.a.netns.run("tc", words.split(' ')).unwrap();
    tc(&format!(
        "qdisc replace dev {} root fq maxrate 10mbit",
        Host::DEV
    ));
    let _attached = mode::TC.attach_both(&net).unwrap();
    for family in Family::BOTH {
        let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let client = divided::client(&net, family, &server).unwrap();
        let before = status::counters(&net.a.netns).unwrap();
        // fq takes 100 packets of a flow.
        let datagrams: Vec<Vec<u8>> = (0..40)
            .map(|number| divided::data(divided::fits(family) + 12, number))
            .collect();
        for datagram in &datagrams {
            client.send_to(datagram, server.address()).unwrap();
        }
        let mut arrived: Vec<Vec<u8>> = datagrams
            .iter()
            .map(|_| udp::receive(&client, LIMIT).unwrap().0)
            .collect();
        // The queue is on one host only; the way back may change the order.
        arrived.sort();
        assert!(arrived == datagrams, "{family}");
        let moved = status::moved(&before, &status::counters(&net.a.netns).unwrap());
        assert_eq!(moved.get("tx_fragment"), Some(&80), "{family}: {moved:?}");
        assert_eq!(moved.get("tx_too_big"), None, "{family}: {moved:?}");
    }
    let queue = tc(&format!("-s qdisc show dev {}", Host::DEV));
    let throttled = queue.rsplit("throttled ").next().unwrap();
    let throttled = throttled.split_whitespace().next().unwrap();
    // Otherwise the queue delayed nothing, and the test shows nothing.
    assert!(throttled.parse::<u32>().unwrap() > 0, "{queue}");
}

/// Connections and datagrams through `xdptun forward`, the client's address kept or not.
#[test]
fn ports_are_forwarded() {
    let net = Served::new().unwrap();
    for family in Family::BOTH {
        // Connections that ended keep their address and port for a while.
        for (source, port) in [("keep", 40_000), ("masquerade", 40_001)] {
            let service = net.back_end.socket(family, 8080);
            let rule = [
                "--listen",
                "7000",
                "--to",
                &service.to_string(),
                "--source",
                source,
            ];
            let attached = Attached::forward(&net.gateway, Served::WAN, &rule).unwrap();
            let remote = net.listen_at(family, 7000);
            let local = net.client.socket(family, port);
            let (near, far) = (&net.client.netns, &net.back_end.netns);
            let exchanged = tcp::exchange_through(near, local, remote, far, service);
            attached.explain(exchanged).unwrap();
            let echo = udp::Server::echo(far, service).unwrap();
            let client = udp::bind(near, local).unwrap();
            for length in lengths(family) {
                let exchanged = udp::exchange(&client, remote, &udp::pattern(length, 3), LIMIT);
                attached.explain(exchanged).unwrap();
            }
            drop(echo);
            attached.stop().unwrap();
        }
    }
}

/// Connections, datagrams and queries of two inside hosts through `xdptun nat`, from equal ports, and
/// datagrams between these hosts by their outside ends.
#[test]
fn inside_hosts_are_translated() {
    let net = Inside::new().unwrap();
    let attached = nat(&net, &[]);
    let [outside, _] = &net.outside;
    let service = outside.socket(Family::V4, 8080);
    let all = [&net.a, &net.b];
    for host in all {
        let local = host.socket(Family::V4, 20_000);
        let far = &outside.netns;
        let exchanged = tcp::exchange_through(&host.netns, local, service, far, service);
        attached.explain(exchanged).unwrap();
        let pinged = host
            .netns
            .run("ping", ["-c1", "-W5", &service.ip().to_string()]);
        attached.explain(pinged).unwrap();
    }
    let echo = udp::Server::echo(&outside.netns, service).unwrap();
    let sockets = all.map(|host| udp::bind(&host.netns, host.socket(Family::V4, 20_000)).unwrap());
    for length in lengths(Family::V4) {
        for socket in &sockets {
            let exchanged = udp::exchange(socket, service, &udp::pattern(length, 3), LIMIT);
            attached.explain(exchanged).unwrap();
        }
    }
    drop(echo);
    let server = udp::bind(&outside.netns, service).unwrap();
    let ends = sockets
        .each_ref()
        .map(|socket| outside_end(socket, &server));
    let [a, b] = &sockets;
    assert_eq!(pass(a, ends[1], b, 4).unwrap(), ends[0]);
    assert_eq!(pass(b, ends[0], a, 5).unwrap(), ends[1]);
    attached.stop().unwrap();
}

#[test]
fn ipv6_only_clients_are_translated() {
    let net = Inside::new().unwrap();
    let attached = translated::nat64(&net, &[]);
    let [outside, _] = &net.outside;
    let service = outside.socket(Family::V4, 8080);
    let called = translated::called(outside.v4, 8080);
    let talk = || {
        let local = net.a.socket(Family::V6, 20_000);
        tcp::exchange_through(&net.a.netns, local, called, &outside.netns, service)?;
        let pinged = called.ip().to_string();
        net.a.netns.run("ping", ["-c1", "-W5", &pinged])?;
        let _echo = udp::Server::echo(&outside.netns, service)?;
        let socket = udp::bind(&net.a.netns, local)?;
        for length in lengths(Family::V6) {
            udp::exchange(&socket, called, &udp::pattern(length, 3), LIMIT)?;
        }
        translated::all_passed(&net.gateway)
    };
    attached.explain(talk()).unwrap();
    attached.stop().unwrap();
}

#[test]
fn payloads_are_searched() {
    let net = Direct::new().unwrap();
    let rule = [
        "--direction",
        "in",
        "--contains",
        "STEPH",
        "--action",
        "drop",
    ];
    let attached = Attached::policy(&net.b.netns, Host::DEV, &rule).unwrap();
    let mut dropped = 0;
    for family in Family::BOTH {
        let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
        for length in [5, 333, divided::fits(family)] {
            let mut payload = udp::pattern(length, 5);
            payload[length - 5..].copy_from_slice(b"STEPH");
            client.send_to(&payload, server.address()).unwrap();
            dropped += 1;
            // What comes after it comes back first.
            payload[length - 1] = b'!';
            let exchanged = udp::exchange(&client, server.address(), &payload, LIMIT);
            attached.explain(exchanged).unwrap();
        }
    }
    let status = xdptun::status(&net.b.netns).unwrap();
    let counters = &status["policies"][0]["counters"];
    assert_eq!(counters["in_drop_matched"], dropped, "{counters}");
    attached.stop().unwrap();
}

#[test]
fn wireguard_in_the_kernel() {
    assert_eq!(Implementation::chosen().unwrap(), Implementation::Kernel);
    let scenario = Scenario::new(Between::StrictRouter, 1, Filling::Pattern).unwrap();
    let hosts = [&scenario.server, &scenario.client];
    let attached = mode::TC.attach_to(hosts).unwrap();
    let capture = scenario.watch().unwrap();
    scenario.ping().unwrap();
    let download = scenario.fetch(Path::Xdptun, |_| {}).unwrap();
    scenario.verify(&download).unwrap();
    for attached in attached {
        attached.stop().unwrap();
    }
    let wire = capture.stop().unwrap();
    assert_eq!(
        (wire.udp_datagrams, wire.bad_checksums),
        (0, 0),
        "{wire:#?}"
    );
    assert_eq!(wire.unready_checksums, 0, "{wire:#?}");
    // The datagrams have no DF.
    assert_eq!(wire.segments_without_df, 0, "{wire:#?}");
    assert_eq!(wire.handshakes.len(), 1, "{wire:#?}");
    assert!(wire.payload_bytes > 1 << 20, "{wire:#?}");
}

/// Attaches to both hosts with a secret, and with more options.
fn attach_with_secret(net: &Direct, mode: Mode, more: &[&str]) -> [Attached; 2] {
    let scratch = Scratch::new().unwrap();
    let secret = secret::write(scratch.path(), "secret", "correct horse battery").unwrap();
    let args = [&["--secret", &secret], more].concat();
    mode.attach_with([&net.a, &net.b], &args).unwrap()
}

/// They have most to do then. Without BTF it is too much for the verifier.
#[test]
fn payloads_are_veiled() {
    if !kernel::has_btf() {
        let net = Direct::new().unwrap();
        let scratch = Scratch::new().unwrap();
        let secret = secret::write(scratch.path(), "secret", "correct horse battery").unwrap();
        let attach = [
            "attach",
            "--iface",
            Host::DEV,
            "--port",
            "8000",
            "--secret",
            &secret,
        ];
        let refused = run(&net.a.netns, &[&attach[..], &["--veil"]].concat()).unwrap();
        return refused.assert_one_line(&["veil", "BTF", "/sys/kernel/btf/vmlinux"]);
    }
    for mode in [mode::TC, mode::XDP] {
        let net = Direct::new().unwrap();
        let attached = attach_with_secret(&net, mode, &["--veil"]);
        for family in Family::BOTH {
            echo(&net, family, &format!("a veil, {mode:?}, {family}"));
        }
        for process in attached {
            process.stop().unwrap();
        }
    }
}

/// The programs take more stack with a secret, and look for sockets.
#[test]
fn a_port_that_a_tcp_server_shares() {
    let net = Direct::new().unwrap();
    let attached = attach_with_secret(&net, mode::TC, &[]);
    for family in Family::BOTH {
        let address = net.b.socket(family, PORT);
        let server = net.b.netns.enter(|| TcpListener::bind(address));
        let _server = server.unwrap().unwrap();
        echo(&net, family, &format!("a secret, {family}"));
        let connected = net.a.netns.enter(|| TcpStream::connect(address));
        connected.unwrap().unwrap();
    }
    for process in attached {
        process.stop().unwrap();
    }
}
