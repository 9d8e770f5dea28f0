//! The outside end of an inside one: the same for all outside hosts, who may use it, and how long
//! it lasts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use socket2::{Domain, Socket, Type};
use xdptun_common::gateway::nat::{Binding, OutsideKey};
use xdptun_lab::{Capture, Host, Inside, udp, wait};
use xdptun_test_net::inside::{
    bindings, counter, counters, end, nat, outside_end, packets, pass, sessions, socket,
};
use xdptun_test_net::memory::{Hash, map_memory};
use xdptun_test_net::status::expected;
use xdptun_test_net::{LIMIT, status, tcp};

/// The port of inside hosts.
const LOCAL: u16 = 5000;

#[test]
fn an_inside_end_has_one_outside_end_which_strangers_reach() {
    let net = Inside::new().unwrap();
    let attached = nat(&net, &[]);
    let inside = socket(&net.a, LOCAL);
    let [first, second] = [0, 1].map(|host: usize| socket(&net.outside[host], 0));
    let seen = outside_end(&inside, &first);
    assert_eq!(outside_end(&inside, &second), seen);
    // Two strangers: another port of a known host, and what the inside host has not sent to.
    let stranger = socket(&net.outside[1], 0);
    assert_eq!(pass(&stranger, seen, &inside, 3).unwrap(), end(&stranger));
    assert_eq!(pass(&inside, end(&stranger), &stranger, 4).unwrap(), seen);
    assert_eq!(bindings(&net), 1);
    let began = |by: &str| {
        let all = sessions(&net);
        all.iter().filter(|one| one["began"] == by).count()
    };
    assert_eq!([began("inside"), began("outside")], [2, 1]);
    let moved = [
        ("bindings_began", 1),
        ("in_translated", 3),
        ("out_translated", 3),
        ("sessions_began", 3),
        ("sessions_proven", 0),
    ];
    assert_eq!(counters(&net, Inside::WAN), expected(&moved));
    attached.stop().unwrap();
}

#[test]
fn strangers_are_dropped_in_silence_where_they_are_filtered() {
    let net = Inside::new().unwrap();
    net.complete_checksums().unwrap();
    let filtering = ["--filtering", "address-and-port-dependent"];
    let attached = nat(&net, &filtering);
    let inside = socket(&net.a, LOCAL);
    let known = socket(&net.outside[0], 0);
    let seen = outside_end(&inside, &known);
    let wire = Capture::start(&net.gateway, Inside::WAN).unwrap();
    let near = Capture::start(&net.a.netns, Host::DEV).unwrap();
    // Another port of the host that is known, another host, and a port that is not bound.
    let unbound = Inside::outside_at(LOCAL + 1);
    for (number, host, to) in [(1, 0, seen), (2, 1, seen), (3, 0, unbound)] {
        let stranger = socket(&net.outside[host], 0);
        stranger.send_to(b"hello", to).unwrap();
        wait::until(LIMIT, "the drop", || {
            counter(&net, "in_drop_filtered") == number
        })
        .unwrap();
    }
    let syn = net.outside[1].netns.enter(|| begin(seen)).unwrap();
    wait::until(LIMIT, "the drop", || counter(&net, "in_drop_filtered") >= 4).unwrap();
    drop(syn);
    assert_eq!(packets(&near.stop().unwrap()), []);
    let all = packets(&wire.stop().unwrap());
    assert!(all.iter().all(|one| !one.outgoing), "{all:?}");
    pass(&known, seen, &inside, 5).unwrap();
    attached.stop().unwrap();
}

/// A connection that has sent its SYN, and is not waited for.
fn begin(to: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_nonblocking(true).unwrap();
    // It says that the connection is under way.
    let _ = socket.connect(&to.into());
    socket
}

/// Two inside hosts call each other by their outside ends, and see those alone: on one link, and
/// on two.
#[test]
fn inside_hosts_reach_each_other_by_their_outside_ends() {
    for is_same_link in [true, false] {
        let net = Inside::new().unwrap();
        net.complete_checksums().unwrap();
        let attached = nat(&net, &["--inside", Inside::SECOND_NETWORK]);
        let (other, dev) = match is_same_link {
            true => (&net.b, Inside::LAN),
            false => (&net.c, Inside::SECOND_LAN),
        };
        let server = socket(&net.outside[0], 0);
        let [one, two] = [&net.a, other].map(|host| socket(host, LOCAL));
        let seen = [&one, &two].map(|inside| outside_end(inside, &server));
        let near = Capture::start(&net.a.netns, Host::DEV).unwrap();
        let far = Capture::start(&other.netns, Host::DEV).unwrap();
        let wire = Capture::start(&net.gateway, Inside::WAN).unwrap();
        assert_eq!(pass(&one, seen[1], &two, 3).unwrap(), seen[0]);
        assert_eq!(pass(&two, seen[0], &one, 4).unwrap(), seen[1]);
        assert_eq!(pass(&one, seen[1], &two, 5).unwrap(), seen[0]);
        // From an end that is not bound yet, the other way round.
        let unbound = socket(other, 0);
        let bound = pass(&unbound, seen[0], &one, 6).unwrap();
        assert_eq!(pass(&one, bound, &unbound, 7).unwrap(), seen[0]);
        assert_eq!(outside_end(&unbound, &server), bound);
        connect_by_outside_end(&net, other);
        // What outside hosts see is at the end of a binding only.
        let all = packets(&wire.stop().unwrap());
        let is_to_server = |one: &xdptun_test_net::inside::Packet| {
            [one.source, one.destination].contains(&net.outside[0].v4)
        };
        assert!(all.iter().all(is_to_server), "{all:?}");
        for (capture, own) in [(near, net.a.v4), (far, other.v4)] {
            for one in packets(&capture.stop().unwrap()) {
                let peer = if one.source == own {
                    one.destination
                } else {
                    one.source
                };
                assert!(
                    [Inside::ADDRESS, net.outside[0].v4].contains(&peer),
                    "{one:?}"
                );
            }
        }
        for dev in [Inside::LAN, dev, Inside::WAN] {
            let counters = counters(&net, dev);
            let dropped = counters
                .keys()
                .find(|name| name.contains("drop") && *name != "out_drop_redirect");
            assert_eq!(dropped, None, "{counters:?}");
        }
        attached.stop().unwrap();
    }
}

/// An inside host listens at a port from which it has called an outside host, and the other one
/// connects to its outside end.
fn connect_by_outside_end(net: &Inside, other: &Host) {
    let shared = |host: &Host, to: Option<SocketAddr>| -> Socket {
        let make = || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_reuse_address(true).unwrap();
            socket.set_reuse_port(true).unwrap();
            socket
                .bind(&SocketAddr::from((host.v4, 6000)).into())
                .unwrap();
            match to {
                Some(to) => socket.connect(&to.into()).unwrap(),
                None => socket.listen(1).unwrap(),
            }
            socket
        };
        host.netns.enter(make).unwrap()
    };
    let [server, _] = &net.outside;
    let make = || TcpListener::bind((server.v4, 0));
    let outside = server.netns.enter(make).unwrap().unwrap();
    let call = shared(&net.a, Some(outside.local_addr().unwrap()));
    let (_answer, seen) = outside.accept().unwrap();
    let listener: TcpListener = shared(&net.a, None).into();
    // A stranger outside, then the other inside host.
    for (host, is_outside) in [(server, true), (other, false)] {
        let near = tcp::connect(&host.netns, (host.v4, 0).into(), seen).unwrap();
        let (far, caller) = listener.accept().unwrap();
        match is_outside {
            true => assert_eq!(caller, near.local_addr().unwrap()),
            false => assert_eq!(caller.ip(), IpAddr::V4(Inside::ADDRESS)),
        }
        tcp::exchange_over(&near, &far).unwrap();
    }
    drop(call);
}

/// How many ends are bound at once, by how many addresses of a host.
const BINDINGS: usize = 20_000;
/// See [`BINDINGS`].
const ADDRESSES: usize = 200;

/// How many of them wait for their echo at a time.
const PACE: usize = 1000;

/// The table of bindings.
const TABLE: Hash = Hash {
    key: size_of::<OutsideKey>() as u64,
    value: size_of::<Binding>() as u64,
};

/// Twenty thousand inside ends have one outside end each, until they are silent.
#[test]
fn bindings_of_many_hosts_end() {
    let net = Inside::new().unwrap();
    let batch: String = addresses()
        .map(|address| format!("address add {address}/24 dev {}\n", Host::DEV))
        .collect();
    let netns = &net.a.netns;
    netns.run_with_input("ip", ["-batch", "-"], &batch).unwrap();
    let attached = nat(&net, &["--udp-timeout", "2"]);
    let memory = || map_memory(attached.process().pid(), TABLE).unwrap();
    let empty = memory();
    let [server, _] = &net.outside;
    let echo = udp::Server::echo(&server.netns, (server.v4, 0)).unwrap();
    let ends: Vec<SocketAddr> = (0..BINDINGS / ADDRESSES)
        .flat_map(|port| {
            let port = LOCAL + u16::try_from(port).unwrap();
            addresses().map(move |address| (address, port).into())
        })
        .collect();
    for ends in ends.chunks(PACE) {
        let bind = || ends.iter().map(UdpSocket::bind).collect();
        let sockets: std::io::Result<Vec<UdpSocket>> = netns.enter(bind).unwrap();
        let sockets = sockets.unwrap();
        for (number, socket) in sockets.iter().enumerate() {
            let sent = number.to_ne_bytes();
            socket.send_to(&sent, echo.address()).unwrap();
        }
        for (number, socket) in sockets.iter().enumerate() {
            let (received, _) = attached.explain(udp::receive(socket, LIMIT)).unwrap();
            assert_eq!(received, number.to_ne_bytes());
        }
    }
    assert_eq!(bindings(&net), BINDINGS as u64);
    let moved = [
        "bindings_began",
        "in_translated",
        "out_translated",
        "sessions_began",
    ]
    .map(|name| (name, BINDINGS as u64));
    assert_eq!(counters(&net, Inside::WAN), expected(&moved));
    assert!(memory() > empty);
    wait::until(LIMIT * 6, "the end of all", || bindings(&net) == 0).unwrap();
    wait::until(LIMIT * 2, "their memory", || memory() == empty).unwrap();
    let states = status::gateway(&net.gateway, Inside::WAN).unwrap()["session_states"].clone();
    assert_eq!(states, serde_json::json!({}));
    attached.stop().unwrap();
}

/// The inside addresses of one host.
fn addresses() -> impl Iterator<Item = Ipv4Addr> {
    (0..ADDRESSES).map(|number| {
        let last = u8::try_from(10 + number).unwrap();
        Ipv4Addr::new(192, 168, 7, last)
    })
}
