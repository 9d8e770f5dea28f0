//! The gateway in `xdptun capture` and `xdptun watch`.

use std::net::SocketAddr;

use serde_json::Value;
use xdptun_lab::segment::{Checksum, Content, parse};
use xdptun_lab::{Attached, Family, Frame, Served, udp, wait, xdptun};
use xdptun_test_net::LIMIT;
use xdptun_test_net::captured::{Running, Side};

/// The port of both ends.
const PORT: u16 = 4000;

/// Translates the back end, which is inside.
fn nat(net: &Served) -> Attached {
    Attached::nat(&net.gateway, Served::WAN, &["--inside", "10.5.0.0/24"]).unwrap()
}

/// The ends of packets whose checksums are right.
fn ends(frames: &[Frame]) -> Vec<(SocketAddr, SocketAddr)> {
    let ends = frames.iter().map(|frame| match parse(frame) {
        Ok(Content::Transport(packet)) => {
            assert_eq!(packet.ip_checksum, Checksum::Good, "{packet:?}");
            (packet.source, packet.destination)
        }
        other => panic!("{other:?}"),
    });
    ends.collect()
}

#[test]
fn both_sides_of_a_translation_are_captured() {
    let net = Served::new().unwrap();
    let attached = nat(&net);
    let running = Running::start(&net.gateway, &[]).unwrap();
    let [inside, remote] = [&net.back_end, &net.client].map(|host| host.socket(Family::V4, PORT));
    let outside = net.listen_at(Family::V4, PORT);
    let echo = udp::Server::echo(&net.client.netns, remote).unwrap();
    let socket = udp::bind(&net.back_end.netns, inside).unwrap();
    udp::exchange(&socket, remote, b"hello", LIMIT).unwrap();
    // Nobody has asked for it.
    let unbound = net.listen_at(Family::V4, PORT + 1);
    let stranger = udp::bind(&net.client.netns, net.client.socket(Family::V4, 0)).unwrap();
    stranger.send_to(b"hello", unbound).unwrap();
    wait::until(LIMIT, "the stranger's datagram", || {
        let status = xdptun::status(&net.gateway).unwrap();
        status["gateways"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["counters"]["in_drop_filtered"] == 1)
    })
    .unwrap();
    let file = running.stop().unwrap();
    let udp = |side, outgoing| -> Vec<_> {
        let ends = ends(&file.frames(side, outgoing));
        let ours = |(from, to): &(SocketAddr, SocketAddr)| [from, to].contains(&&remote);
        ends.into_iter().filter(ours).collect()
    };
    assert_eq!(udp(Side::Behind, true), [(inside, remote)]);
    assert_eq!(udp(Side::Wire, true), [(outside, remote)]);
    assert_eq!(udp(Side::Wire, false), [(remote, outside)]);
    assert_eq!(udp(Side::Behind, false), [(remote, inside)]);
    let fates = file.fates();
    for fate in [
        (Side::Wire, true, "egress: out_translated"),
        (Side::Wire, false, "ingress: in_translated"),
        (Side::Wire, false, "dropped: in_drop_filtered"),
    ] {
        let count = fates
            .iter()
            .filter(|(side, outgoing, words)| (*side, *outgoing, words.as_str()) == fate);
        assert_eq!(count.count(), 1, "{fate:?}: {fates:#?}");
    }
    attached.stop().unwrap();
    drop(echo);
}

#[test]
fn rates_add_up_to_what_was_translated() {
    const COUNT: u64 = 25;
    let net = Served::new().unwrap();
    let attached = nat(&net);
    let remote = net.client.socket(Family::V4, PORT);
    let echo = udp::Server::echo(&net.client.netns, remote).unwrap();
    let socket = udp::bind(&net.back_end.netns, net.back_end.socket(Family::V4, PORT)).unwrap();
    let watch = [
        "watch",
        "--json",
        "--interval",
        "0.2",
        "--iface",
        Served::WAN,
    ];
    let watch = xdptun::spawn(&net.gateway, &watch).unwrap();
    watch.wait_for_line("{", LIMIT).unwrap();
    for _ in 0..COUNT {
        udp::exchange(&socket, remote, b"hello", LIMIT).unwrap();
    }
    let amount = |name: &str| {
        let lines = watch.stdout();
        let amounts = lines.iter().map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            let rate = line["gateways"][0]["packets_per_s"][name].as_f64();
            rate.unwrap_or(0.0) * line["interval_s"].as_f64().unwrap()
        });
        amounts.sum::<f64>()
    };
    // Intervals are told to the millisecond, so what they add up to is that exact.
    let is_about = |name: &str, count: u64| (amount(name) - count as f64).abs() < 0.5;
    wait::until(LIMIT, "the rates to add up", || {
        is_about("out_translated", COUNT) && is_about("in_translated", COUNT)
    })
    .unwrap_or_else(|error| panic!("{error:#}: {:#?}", watch.stdout()));
    assert!(is_about("bindings_began", 1), "{:#?}", watch.stdout());
    attached.stop().unwrap();
    drop(echo);
}
