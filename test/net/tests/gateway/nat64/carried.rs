//! What clients send arrives as IPv4 with the outside address, and answers come back.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use xdptun_lab::{Host, Inside, udp, wait};
use xdptun_test_net::translated::{
    all_passed, behind_prefix, called, clients, counter, counters, nat64,
};
use xdptun_test_net::{LIMIT, cli, tcp};

/// A UDP socket of a client.
fn client(host: &Host, port: u16) -> UdpSocket {
    udp::bind(&host.netns, (host.v6, port)).unwrap()
}

/// Datagrams of every length, also as fragments, come back as they were: those of the client leave it
/// as fragments of IPv6, the answers are fragmented for the pool's route, and cut in two where IPv6's
/// headers make them too long.
#[test]
fn datagrams_of_every_length_are_echoed() {
    let net = Inside::new().unwrap();
    let attached = nat64(&net, &[]);
    let [server, _] = &net.outside;
    // Without DF: what is too large is fragmented and not told.
    server
        .netns
        .sysctl("net.ipv4.ip_no_pmtu_disc", "1")
        .unwrap();
    let echo = udp::Server::echo(&server.netns, (server.v4, 7)).unwrap();
    let socket = client(&net.a, 0);
    let to = called(server.v4, 7);
    let lengths = [
        0, 1, 7, 1231, 1232, 1233, 1423, 1424, 1425, 1443, 1444, 1445, 1452, 1453, 1472,
    ];
    let lengths = lengths.into_iter().chain((1500..4500).step_by(97));
    let lengths: Vec<usize> = lengths
        .chain([9000, 20_000, 40_000, 65_000, 65_507])
        .collect();
    for &length in &lengths {
        let sent = udp::pattern(length, 3);
        socket.send_to(&sent, to).unwrap();
        let (received, from) = attached
            .explain(udp::receive(&socket, LIMIT))
            .unwrap_or_else(|error| panic!("{length} bytes: {error:#}"));
        assert_eq!((received.len(), from), (length, to));
        assert!(received == sent, "{length} bytes: other bytes");
    }
    assert_eq!(echo.datagrams(), lengths.len() as u64);
    assert!(counter(&net.gateway, "fragments_cut") > 0);
    attached.explain(all_passed(&net.gateway)).unwrap();
    assert_eq!(clients(&net.gateway).len(), 1);
    attached.stop().unwrap();
}

/// RFC 7915 section 4.5.
#[test]
fn answers_without_checksum_get_one() {
    let net = Inside::new().unwrap();
    let attached = nat64(&net, &[]);
    let [server, _] = &net.outside;
    let answering = udp::bind(&server.netns, (server.v4, 7)).unwrap();
    udp::without_checksum(&answering).unwrap();
    let socket = client(&net.a, 0);
    for length in [0, 1, 2, 1000, 1400] {
        let sent = udp::pattern(length, 5);
        socket.send_to(&sent, called(server.v4, 7)).unwrap();
        let (received, from) = udp::receive(&answering, LIMIT).unwrap();
        assert_eq!(from.ip(), IpAddr::V4(Inside::ADDRESS));
        answering.send_to(&received, from).unwrap();
        let (received, _) = attached.explain(udp::receive(&socket, LIMIT)).unwrap();
        assert_eq!(received, sent);
    }
    attached.explain(all_passed(&net.gateway)).unwrap();
    attached.stop().unwrap();
}

#[test]
fn connections_pass_both_ways_and_refusals_arrive() {
    let net = Inside::new().unwrap();
    let attached = nat64(&net, &[]);
    let [server, _] = &net.outside;
    let listener = server
        .netns
        .enter(|| std::net::TcpListener::bind((server.v4, 80)))
        .unwrap()
        .unwrap();
    let near = tcp::connect(&net.a.netns, (net.a.v6, 0).into(), called(server.v4, 80)).unwrap();
    let (far, from) = listener.accept().unwrap();
    assert_eq!(from.ip(), IpAddr::V4(Inside::ADDRESS));
    tcp::exchange_over(&near, &far).unwrap();
    // Nobody listens: RST of the server.
    let refused = tcp::connect(&net.a.netns, (net.a.v6, 0).into(), called(server.v4, 81));
    let refused = format!("{:#}", refused.unwrap_err());
    assert!(refused.contains("refused"), "{refused}");
    // And port unreachable for a datagram, to the socket that sent it.
    let socket = client(&net.a, 0);
    socket.connect(called(server.v4, 82)).unwrap();
    socket.send(b"anybody?").unwrap();
    wait::until(LIMIT, "the refusal", || {
        socket
            .send(b"anybody?")
            .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    })
    .unwrap();
    assert!(counter(&net.gateway, "to_v6_error") > 0);
    attached.explain(all_passed(&net.gateway)).unwrap();
    attached.stop().unwrap();
}

#[test]
fn pings_are_answered() {
    let net = Inside::new().unwrap();
    let attached = nat64(&net, &[]);
    let [server, _] = &net.outside;
    let to = behind_prefix(server.v4).to_string();
    for size in ["0", "56", "1400"] {
        let mut ping = net.a.netns.command("ping");
        ping.args(["-c", "3", "-i", "0.2", "-W", "5", "-s", size, &to]);
        let ended = cli::finish(&mut ping).unwrap();
        assert_eq!(ended.code, Some(0), "{size} bytes: {ended:#?}");
    }
    let moved = counters(&net.gateway).unwrap();
    assert_eq!([moved["to_v4"], moved["to_v6"]], [9, 9], "{moved:?}");
    attached.stop().unwrap();
}

/// A client reaches another one by the IPv4 address that it has.
#[test]
fn clients_reach_each_other_by_ipv4_addresses() {
    let net = Inside::new().unwrap();
    let fixed = format!("100.64.0.9={}", net.b.v6);
    let attached = nat64(&net, &["--static", &fixed]);
    let one = client(&net.a, 5000);
    let two = client(&net.b, 6000);
    let to = called("100.64.0.9".parse().unwrap(), 6000);
    for length in [10, 1400, 3000] {
        let sent = udp::pattern(length, 9);
        one.send_to(&sent, to).unwrap();
        let (received, from) = attached.explain(udp::receive(&two, LIMIT)).unwrap();
        assert_eq!(received, sent);
        two.send_to(&received, from).unwrap();
        let (received, from) = attached.explain(udp::receive(&one, LIMIT)).unwrap();
        assert_eq!((received, from), (sent, to));
    }
    attached.explain(all_passed(&net.gateway)).unwrap();
    attached.stop().unwrap();
}

/// The gateway itself is a client, with the address of the device.
#[test]
fn this_host_may_use_the_prefix() {
    let net = Inside::new().unwrap();
    let attached = nat64(&net, &[]);
    let [server, _] = &net.outside;
    let echo = udp::Server::echo(&server.netns, (server.v4, 7)).unwrap();
    let any: SocketAddr = "[::]:0".parse().unwrap();
    let socket = udp::bind(&net.gateway, any).unwrap();
    let sent = udp::pattern(1000, 4);
    socket.send_to(&sent, called(server.v4, 7)).unwrap();
    let (received, from) = attached.explain(udp::receive(&socket, LIMIT)).unwrap();
    assert_eq!((received, from), (sent, called(server.v4, 7)));
    drop(echo);
    attached.stop().unwrap();
}
