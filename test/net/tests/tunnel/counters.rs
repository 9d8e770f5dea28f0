//! The counters of a small exchange, exactly, at both ends.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use xdptun_lab::{Direct, Family, Host, udp};
use xdptun_test_net::mode;
use xdptun_test_net::wire::{Wire, describe, segments};
use xdptun_test_net::{LIMIT, PORT, raw, socket, status};

/// Three datagrams there and back. The only thing that depends on the machine's
/// speed is how many acknowledgements are due after 480 ms, so these are counted
/// on the wire.
#[test]
fn three_datagrams_there_and_back() {
    for mode in [mode::TC, mode::XDP] {
        let net = Direct::new().unwrap();
        let _attached = mode.attach_both(&net).unwrap();
        for family in Family::BOTH {
            let before = [&net.a, &net.b].map(|host| status::counters(&host.netns).unwrap());
            let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
            let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
            let wire = Wire::watch(&[&net.a, &net.b]).unwrap();
            for (seed, length) in [(1, 10), (2, 0), (3, 1400)] {
                let payload = udp::pattern(length, seed);
                udp::exchange(&client, server.address(), &payload, LIMIT).unwrap();
            }
            let frames = wire.stop().unwrap();
            let segments = segments(&frames, PORT);
            let acks = |from: SocketAddr| {
                let bare = segments.iter().filter(|segment| segment.flags() == ".");
                bare.filter(|segment| segment.source == from).count() as u64
            };
            let context = describe(&segments);
            // One of the client's ends the handshake.
            let of_client = acks(client.local_addr().unwrap())
                .checked_sub(1)
                .unwrap_or_else(|| panic!("no ACK ends the handshake:{context}"));
            let of_server = acks(server.address());

            let expected_at_client = [
                ("tx_opened", 1),
                ("sent_syn", 1),
                ("rx_syn_ack", 1),
                ("tx_disguised", 3),
                ("rx_restored", 3),
                ("sent_ack", 1 + of_client),
                ("tx_requested", of_client),
                ("rx_ack", of_server),
            ];
            let expected_at_server = [
                ("rx_syn", 1),
                ("sent_syn_ack", 1),
                ("tx_disguised", 3),
                ("rx_restored", 3),
                ("sent_ack", of_server),
                ("tx_requested", of_server),
                ("rx_ack", 1 + of_client),
            ];
            status::wait_moved(&net.a.netns, &before[0], &expected_at_client)
                .unwrap_or_else(|error| panic!("{mode:?} {family}: {error:#}{context}"));
            status::wait_moved(&net.b.netns, &before[1], &expected_at_server)
                .unwrap_or_else(|error| panic!("{mode:?} {family}: {error:#}{context}"));

            let flows = [&net.a, &net.b].map(|host| status::flows(&host.netns).unwrap());
            let ends = [client.local_addr().unwrap(), server.address()].map(|end| end.to_string());
            for (flows, (local, remote)) in flows.iter().zip([(0, 1), (1, 0)]) {
                let ours = flows
                    .iter()
                    .filter(|flow| (&flow.local, &flow.remote) == (&ends[local], &ends[remote]));
                let ours: Vec<_> = ours.collect();
                assert_eq!(ours.len(), 1, "{flows:?}");
                assert_eq!(ours[0].state, "established");
                assert_eq!(ours[0].tx, (3, 1410), "{flows:?}");
                assert_eq!(ours[0].rx, (3, 1410), "{flows:?}");
            }
        }
    }
}

/// Each thing that is not carried moves its own counter and no other.
#[test]
fn each_refusal_has_its_counter() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    for family in Family::BOTH {
        let host = &net.a.netns;
        let socket = socket::roomy(host, net.a.socket(family, PORT)).unwrap();
        let peer = &net.b.netns;
        let check = |what: &str, counters: &[(&str, u64)], act: &dyn Fn()| {
            let before = status::counters(host).unwrap();
            act();
            status::wait_moved(host, &before, counters)
                .unwrap_or_else(|error| panic!("{family}, {what}: {error:#}"));
        };

        let group: IpAddr = match family {
            Family::V4 => [224, 0, 0, 77].into(),
            Family::V6 => [0xff02, 0, 0, 0, 0, 0, 0, 0x77].into(),
        };
        check("multicast", &[("tx_drop_destination", 1)], &|| {
            let to = match family {
                Family::V4 => format!("{group}/32"),
                Family::V6 => format!("{group}/128"),
            };
            let table: &[&str] = match family {
                Family::V4 => &[],
                Family::V6 => &["table", "local"],
            };
            let kind: &[&str] = match family {
                Family::V4 => &[],
                Family::V6 => &["multicast"],
            };
            let route = ["route", "replace"].iter().chain(kind).copied();
            let route = route.chain([to.as_str(), "dev", Host::DEV]);
            host.run("ip", route.chain(table.iter().copied())).unwrap();
            socket
                .send_to(b"to all", SocketAddr::new(group, PORT))
                .unwrap();
        });
        check("plain UDP", &[("rx_drop_plain_udp", 1)], &|| {
            let plain = udp::bind(peer, net.b.socket(family, 0)).unwrap();
            plain.send_to(b"plain", net.a.socket(family, PORT)).unwrap();
        });
        let to = net.a.socket(family, PORT);
        let from = net.b.socket(family, 4000);
        check(
            "data without a flow",
            &[("rx_drop_no_flow", 1), ("sent_rst", 1)],
            &|| {
                let fill = |header: &mut etherparse::TcpHeader| {
                    header.ack = true;
                    header.psh = true;
                };
                raw::send_segment(peer, from, to, fill, b"data").unwrap();
            },
        );
        check("a reset without a flow", &[("rx_drop_no_flow", 1)], &|| {
            raw::send_segment(peer, from, to, |header| header.rst = true, b"").unwrap();
        });
        check("a SYN", &[("rx_syn", 1), ("sent_syn_ack", 1)], &|| {
            // The peer's own stack would answer the SYN-ACK with a reset.
            let from = SocketAddr::new(unused(family), 4000);
            raw::send_segment(peer, from, to, |header| header.syn = true, b"").unwrap();
        });
        assert!(
            status::flows(host).unwrap().is_empty(),
            "a SYN alone makes no flow"
        );
        let error = udp::receive(&socket, Duration::from_millis(1)).unwrap_err();
        assert!(error.to_string().contains("no datagram"), "{error:#}");
    }
}

/// An unused address of the hosts' network.
fn unused(family: Family) -> IpAddr {
    match family {
        Family::V4 => [10, 0, 0, 99].into(),
        Family::V6 => [0xfd00, 0, 0, 0, 0, 0, 0, 0x99].into(),
    }
}
