//! NAT64 with the tunnel behind it, on the interface that leads outside.

use xdptun_lab::segment::{Content, Header, parse};
use xdptun_lab::{Attached, Capture, Host, Inside, udp};
use xdptun_test_net::translated::{all_passed, called, counters, nat64};
use xdptun_test_net::{LIMIT, PORT};

/// Datagrams of an IPv6-only client reach an IPv4 server as TCP, and their answers come back so.
#[test]
fn a_client_reaches_a_disguised_server() {
    let net = Inside::new().unwrap();
    let [server, _] = &net.outside;
    let ports = ["--port", &PORT.to_string()];
    let there = Attached::start(&server.netns, Host::DEV, &ports).unwrap();
    let here = Attached::start(&net.gateway, Inside::WAN, &ports).unwrap();
    let attached = nat64(&net, &[]);
    let wire = Capture::start(&net.gateway, Inside::WAN).unwrap();
    let echo = udp::Server::echo(&server.netns, (server.v4, PORT)).unwrap();
    let client = udp::bind(&net.a.netns, (net.a.v6, 0)).unwrap();
    let lengths = [0, 1, 27, 1000, 1400];
    for len in lengths {
        let exchanged = udp::exchange(
            &client,
            called(server.v4, PORT),
            &udp::pattern(len, 9),
            LIMIT,
        );
        attached.explain(exchanged).unwrap();
    }
    let frames = wire.stop().unwrap();
    let carried = |is_meant: fn(&Header<'_>) -> bool| {
        let packets = frames.iter().filter_map(|frame| match parse(frame) {
            Ok(Content::Transport(packet)) => Some(packet),
            _ => None,
        });
        packets
            .filter(|packet| packet.has_port(PORT) && is_meant(&packet.header))
            .count()
    };
    assert_eq!(carried(|header| matches!(header, Header::Udp)), 0);
    assert!(carried(|header| !matches!(header, Header::Udp)) >= 2 * lengths.len());
    all_passed(&net.gateway).unwrap();
    let counters = counters(&net.gateway).unwrap();
    assert_eq!(
        [counters["to_v4"], counters["to_v6"]],
        [5, 5],
        "{counters:?}"
    );
    echo.stop().unwrap();
    attached.stop().unwrap();
    here.stop().unwrap();
    there.stop().unwrap();
}
