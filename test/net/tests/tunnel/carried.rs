//! Datagrams that IP cuts: each fragment is a segment on the wire, and the peer's stack puts them
//! together.

use std::net::UdpSocket;

use xdptun_lab::{Direct, Family, Host, WireStats, link, udp, wait};
use xdptun_test_net::mode;
use xdptun_test_net::status::{self, Counters, wait_moved_apart_from_timed};
use xdptun_test_net::wire::Wire;
use xdptun_test_net::{LIMIT, PORT, divided, socket};

/// The payload of the longest datagram.
fn longest(family: Family) -> usize {
    match family {
        Family::V4 => 65_507,
        // IP's length counts UDP's header, and no more is in it.
        Family::V6 => 65_527,
    }
}

/// A client and an echo that know what fits, and that the other takes fragments. An answer of 3,000
/// bytes takes so many `segments`.
fn met(
    net: &Direct,
    family: Family,
    server: &udp::Server,
    segments: u64,
    context: &str,
) -> UdpSocket {
    let (a, b) = (&net.a.netns, &net.b.netns);
    let client = socket::roomy(a, net.a.socket(family, 0)).unwrap();
    let to = server.address();
    udp::exchange(&client, to, b"opens the flow", LIMIT).unwrap();
    let long = udp::pattern(3000, 1);
    let told = || status::counter(a, "tx_too_big").unwrap();
    let before = told();
    // The first fragment asks the peer whether it takes any, if no acknowledgement has said so yet.
    // Then its sender is told what fits.
    wait::until(LIMIT, "word of what fits", || {
        client.send_to(&long, to).unwrap();
        told() > before
    })
    .unwrap();
    // The peer knew by the handshake that fragments are taken, but not what fits.
    let before = status::counters(b).unwrap();
    client.send_to(&long, to).unwrap();
    let expected = [
        ("rx_fragment", segments),
        ("tx_drop_fragment", 1),
        ("tx_too_big", 1),
    ];
    wait_moved_apart_from_timed(b, &before, &expected)
        .unwrap_or_else(|error| panic!("{context}: {error:#}"));
    client
}

/// What the client's host has counted since then, if nothing but whole segments was on the wire and it
/// dropped nothing.
fn ensure_carried(net: &Direct, wire: Wire, before: &Counters, context: &str) -> Counters {
    let stats = WireStats::of(PORT, &wire.stop().unwrap());
    assert_eq!(
        (stats.udp_datagrams, stats.fragments, stats.bad_checksums),
        (0, 0, 0),
        "{context}: {stats:#?}"
    );
    let moved = status::moved(before, &status::counters(&net.a.netns).unwrap());
    assert!(
        moved.keys().all(|name| !name.contains("drop")),
        "{context}: {moved:?}"
    );
    moved
}

/// A client that does not listen when it is told what fits, and, over IPv6, a link of which nothing
/// smaller may be told: xdptun cuts each fragment in two.
#[test]
fn fragments_that_stay_too_long_are_cut() {
    for (mtu, family) in [(1500, Family::V4), (1500, Family::V6), (1280, Family::V6)] {
        let context = format!("MTU {mtu}, {family}");
        let net = Direct::new().unwrap();
        for host in [&net.a, &net.b] {
            link::set_mtu(&host.netns, Host::DEV, mtu).unwrap();
        }
        let _attached = mode::TC.attach_both(&net).unwrap();
        let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        // The kernel makes three fragments; those that fill the link become two segments each.
        let segments = if mtu == 1280 { 5 } else { 3 };
        let client = met(&net, family, &server, segments, &context);
        socket::ignore_path(&client, family).unwrap();
        let wire = Wire::watch(&[&net.a]).unwrap();
        let before = status::counters(&net.a.netns).unwrap();
        let datagrams = 20;
        for number in 0..datagrams {
            let len = 2 * mtu as usize + 100;
            udp::exchange(&client, server.address(), &udp::pattern(len, number), LIMIT)
                .unwrap_or_else(|error| panic!("{context}: {error:#}"));
        }
        let moved = ensure_carried(&net, wire, &before, &context);
        let segments = 5 * u64::from(datagrams);
        assert_eq!(moved.get("tx_fragment"), Some(&segments), "{context}");
    }
}

#[test]
fn datagrams_of_every_size_are_echoed() {
    for mode in [mode::TC, mode::XDP] {
        let net = Direct::new().unwrap();
        let _attached = mode.attach_both(&net).unwrap();
        for family in Family::BOTH {
            let context = format!("{mode:?}, {family}");
            let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
            let client = met(&net, family, &server, 3, &context);
            let wire = Wire::watch(&[&net.a]).unwrap();
            let before = status::counters(&net.a.netns).unwrap();
            let edges = [
                1, 1440, 1441, 1459, 1460, 1461, 1472, 1473, 1480, 2880, 2881, 2896, 2897,
            ];
            for len in edges.into_iter().chain([9000, 40_000, longest(family)]) {
                udp::exchange(&client, server.address(), &udp::pattern(len, 7), LIMIT)
                    .unwrap_or_else(|error| panic!("{context}, {len} bytes: {error:#}"));
            }
            let moved = ensure_carried(&net, wire, &before, &context);
            assert_eq!(
                moved.get("tx_fragment"),
                moved.get("rx_fragment"),
                "{context}"
            );
        }
    }
}

/// Its sender is not told, so it goes on to send what does not fit.
#[test]
fn data_of_wireguard_is_divided() {
    for mode in [mode::TC, mode::XDP] {
        let net = Direct::new().unwrap();
        let _attached = mode.attach_both(&net).unwrap();
        for family in Family::BOTH {
            let context = format!("{mode:?}, {family}");
            let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
            let client = divided::client(&net, family, &server)
                .unwrap_or_else(|error| panic!("{context}: {error:#}"));
            let wire = Wire::watch(&[&net.a]).unwrap();
            let before = status::counters(&net.a.netns).unwrap();
            for excess in 1..=12 {
                let datagram = divided::data(divided::fits(family) + excess, 1 + excess as u8);
                udp::exchange(&client, server.address(), &datagram, LIMIT)
                    .unwrap_or_else(|error| panic!("{context}, {excess}: {error:#}"));
            }
            let moved = ensure_carried(&net, wire, &before, &context);
            assert_eq!(moved.get("tx_fragment"), Some(&24), "{context}: {moved:?}");
            assert_eq!(moved.get("tx_too_big"), None, "{context}: {moved:?}");
        }
    }
}
