//! A peer that does not answer at first.

use std::net::UdpSocket;
use std::time::Duration;

use xdptun_lab::{Direct, Family, Host, Process, WireStats, udp, wait};
use xdptun_test_net::mode;
use xdptun_test_net::nets::Plain;
use xdptun_test_net::wire::{Wire, describe, segments};
use xdptun_test_net::{LIMIT, PORT, socket, status};

/// Half a second, then every second.
const GAPS: [Duration; 4] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(1),
    Duration::from_secs(1),
];

/// The daemon looks every 100 ms, and a busy machine is late.
const EARLY: Duration = Duration::from_millis(15);
const LATE: Duration = Duration::from_millis(400);

#[test]
fn syns_are_repeated_until_the_path_is_there() {
    let net = Plain::new().unwrap();
    let (client, server) = (net.0.client(), &net.0.server);
    let _attached = mode::TC.attach_to([client, server]).unwrap();
    net.hold().unwrap();
    let wire = Wire::watch(&[client, server]).unwrap();
    let ends: Vec<[UdpSocket; 2]> = Family::BOTH
        .iter()
        .map(|family| {
            let sink = socket::roomy(&server.netns, server.socket(*family, PORT)).unwrap();
            let socket = udp::bind(&client.netns, client.socket(*family, 0)).unwrap();
            for payload in [b"first".as_slice(), b"second", b""] {
                socket.send_to(payload, sink.local_addr().unwrap()).unwrap();
            }
            [socket, sink]
        })
        .collect();
    let syns = |wire: &Wire| wire.count(PORT, |segment| segment.flags() == "S");
    wait::until(LIMIT, "four SYNs of both flows", || syns(&wire) == 8).unwrap();
    net.release().unwrap();
    for [socket, sink] in &ends {
        let mut arrived: Vec<_> = (0..3).map(|_| udp::receive(sink, LIMIT).unwrap()).collect();
        arrived.sort();
        let from = socket.local_addr().unwrap();
        let expected =
            [b"".as_slice(), b"first", b"second"].map(|payload| (payload.to_vec(), from));
        assert_eq!(arrived, expected);
    }
    let frames = wire.stop().unwrap();
    let all = segments(&frames, PORT);
    for [socket, _] in &ends {
        let from = socket.local_addr().unwrap();
        let sent: Vec<_> = all
            .iter()
            .filter(|segment| segment.source == from)
            .collect();
        let syns: Vec<_> = sent
            .iter()
            .filter(|segment| segment.flags() == "S")
            .collect();
        assert_eq!(syns.len(), GAPS.len() + 1, "{}", describe(&all));
        for (pair, expected) in syns.windows(2).zip(GAPS) {
            let gap = pair[1].time - pair[0].time;
            assert!(
                gap + EARLY >= expected && gap <= expected + LATE,
                "a gap of {gap:?} instead of {expected:?}{}",
                describe(&all)
            );
            assert_eq!(
                pair[0].header().seq,
                pair[1].header().seq,
                "{}",
                describe(&all)
            );
        }
        let first_other = sent.iter().position(|segment| segment.flags() != "S");
        assert_eq!(
            first_other,
            Some(syns.len()),
            "something left early{}",
            describe(&all)
        );
    }
    assert_eq!(all.iter().filter(|segment| segment.header().rst).count(), 0);
}

/// Without xdptun the peer's own stack refuses the SYN. That must not end the
/// attempt: two hosts are never ready at the same moment.
#[test]
fn a_refused_syn_is_repeated_until_the_peer_is_attached() {
    let net = Direct::new().unwrap();
    let near = mode::TC.attach(&net.a, &["--port", "8000"]).unwrap();
    let wire = Wire::watch(&[&net.a]).unwrap();
    let sockets = Family::BOTH.map(|family| {
        let sink = socket::roomy(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
        client
            .send_to(b"patience", sink.local_addr().unwrap())
            .unwrap();
        (client, sink)
    });
    let refused = |least: u64| {
        wait::until_some(LIMIT, "refusals", || {
            Ok((status::counter(&net.a.netns, "rx_refused")? >= least).then_some(()))
        })
        .unwrap();
    };
    refused(2);
    // The log reports it at once, and not with every SYN.
    let told = || {
        let log = near.process().stderr();
        let lines = log
            .iter()
            .filter(|line| line.contains("refuses: is xdptun attached there"));
        lines.count()
    };
    wait::until(LIMIT, "the refusal to be told", || told() == 1).unwrap();
    refused(4);
    let _far = mode::TC.attach(&net.b, &["--port", "8000"]).unwrap();
    for (client, sink) in &sockets {
        let (payload, from) = udp::receive(sink, LIMIT).unwrap();
        assert_eq!(
            (payload.as_slice(), from),
            (b"patience".as_slice(), client.local_addr().unwrap())
        );
    }
    let frames = wire.stop().unwrap();
    let stats = WireStats::of(PORT, &frames);
    assert_eq!(
        (stats.udp_datagrams, stats.data_segments),
        (0, 2),
        "{stats:#?}"
    );
    assert!(stats.syn >= 4, "{stats:#?}");
    assert_eq!(told(), 1);
    assert_eq!((stats.rst, stats.bad_checksums), (0, 0), "{stats:#?}");
}

/// A datagram that has waited too long is dropped, counted and logged.
#[test]
fn a_datagram_that_waits_too_long_is_given_up() {
    let net = Plain::new().unwrap();
    let client = net.0.client();
    let attached = mode::TC.attach(client, &["--port", "8000"]).unwrap();
    net.hold().unwrap();
    let socket = udp::bind(&client.netns, client.socket(Family::V4, 0)).unwrap();
    socket
        .send_to(b"lost", net.0.server.socket(Family::V4, PORT))
        .unwrap();
    let process: &Process = attached.process();
    let said = |process: &Process| {
        let lines = process.stderr();
        lines
            .into_iter()
            .find(|line| line.contains("no answer to the handshake"))
    };
    let limit = Duration::from_secs(15);
    let line = wait::until_some(limit, "the daemon to give up", || Ok(said(process))).unwrap();
    assert!(line.contains("1 datagrams dropped"), "{line}");
    assert!(line.contains("10.2.0.2:8000"), "{line}");
    assert_eq!(
        status::counter(&client.netns, "tx_lost_in_queue").unwrap(),
        1
    );
    assert_eq!(Host::DEV, attached.iface());
}
