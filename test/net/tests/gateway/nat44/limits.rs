//! What inside hosts do not get, what never leaves, and what belongs to the gateway.

use std::io::{ErrorKind, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use etherparse::{IpNumber, Ipv4Header, PacketBuilder};
use serde_json::Value;
use xdptun_lab::{Capture, Family, Inside, udp, wait, xdptun};
use xdptun_test_net::inside::{
    bindings, counter, counters, end, nat, outside_end, packets, socket, without_inside,
};
use xdptun_test_net::raw::{datagram, segment, send_packet};
use xdptun_test_net::status::expected;
use xdptun_test_net::{LIMIT, cli, fragment, tcp};

/// The port of inside hosts.
const LOCAL: u16 = 5000;

/// Sends from an inside socket, and waits until so many packets have been dropped of this cause.
fn is_dropped(net: &Inside, from: &UdpSocket, to: &UdpSocket, cause: &str, count: u64) {
    from.send_to(b"hello", end(to)).unwrap();
    wait::until(LIMIT, cause, || counter(net, cause) == count).unwrap();
}

#[test]
fn ports_and_bindings_are_limited() {
    for (limit, cause) in [
        (["--ports", "20000-20003"], "out_drop_ports"),
        (["--max-bindings-per-host", "4"], "out_drop_host"),
        (["--max-bindings", "4"], "out_drop_full"),
    ] {
        let net = Inside::new().unwrap();
        let attached = nat(&net, &limit);
        let outside = socket(&net.outside[0], 0);
        let served = [0, 1, 2, 3].map(|port| socket(&net.a, LOCAL + port));
        let seen = served
            .each_ref()
            .map(|inside| outside_end(inside, &outside));
        if cause == "out_drop_ports" {
            let mut ports = seen.map(|end| end.port());
            ports.sort_unstable();
            assert_eq!(ports, [20_000, 20_001, 20_002, 20_003]);
        }
        let wire = Capture::start(&net.gateway, Inside::WAN).unwrap();
        let fifth = socket(&net.a, LOCAL + 4);
        is_dropped(&net, &fifth, &outside, cause, 1);
        is_dropped(&net, &fifth, &outside, cause, 2);
        // The host is told (RFC 5508 REQ-8): EHOSTUNREACH, ip(7).
        let connected = socket(&net.a, LOCAL + 5);
        connected.connect(end(&outside)).unwrap();
        connected.set_read_timeout(Some(LIMIT)).unwrap();
        connected.send(b"hello").unwrap();
        let told = connected.recv(&mut [0; 8]).unwrap_err();
        assert_eq!(told.kind(), ErrorKind::HostUnreachable);
        assert_eq!(counter(&net, cause), 3);
        assert_eq!(packets(&wire.stop().unwrap()), []);
        assert_eq!(bindings(&net), 4);
        for (inside, seen) in served.iter().zip(seen) {
            assert_eq!(outside_end(inside, &outside), seen);
        }
        let other = socket(&net.b, LOCAL);
        match cause {
            "out_drop_host" => {
                outside_end(&other, &outside);
            }
            _ => is_dropped(&net, &other, &outside, cause, 4),
        }
        // The ports of TCP are others, but no other room is.
        if cause == "out_drop_ports" {
            let [server, _] = &net.outside;
            let exchanged = tcp::exchange(
                &net.a.netns,
                net.a.socket(Family::V4, LOCAL),
                &server.netns,
                server.socket(Family::V4, 8080),
            );
            attached.explain(exchanged).unwrap();
        }
        attached.stop().unwrap();
    }
}

/// Packets that nothing can be said of, from inside hosts.
#[test]
fn no_inside_address_ever_leaves() {
    let net = Inside::new().unwrap();
    net.complete_checksums().unwrap();
    let attached = nat(&net, &[]);
    let [server, _] = &net.outside;
    let outside = socket(server, 8080);
    let inside = socket(&net.a, LOCAL);
    outside_end(&inside, &outside);
    let wire = Capture::start(&net.gateway, Inside::WAN).unwrap();
    let (from, to) = (net.a.socket(Family::V4, LOCAL), end(&outside));
    let bare = |protocol: IpNumber, fill: fn(&mut Ipv4Header), payload: &[u8]| {
        let length = u16::try_from(payload.len()).unwrap();
        let (source, destination) = (net.a.v4.octets(), server.v4.octets());
        let mut header = Ipv4Header::new(length, 64, protocol, source, destination).unwrap();
        fill(&mut header);
        let mut packet = header.to_bytes().to_vec();
        packet.extend(payload);
        packet
    };
    let error = {
        let mut quoted = Vec::new();
        let (source, destination) = (server.v4.octets(), net.a.v4.octets());
        let builder = PacketBuilder::ipv4(source, destination, 64).udp(1, 2);
        builder.write(&mut quoted, b"unknown").unwrap();
        let mut packet = Vec::new();
        let unreachable = etherparse::Icmpv4Type::DestinationUnreachable(
            etherparse::icmpv4::DestUnreachableHeader::Port,
        );
        PacketBuilder::ipv4(net.a.v4.octets(), server.v4.octets(), 64)
            .icmpv4(unreachable)
            .write(&mut packet, &quoted)
            .unwrap();
        packet
    };
    let [gre, sctp, tcp] = [47, 132, 6].map(IpNumber);
    let nothing: fn(&mut Ipv4Header) = |_| {};
    let later: fn(&mut Ipv4Header) = |header| {
        header.identification = 7;
        header.fragment_offset = 100.try_into().unwrap();
    };
    let untranslated = [
        ("GRE", bare(gre, nothing, &[0, 0, 8, 0, 0x45, 0, 0, 20])),
        (
            "SCTP",
            bare(
                sctp,
                nothing,
                &[0x13, 0x88, 0x1f, 0x90, 0, 0, 0, 0, 0, 0, 0, 0],
            ),
        ),
        ("an error about no session", error),
        (
            "a cut TCP header",
            bare(tcp, nothing, &[0x13, 0x88, 0x1f, 0x90, 0, 0, 0, 0]),
        ),
        (
            "an echo reply that nobody asked for",
            bare(IpNumber::ICMP, nothing, &[0, 0, 0xff, 0xfd, 0, 1, 0, 1]),
        ),
    ];
    for (number, (name, packet)) in (1..).zip(&untranslated) {
        send_packet(&net.a.netns, to.ip(), packet).unwrap();
        wait::until(LIMIT, name, || {
            counter(&net, "out_drop_untranslated") == number
        })
        .unwrap();
    }
    // One without its first waits for it in vain.
    let fragment = bare(IpNumber::UDP, later, b"fragment");
    send_packet(&net.a.netns, to.ip(), &fragment).unwrap();
    wait::until(LIMIT, "the end of the wait", || {
        counter(&net, "fragments_lost") == 1
    })
    .unwrap();
    // Segments that belong to no connection, and open none.
    let flags: [fn(&mut etherparse::TcpHeader); 4] = [
        |tcp| tcp.ack = true,
        |tcp| tcp.fin = true,
        |tcp| tcp.rst = true,
        |tcp| (tcp.syn, tcp.ack) = (true, true),
    ];
    for (number, fill) in (1..).zip(flags) {
        let stray = segment(from, to, fill, b"stray").unwrap();
        send_packet(&net.a.netns, to.ip(), &stray).unwrap();
        wait::until(LIMIT, "the drop", || {
            counter(&net, "out_drop_stray") == number
        })
        .unwrap();
    }
    let seen = outside_end(&inside, &outside);
    assert_eq!(seen, Inside::outside_at(LOCAL));
    let all = without_inside(&wire.stop().unwrap());
    assert_eq!(all.len(), 2, "{all:?}");
    let moved = [
        ("bindings_began", 1),
        ("fragments_lost", 1),
        ("in_translated", 2),
        ("out_drop_stray", 4),
        ("out_drop_untranslated", untranslated.len() as u64),
        ("out_held", 1),
        ("out_translated", 2),
        ("sessions_began", 1),
        ("sessions_proven", 1),
    ];
    assert_eq!(counters(&net, Inside::WAN), expected(&moved));
    attached.stop().unwrap();
}

/// Datagrams in pieces are translated, each of them.
#[test]
fn fragments_follow_their_first() {
    let net = Inside::new().unwrap();
    let attached = nat(&net, &[]);
    let outside = socket(&net.outside[0], 0);
    let inside = socket(&net.a, LOCAL);
    let seen = outside_end(&inside, &outside);
    let wire = Capture::start(&net.gateway, Inside::WAN).unwrap();
    let large = udp::pattern(4000, 7);
    inside.send_to(&large, end(&outside)).unwrap();
    assert_eq!(
        udp::receive(&outside, LIMIT).unwrap(),
        (large.clone(), seen)
    );
    outside.send_to(&large, seen).unwrap();
    let sender = end(&outside);
    assert_eq!(udp::receive(&inside, LIMIT).unwrap(), (large, sender));
    let all = without_inside(&wire.stop().unwrap());
    assert_eq!(all.len(), 6, "{all:?}");
    attached.stop().unwrap();
}

/// Whichever comes first, of a datagram that leaves and of one that comes in.
#[test]
fn fragments_come_in_any_order() {
    let net = Inside::new().unwrap();
    let attached = nat(&net, &[]);
    let [server, _] = &net.outside;
    let outside = socket(server, 0);
    let inside = socket(&net.a, LOCAL);
    let seen = outside_end(&inside, &outside);
    let data = udp::pattern(4000, 7);
    for (from, by, to, at, sender, held) in [
        (
            end(&inside),
            &net.a,
            end(&outside),
            &outside,
            seen,
            "out_held",
        ),
        (
            end(&outside),
            server,
            seen,
            &inside,
            end(&outside),
            "in_held",
        ),
    ] {
        let whole = datagram(from, to, &data).unwrap();
        let mut fragments = fragment::packets(&whole, 1024);
        assert_eq!(fragments.len(), 4);
        fragments.reverse();
        for packet in fragments {
            send_packet(&by.netns, to.ip(), &packet).unwrap();
        }
        assert_eq!(udp::receive(at, LIMIT).unwrap(), (data.clone(), sender));
        assert_eq!(counter(&net, held), 3);
    }
    assert_eq!(counter(&net, "fragments_lost"), 0);
    attached.stop().unwrap();
}

/// They may be for this host itself, whose sockets wait longer than the daemon.
#[test]
fn fragments_that_wait_in_vain_go_on_to_this_host() {
    let net = Inside::new().unwrap();
    let attached = nat(&net, &[]);
    let [server, _] = &net.outside;
    let own = udp::bind(&net.gateway, Inside::outside_at(7001)).unwrap();
    let from = server.socket(Family::V4, 4000);
    let data = udp::pattern(4000, 7);
    let whole = datagram(from, end(&own), &data).unwrap();
    let fragments = fragment::packets(&whole, 1024);
    let [first, later @ ..] = &fragments[..] else {
        panic!("{fragments:?}");
    };
    for packet in later {
        send_packet(&server.netns, end(&own).ip(), packet).unwrap();
    }
    wait::until(LIMIT, "the end of the wait", || {
        counter(&net, "fragments_lost") == later.len() as u64
    })
    .unwrap();
    send_packet(&server.netns, end(&own).ip(), first).unwrap();
    assert_eq!(udp::receive(&own, LIMIT).unwrap(), (data, from));
    attached.stop().unwrap();
}

/// The gateway calls and is called as without `nat`, by outside and inside hosts.
#[test]
fn sockets_of_the_gateway_are_left_alone() {
    /// Among those that are lent.
    const SERVED: u16 = 7000;
    let net = Inside::new().unwrap();
    let attached = nat(&net, &[]);
    let [server, _] = &net.outside;
    // Out, from a port of the kernel's choice and from one that is lent.
    for port in [0, 7001] {
        let own = udp::bind(&net.gateway, Inside::outside_at(port)).unwrap();
        let outside = socket(server, 0);
        assert_eq!(outside_end(&own, &outside), end(&own));
    }
    let own = Inside::outside_at(7001);
    let service = server.socket(Family::V4, 8080);
    tcp::exchange(&net.gateway, own, &server.netns, service).unwrap();
    // In: from outside, and from inside by either address.
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, SERVED));
    let listener = net
        .gateway
        .enter(|| TcpListener::bind(any))
        .unwrap()
        .unwrap();
    for (host, to) in [
        (server, IpAddr::V4(Inside::ADDRESS)),
        (&net.a, IpAddr::V4(Inside::ADDRESS)),
        (&net.a, Ipv4Addr::new(192, 168, 7, 1).into()),
    ] {
        let to = SocketAddr::new(to, SERVED);
        let local = host.socket(Family::V4, 0);
        let near = attached
            .explain(tcp::connect(&host.netns, local, to))
            .unwrap();
        let (far, caller) = listener.accept().unwrap();
        assert_eq!(caller, near.local_addr().unwrap());
        attached.explain(tcp::exchange_over(&near, &far)).unwrap();
        // Not at any address: the answer would leave from another one.
        let _echo = udp::Server::echo(&net.gateway, to).unwrap();
        let exchanged = udp::exchange(&socket(host, 0), to, b"hello", LIMIT);
        attached.explain(exchanged).unwrap();
    }
    for dev in [Inside::WAN, Inside::LAN] {
        assert_eq!(counters(&net, dev), expected(&[]));
    }
    attached.stop().unwrap();
}

/// Of two ports one belongs to servers of the gateway.
#[test]
fn a_port_with_a_server_is_not_lent() {
    const PORTS: &str = "7000-7001";
    const SERVED: u16 = 7000;
    let net = Inside::new().unwrap();
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, SERVED));
    let listener = net
        .gateway
        .enter(|| TcpListener::bind(any))
        .unwrap()
        .unwrap();
    let _echo = udp::Server::echo(&net.gateway, any).unwrap();
    let attached = nat(&net, &["--ports", PORTS]);
    let outside = socket(&net.outside[0], 0);
    let inside = socket(&net.a, SERVED);
    assert_eq!(
        outside_end(&inside, &outside),
        Inside::outside_at(SERVED + 1)
    );
    let second = socket(&net.b, SERVED);
    is_dropped(&net, &second, &outside, "out_drop_ports", 1);
    let [server, other] = &net.outside;
    let service = server.socket(Family::V4, 8080);
    let listening = || TcpListener::bind(service);
    let far = server.netns.enter(listening).unwrap().unwrap();
    let mut near = tcp::connect(&net.a.netns, net.a.socket(Family::V4, SERVED), service).unwrap();
    let (_far, seen) = far.accept().unwrap();
    assert_eq!(seen, Inside::outside_at(SERVED + 1));
    near.write_all(b"hello").unwrap();
    // The servers still serve.
    let to = Inside::outside_at(SERVED);
    udp::exchange(&socket(other, 0), to, b"hello", LIMIT).unwrap();
    tcp::connect(&other.netns, other.socket(Family::V4, 0), to).unwrap();
    listener.accept().unwrap();
    attached.stop().unwrap();
}

#[test]
fn mistakes_are_named() {
    let net = Inside::new().unwrap();
    // The second network would be warned of.
    for inside in [Inside::NETWORK, "10.9.0.0/16"] {
        let arguments = ["nat", "--iface", "eth9", "--inside", inside];
        let run = cli::run(&net.gateway, &arguments).unwrap();
        run.assert_one_line(&["eth9: no such interface; `ip link` lists them"]);
    }
    let status = xdptun::status(&net.gateway).unwrap();
    assert_eq!(status["gateways"], Value::Null);
}

/// What is possible, and does not work as it is, is warned of.
#[test]
fn what_cannot_work_is_warned_of() {
    let net = Inside::new().unwrap();
    net.gateway.sysctl("net.ipv4.ip_forward", "0").unwrap();
    let more = ["--inside", "10.9.0.0/16", "--ports", "30000-40000"];
    // It leads everywhere.
    let delete = ["route", "delete", "default"];
    net.gateway.run("ip", delete).unwrap();
    let attached = nat(&net, &more);
    for words in [
        "net.ipv4.ip_forward=1",
        "10.9.0.0/16: no route",
        "net.ipv4.ip_local_reserved_ports",
    ] {
        wait::until(LIMIT, words, || {
            let log = attached.process().stderr().join("\n");
            log.contains(words)
        })
        .unwrap();
    }
    attached.stop().unwrap();
}
