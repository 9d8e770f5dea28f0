//! Traffic that xdptun leaves alone: real TCP, and UDP of other ports.

use std::net::SocketAddr;

use xdptun_lab::{Direct, Family, Routed, WireStats, udp};
use xdptun_test_net::nets::Bystander;
use xdptun_test_net::wire::{Wire, packets, segments};
use xdptun_test_net::{LIMIT, PORT, mode, status, tcp};

/// The case of a browser on a host whose tunnel uses port 443: a real
/// connection to the port number that xdptun owns, on a host without it, while
/// a disguised flow to that port number on another host is up.
#[test]
fn a_real_connection_to_the_owned_port_elsewhere_is_left_alone() {
    for mode in [mode::TC, mode::XDP] {
        let net = Routed::new().unwrap();
        let bystander = Bystander::new(&net).unwrap();
        let (client, server) = (net.client(), &net.server);
        let _attached = mode.attach_to([client, server]).unwrap();
        for family in Family::BOTH {
            let echo = udp::Server::echo(&server.netns, server.socket(family, PORT)).unwrap();
            let socket = udp::bind(&client.netns, client.socket(family, 0)).unwrap();
            udp::exchange(&socket, echo.address(), b"before", LIMIT).unwrap();
            let before = status::counters(&client.netns).unwrap();
            let any = client.socket(family, 0);
            for port in [PORT, 9000] {
                let remote = bystander.socket(family, port);
                tcp::exchange(&client.netns, any, &bystander.netns, remote)
                    .unwrap_or_else(|error| panic!("{mode:?} {family} port {port}: {error:#}"));
            }
            let moved = status::moved(&before, &status::counters(&client.netns).unwrap());
            assert!(moved.is_empty(), "{mode:?} {family}: {moved:?}");
            udp::exchange(&socket, echo.address(), b"after", LIMIT).unwrap();
        }
        let flows = status::flows(&client.netns).unwrap();
        assert_eq!(flows.len(), 2, "{flows:?}");
    }
}

/// Even the same port of the local side as that of the disguised flow.
#[test]
fn a_real_connection_may_share_the_local_port_of_a_flow() {
    let net = Routed::new().unwrap();
    let bystander = Bystander::new(&net).unwrap();
    let (client, server) = (net.client(), &net.server);
    let _attached = mode::TC.attach_to([client, server]).unwrap();
    for family in Family::BOTH {
        let echo = udp::Server::echo(&server.netns, server.socket(family, PORT)).unwrap();
        let socket = udp::bind(&client.netns, client.socket(family, 0)).unwrap();
        udp::exchange(&socket, echo.address(), b"before", LIMIT).unwrap();
        let local = socket.local_addr().unwrap();
        let remote = bystander.socket(family, PORT);
        tcp::exchange(&client.netns, local, &bystander.netns, remote).unwrap();
        udp::exchange(&socket, echo.address(), b"after", LIMIT).unwrap();
    }
}

/// Between two hosts that both have xdptun, everything of other ports passes as
/// it is.
#[test]
fn other_ports_pass_unchanged() {
    for mode in [mode::TC, mode::XDP, mode::XDP_GENERIC] {
        let net = Direct::new().unwrap();
        net.offload("tx", false).unwrap();
        let _attached = mode.attach_both(&net).unwrap();
        for family in Family::BOTH {
            let before = [&net.a, &net.b].map(|host| status::counters(&host.netns).unwrap());
            for (from, to) in [(&net.a, &net.b), (&net.b, &net.a)] {
                let (local, remote) = (from.socket(family, 0), to.socket(family, 9000));
                tcp::exchange(&from.netns, local, &to.netns, remote)
                    .unwrap_or_else(|error| panic!("{mode:?} {family}: {error:#}"));
            }
            let other = PORT + 1;
            let echo = udp::Server::echo(&net.b.netns, net.b.socket(family, other)).unwrap();
            let socket = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
            let wire = Wire::watch(&[&net.a, &net.b]).unwrap();
            for length in [0, 1, 100, 1452] {
                let payload = udp::pattern(length, 1);
                udp::exchange(&socket, echo.address(), &payload, LIMIT).unwrap();
            }
            let frames = wire.stop().unwrap();
            let stats = WireStats::of(other, &frames);
            assert_eq!(
                (stats.udp_datagrams, stats.tcp_segments),
                (8, 0),
                "{stats:#?}"
            );
            assert_eq!(
                (stats.bad_checksums, stats.unready_checksums),
                (0, 0),
                "{stats:#?}"
            );
            for (host, before) in [&net.a, &net.b].iter().zip(before) {
                let moved = status::moved(&before, &status::counters(&host.netns).unwrap());
                assert!(moved.is_empty(), "{mode:?} {family}: {moved:?}");
            }
        }
    }
}

/// UDP that did not come through a tunnel stops at an owned port.
#[test]
fn plain_udp_to_an_owned_port_is_dropped_and_counted() {
    for mode in [mode::TC, mode::XDP, mode::XDP_GENERIC, mode::TC_CLSACT] {
        let net = Direct::new().unwrap();
        let _attached = mode.attach(&net.a, &["--port", "8000"]).unwrap();
        for family in Family::BOTH {
            let server = udp::Server::sink(&net.a.netns, net.a.socket(family, PORT)).unwrap();
            let other = udp::Server::sink(&net.a.netns, net.a.socket(family, 9000)).unwrap();
            let outside = udp::bind(&net.b.netns, net.b.socket(family, 0)).unwrap();
            let outside_owned = udp::bind(&net.b.netns, net.b.socket(family, PORT)).unwrap();
            let before = status::counters(&net.a.netns).unwrap();
            for length in [0, 1, 100, 1452] {
                let payload = udp::pattern(length, 1);
                outside.send_to(&payload, server.address()).unwrap();
                // The sender's port counts as well.
                outside_owned.send_to(&payload, other.address()).unwrap();
            }
            let dropped = [("rx_drop_plain_udp", 8)];
            status::wait_moved(&net.a.netns, &before, &dropped)
                .unwrap_or_else(|error| panic!("{mode:?} {family}: {error:#}"));
            // One that is not ours follows on the same wire and arrives.
            outside.send_to(b"marker", other.address()).unwrap();
            xdptun_lab::wait::until(LIMIT, "the marker", || other.datagrams() == 1).unwrap();
            assert_eq!(server.datagrams(), 0, "{mode:?} {family}");
        }
    }
}

/// `--peer` narrows: a pair of addresses outside it talks UDP as if xdptun were
/// not there, at the same port.
#[test]
fn only_peers_are_disguised() {
    for mode in [mode::TC, mode::XDP] {
        let net = Direct::new().unwrap();
        for (host, number) in [(&net.a, 11), (&net.b, 12)] {
            let addresses = format!(
                "address add 10.0.0.{number}/24 dev eth0\naddress add fd00::{number}/64 dev eth0 nodad\n"
            );
            let netns = &host.netns;
            netns
                .run_with_input("ip", ["-batch", "-"], &addresses)
                .unwrap();
        }
        // A single address, a network, and both families.
        let near = [
            "--port",
            "8000",
            "--peer",
            "10.0.0.2",
            "--peer",
            "fd00::2/128",
        ];
        let far = ["--port", "8000", "--peer", "10.0.0.0/29,fd00::/124"];
        let _near = mode.attach(&net.a, &near).unwrap();
        let _far = mode.attach(&net.b, &far).unwrap();
        for family in Family::BOTH {
            let second = |number: u8| -> SocketAddr {
                match family {
                    Family::V4 => format!("10.0.0.{number}:0").parse().unwrap(),
                    Family::V6 => format!("[fd00::{number}]:0").parse().unwrap(),
                }
            };
            let with_port = |mut address: SocketAddr| {
                address.set_port(PORT);
                address
            };
            let wire = Wire::watch(&[&net.a, &net.b]).unwrap();
            let peer = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
            let socket = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
            udp::exchange(&socket, peer.address(), b"to a peer", LIMIT).unwrap();
            let frames = wire.stop().unwrap();
            let data = segments(&frames, PORT);
            assert_eq!(data.iter().filter(|segment| segment.is_data()).count(), 2);

            let wire = Wire::watch(&[&net.a, &net.b]).unwrap();
            let before = [&net.a, &net.b].map(|host| status::counters(&host.netns).unwrap());
            let stranger = udp::Server::echo(&net.b.netns, with_port(second(12))).unwrap();
            let socket = udp::bind(&net.a.netns, second(11)).unwrap();
            // fd00::11 is 0x11, outside fd00::/124 like 10.0.0.11 of its /29.
            udp::exchange(&socket, stranger.address(), b"to another", LIMIT)
                .unwrap_or_else(|error| panic!("{mode:?} {family}: {error:#}"));
            let frames = wire.stop().unwrap();
            let plain = packets(&frames, PORT);
            assert_eq!(plain.len(), 2, "{mode:?} {family}");
            assert!(
                plain.iter().all(|packet| packet.tcp().is_none()),
                "{mode:?} {family}"
            );
            for (host, before) in [&net.a, &net.b].iter().zip(before) {
                let moved = status::moved(&before, &status::counters(&host.netns).unwrap());
                assert!(moved.is_empty(), "{mode:?} {family}: {moved:?}");
            }
        }
    }
}

/// Ranges, lists and repetition of `--port` own exactly the ports named.
#[test]
fn ports_can_be_ranges_and_repeated() {
    let args = [
        "--port",
        "8000-8002",
        "--port",
        "9000",
        "--port",
        "9100,9102",
    ];
    let net = Direct::new().unwrap();
    let _near = mode::TC.attach(&net.a, &args).unwrap();
    let _far = mode::TC.attach(&net.b, &args).unwrap();
    let shown = &xdptun_lab::xdptun::status(&net.a.netns).unwrap()["interfaces"][0]["ports"];
    assert_eq!(
        *shown,
        serde_json::json!(["8000-8002", "9000", "9100", "9102"])
    );
    let owned = [8000, 8001, 8002, 9000, 9100, 9102];
    for port in (7999..=8003).chain(8999..=9001).chain(9099..=9103) {
        for family in Family::BOTH {
            let wire = Wire::watch(&[&net.a, &net.b]).unwrap();
            let echo = udp::Server::echo(&net.b.netns, net.b.socket(family, port)).unwrap();
            let socket = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
            udp::exchange(&socket, echo.address(), b"hello", LIMIT).unwrap();
            let stats = WireStats::of(port, &wire.stop().unwrap());
            let seen = (stats.udp_datagrams, stats.data_segments);
            let expected = if owned.contains(&port) {
                (0, 2)
            } else {
                (2, 0)
            };
            assert_eq!(seen, expected, "{family}, port {port}: {stats:#?}");
        }
    }
}
