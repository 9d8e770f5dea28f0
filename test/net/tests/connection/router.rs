//! Across a router that masquerades and believes only real connections.

use std::net::IpAddr;

use xdptun_lab::topology::{Dropped, Router};
use xdptun_lab::{Capture, Family, Host, Routed, WireStats, udp, wait};
use xdptun_test_net::wire::{Wire, packets, segments};
use xdptun_test_net::{LIMIT, PORT, mode, socket, status};

#[test]
fn the_router_sees_one_established_connection() {
    let net = Routed::new().unwrap();
    net.offload("tx", false).unwrap();
    let (client, server) = (net.client(), &net.server);
    let _attached = mode::TC.attach_to([client, server]).unwrap();
    for (flows, family) in (1..).zip(Family::BOTH) {
        let echo = udp::Server::echo(&server.netns, server.socket(family, PORT)).unwrap();
        let socket = udp::bind(&client.netns, client.socket(family, 0)).unwrap();
        let lan = Capture::start(&net.router.netns, &Router::lan(0)).unwrap();
        let wan = Capture::start(&net.router.netns, Router::WAN).unwrap();
        for length in [1, 0, 999, 1440] {
            let payload = udp::pattern(length, 4);
            udp::exchange(&socket, echo.address(), &payload, LIMIT).unwrap();
        }
        let entries = net.router.conntrack("tcp", PORT).unwrap();
        assert_eq!(entries.len(), flows, "{entries:#?}");
        for entry in &entries {
            assert!(entry.contains("ESTABLISHED"), "{entry}");
            assert!(entry.contains("[ASSURED]"), "{entry}");
        }
        assert_eq!(net.router.conntrack("udp", PORT).unwrap(), [""; 0]);
        for (name, capture) in [("LAN", lan), ("WAN", wan)] {
            let frames = capture.stop().unwrap();
            let stats = WireStats::of(PORT, &frames);
            assert_eq!(stats.udp_datagrams, 0, "{name}: {stats:#?}");
            assert_eq!(stats.data_segments, 6, "{name}: {stats:#?}");
            assert_eq!(
                stats.payload_bytes,
                2 * (1 + 999 + 1440),
                "{name}: {stats:#?}"
            );
            assert_eq!(
                (stats.bad_checksums, stats.unready_checksums),
                (0, 0),
                "{name}: {stats:#?}"
            );
            assert_eq!(
                (stats.rst, stats.handshakes.len()),
                (0, 1),
                "{name}: {stats:#?}"
            );
        }
    }
    assert_eq!(net.router.dropped().unwrap(), Dropped::default());
}

/// Two WireGuard peers behind one address: the router gives one of them another
/// port, so the server has two flows.
#[test]
fn two_clients_with_the_same_port_do_not_mix() {
    const ROUNDS: u8 = 100;
    let net = Routed::with_clients(2).unwrap();
    let _attached = mode::TC
        .attach_to([&net.clients[0], &net.clients[1], &net.server])
        .unwrap();
    for family in Family::BOTH {
        let echo = udp::Server::echo(&net.server.netns, net.server.socket(family, PORT)).unwrap();
        let wire = Wire::watch(&[&net.server]).unwrap();
        std::thread::scope(|scope| {
            for (number, client) in (0..).zip(&net.clients) {
                let to = echo.address();
                scope.spawn(move || {
                    let socket = socket::roomy(&client.netns, client.socket(family, PORT)).unwrap();
                    for round in 0..ROUNDS {
                        let mut payload = udp::pattern(10 + 7 * usize::from(round), round);
                        payload[0] = number;
                        udp::exchange(&socket, to, &payload, LIMIT)
                            .unwrap_or_else(|error| panic!("{family} client {number}: {error:#}"));
                    }
                });
            }
        });
        let frames = wire.stop().unwrap();
        // Each flow, as the router translated it, carries one client's bytes.
        let all = segments(&frames, PORT);
        let mut ports_of = [Vec::new(), Vec::new()];
        for segment in all.iter().filter(|segment| segment.is_data()) {
            ports_of[usize::from(segment.payload[0])].push(segment.destination.port());
        }
        for ports in &mut ports_of {
            assert_eq!(ports.len(), usize::from(ROUNDS));
            ports.dedup();
            assert_eq!(
                ports.len(),
                1,
                "{family}: one client in several flows: {ports:?}"
            );
        }
        assert_ne!(ports_of[0], ports_of[1], "{family}");
        let flows = status::flows(&net.server.netns).unwrap();
        let router = match family {
            Family::V4 => IpAddr::from(net.router.v4),
            Family::V6 => IpAddr::from(net.router.v6),
        };
        let ours = flows.iter().filter(|flow| {
            let remote: std::net::SocketAddr = flow.remote.parse().unwrap();
            remote.ip() == router
        });
        let counts: Vec<_> = ours.map(|flow| (flow.rx.0, flow.tx.0)).collect();
        assert_eq!(counts, [(ROUNDS.into(), ROUNDS.into()); 2], "{flows:#?}");
    }
    assert_eq!(net.router.dropped().unwrap(), Dropped::default());
}

/// A datagram that the router cannot place does not reach the server, and an
/// unsolicited server cannot reach the client: the disguise gives no more than
/// TCP would have.
#[test]
fn the_server_cannot_open_a_flow_through_the_translation() {
    let net = Routed::new().unwrap();
    let (client, server) = (net.client(), &net.server);
    let _attached = mode::TC.attach_to([client, server]).unwrap();
    let sink = udp::Server::sink(&client.netns, client.socket(Family::V4, PORT)).unwrap();
    let socket = udp::bind(&server.netns, server.socket(Family::V4, PORT)).unwrap();
    let capture = Capture::start(&client.netns, Host::DEV).unwrap();
    socket.send_to(b"knock", (net.router.v4, PORT)).unwrap();
    wait::until_some(LIMIT, "the router to refuse the SYN", || {
        Ok((net.router.dropped()?.unsolicited > 0).then_some(()))
    })
    .unwrap();
    let frames = capture.stop().unwrap();
    assert_eq!(packets(&frames, PORT).len(), 0);
    assert_eq!(sink.datagrams(), 0);
}
