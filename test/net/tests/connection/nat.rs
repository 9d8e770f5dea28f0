//! Across routers that masquerade, one and two in series, with every setting of
//! their conntrack: each sees only TCP that its conntrack accepts.

use std::net::SocketAddr;

use xdptun_lab::topology::Dropped;
use xdptun_lab::{Family, Routed, WireStats, udp};
use xdptun_test_net::wire::Passage;
use xdptun_test_net::{LIMIT, PORT, mode, status};

/// Every length up to `LONGEST` in steps that hit odd and even ones.
const STEP: usize = 37;
/// The largest datagram over IPv6, MTU 1500.
const LONGEST: usize = 1440;

#[test]
fn one_router_finds_every_segment_in_order() {
    every_temper_finds_all_in_order(&Routed::new().unwrap());
}

#[test]
fn two_routers_in_series_find_every_segment_in_order() {
    every_temper_finds_all_in_order(&Routed::behind_two().unwrap());
}

fn every_temper_finds_all_in_order(net: &Routed) {
    net.offload("tx", false).unwrap();
    let hosts = [net.client(), &net.server];
    let [client, server] = hosts;
    let _attached = mode::TC.attach_to(hosts).unwrap();
    let echoes = Family::BOTH.map(|family| {
        let echo = udp::Server::echo(&server.netns, server.socket(family, PORT)).unwrap();
        (family, echo)
    });
    let passage = Passage::watch(net).unwrap();
    let lengths: Vec<usize> = (0..=LONGEST).step_by(STEP).chain([1, 2, LONGEST]).collect();
    let mut flows = 0;
    for (loose, liberal) in [(false, false), (false, true), (true, false), (true, true)] {
        for router in net.routers() {
            router.set_loose(loose).unwrap();
            router.set_liberal(liberal).unwrap();
        }
        for (family, echo) in &echoes {
            let context = format!("{family}, loose {loose}, liberal {liberal}");
            let socket = udp::bind(&client.netns, client.socket(*family, 0)).unwrap();
            udp::exchange(&socket, echo.address(), b"", LIMIT).unwrap();
            flows += 1;
            let before = hosts.map(|host| status::counters(&host.netns).unwrap());
            for (seed, length) in (0..).zip(&lengths) {
                let payload = udp::pattern(*length, seed);
                udp::exchange(&socket, echo.address(), &payload, LIMIT)
                    .unwrap_or_else(|error| panic!("{context}: {error:#}"));
            }
            status::assert_carried(hosts, &before, lengths.len() as u64, &context);
            for router in net.routers() {
                let entries = router.conntrack("tcp", PORT).unwrap();
                assert_eq!(entries.len(), flows, "{context}: {entries:#?}");
                let assured =
                    |entry: &String| entry.contains("ESTABLISHED") && entry.contains("[ASSURED]");
                assert!(entries.iter().all(assured), "{context}: {entries:#?}");
                assert_eq!(router.conntrack("udp", PORT).unwrap(), [""; 0], "{context}");
                assert_eq!(router.dropped().unwrap(), Dropped::default(), "{context}");
            }
            let at_server = status::flows(&server.netns).unwrap();
            assert_eq!(at_server.len(), flows, "{context}: {at_server:#?}");
            let translated = at_server.iter().all(|flow| {
                let remote: SocketAddr = flow.remote.parse().unwrap();
                Family::BOTH
                    .map(|family| net.seen_address(family))
                    .contains(&remote.ip())
            });
            assert!(translated, "{context}: {at_server:#?}");
        }
    }
    let bytes: usize = lengths.iter().sum();
    // Empty datagrams have no payload to be counted by.
    let full = lengths.iter().filter(|length| **length > 0).count();
    for (name, frames) in passage.stop(PORT).unwrap() {
        let stats = WireStats::of(PORT, &frames);
        assert_eq!(
            (stats.data_segments, stats.payload_bytes),
            ((2 * flows * full) as u64, (2 * flows * bytes) as u64),
            "{name}: {stats:#?}"
        );
        assert_eq!(
            (stats.handshakes.len(), stats.syn, stats.rst, stats.fin),
            (flows, flows as u64, 0, 0),
            "{name}: {stats:#?}"
        );
    }
}
