//! Which address of the pool a client has, and for how long.

use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};

use xdptun_lab::{Attached, Inside, udp, wait};
use xdptun_test_net::translated::{
    CLIENTS, address_of, called, clients, counter, nat64, without_ipv4,
};
use xdptun_test_net::{LIMIT, status};

/// A socket of a client that was answered.
fn answered(net: &Inside) -> UdpSocket {
    let [server, _] = &net.outside;
    let echo = udp::Server::echo(&server.netns, (server.v4, 7)).unwrap();
    let socket = udp::bind(&net.a.netns, (net.a.v6, 0)).unwrap();
    socket.connect(called(server.v4, 7)).unwrap();
    socket.send(b"hello").unwrap();
    udp::receive(&socket, LIMIT).unwrap();
    echo.stop().unwrap();
    socket
}

/// IPv4 hosts reach a client that has a static address, without a packet of the client before.
#[test]
fn a_static_address_is_reached_from_ipv4() {
    let net = Inside::new().unwrap();
    without_ipv4(&net);
    let fixed = format!("100.64.0.9={}", net.a.v6);
    let arguments = ["--inside", CLIENTS, "--allow-private", "--static", &fixed];
    let attached = Attached::nat64(&net.gateway, &arguments).unwrap();
    // Without `--iface` the network knows the pool.
    let route = ["route", "add", "100.64.0.0/16", "via", "192.0.2.7"];
    net.router.run("ip", route).unwrap();
    let [server, _] = &net.outside;
    let far = udp::bind(&server.netns, (server.v4, 7)).unwrap();
    let near = udp::bind(&net.a.netns, (net.a.v6, 9)).unwrap();
    far.send_to(b"are you there?", ("100.64.0.9", 9)).unwrap();
    let (received, from) = attached.explain(udp::receive(&near, LIMIT)).unwrap();
    assert_eq!(
        (&received[..], from),
        (&b"are you there?"[..], called(server.v4, 7))
    );
    near.send_to(b"yes", from).unwrap();
    let (received, from) = attached.explain(udp::receive(&far, LIMIT)).unwrap();
    assert_eq!(
        (&received[..], from),
        (&b"yes"[..], ([100, 64, 0, 9], 9).into())
    );
    let client = clients(&net.gateway).pop().unwrap();
    assert_eq!(client["state"], "static");
    assert!(client["expires_s"].is_null(), "{client}");
    attached.stop().unwrap();
}

/// The daemon removes what is over, and its shares are free again.
#[test]
fn leases_end_when_their_clients_are_silent() {
    let net = Inside::new().unwrap();
    let times = ["--udp-timeout", "2", "--tcp-timeout", "3"];
    let more = ["--tcp-transitory-timeout", "2", "--per-prefix", "1"];
    let attached = nat64(&net, &[times, more].concat());
    answered(&net);
    assert_eq!(clients(&net.gateway)[0]["state"], "answered");
    let [server, _] = &net.outside;
    let second = udp::bind(&net.b.netns, (net.b.v6, 0)).unwrap();
    let send = || second.send_to(b"hello", called(server.v4, 7));
    send().unwrap();
    wait::until(LIMIT, "the refusal", || {
        counter(&net.gateway, "to_v4_drop_network") >= 1
    })
    .unwrap();
    wait::until(LIMIT * 3, "the end of the lease", || {
        clients(&net.gateway).is_empty()
    })
    .unwrap();
    wait::until(LIMIT * 3, "an address for the other client", || {
        // The refusal is an error of the socket, once.
        let _ = send();
        address_of(&net.gateway, net.b.v6).is_some()
    })
    .unwrap();
    attached.stop().unwrap();
}

/// A killed daemon leaves program, device and leases; the same command goes on with them.
#[test]
fn clients_keep_their_addresses_when_the_daemon_dies() {
    let net = Inside::new().unwrap();
    let attached = nat64(&net, &[]);
    let socket = answered(&net);
    let address = address_of(&net.gateway, net.a.v6).unwrap();
    let remains = attached.kill().unwrap();
    let [server, _] = &net.outside;
    let echo = udp::Server::echo(&server.netns, (server.v4, 7)).unwrap();
    let talks = |what: &[u8]| {
        socket.send(what).unwrap();
        assert_eq!(udp::receive(&socket, LIMIT).unwrap().0, what);
    };
    talks(b"without a daemon");
    let arguments = [
        "--inside",
        CLIENTS,
        "--iface",
        Inside::WAN,
        "--allow-private",
    ];
    let again = Attached::nat64(&net.gateway, &arguments).unwrap();
    again.wait_all_ready(&[Inside::WAN]).unwrap();
    let took_over = |line: &String| line.contains("took over what was attached, clients: 1");
    assert!(
        again.summary().iter().any(took_over),
        "{:#?}",
        again.summary()
    );
    talks(b"with another");
    assert_eq!(address_of(&net.gateway, net.a.v6), Some(address));
    // One that runs hands over without a packet lost.
    let more = [&arguments[..], &["--take-over"]].concat();
    let third = Attached::nat64(&net.gateway, &more).unwrap();
    third.wait_all_ready(&[Inside::WAN]).unwrap();
    talks(b"with a third");
    assert_eq!(address_of(&net.gateway, net.a.v6), Some(address));
    drop(echo);
    third.stop().unwrap();
    drop((again, remains));
}

/// The same client gets the same address from a pool that is made anew with the same seed, but another
/// prefix length does not change what is lent.
#[test]
fn addresses_are_of_the_pool() {
    let net = Inside::new().unwrap();
    let attached = nat64(&net, &["--pool", "10.64.0.0/29"]);
    answered(&net);
    let address = address_of(&net.gateway, net.a.v6).unwrap();
    let lent = Ipv4Addr::new(10, 64, 0, 2)..=Ipv4Addr::new(10, 64, 0, 6);
    assert!(lent.contains(&address), "{address}");
    attached.stop().unwrap();
}

/// With `--iface`, what answers a client goes to the gateway's outside address, and nothing from
/// there to an address of the pool.
#[test]
fn the_pool_is_closed_to_outside_hosts() {
    let net = Inside::new().unwrap();
    let attached = nat64(&net, &[]);
    let socket = answered(&net);
    let route = ["route", "add", "100.64.0.0/16", "via", "192.0.2.7"];
    net.router.run("ip", route).unwrap();
    let [server, _] = &net.outside;
    let [known, stranger] = [7, 8].map(|port| udp::bind(&server.netns, (server.v4, port)).unwrap());
    let address = address_of(&net.gateway, net.a.v6).unwrap();
    let port = socket.local_addr().unwrap().port();
    stranger.send_to(b"let me in", (address, port)).unwrap();
    wait::until(LIMIT, "the drop", || {
        let gateway = status::gateway(&net.gateway, Inside::WAN).unwrap();
        gateway["counters"]["in_drop_filtered"] == 1
    })
    .unwrap();
    socket.send(b"are you there?").unwrap();
    let (_, outside) = attached.explain(udp::receive(&known, LIMIT)).unwrap();
    known.send_to(b"yes", outside).unwrap();
    let (received, _) = attached.explain(udp::receive(&socket, LIMIT)).unwrap();
    assert_eq!(received, b"yes", "the first that the client gets");
    attached.stop().unwrap();
}

/// Packets with the device's own address as their source come from this host alone.
#[test]
fn nobody_else_sends_as_the_device() {
    let net = Inside::new().unwrap();
    let attached = nat64(&net, &[]);
    let [server, _] = &net.outside;
    let received = udp::bind(&server.netns, (server.v4, 7)).unwrap();
    let own: Ipv6Addr = "64:ff9b::100.64.0.1".parse().unwrap();
    let address = "64:ff9b::100.64.0.1/128";
    let forge = ["-6", "addr", "add", address, "dev", "lo", "nodad"];
    net.a.netns.run("ip", forge).unwrap();
    let forger = udp::bind(&net.a.netns, (own, 0)).unwrap();
    forger.send_to(b"forged", called(server.v4, 7)).unwrap();
    wait::until(LIMIT, "the packet to be dropped", || {
        counter(&net.gateway, "to_v4_drop_outside") == 1
    })
    .unwrap();
    let gateway = udp::bind(&net.gateway, (own, 0)).unwrap();
    gateway.send_to(b"its own", called(server.v4, 7)).unwrap();
    let (met, _) = udp::receive(&received, LIMIT).unwrap();
    assert_eq!(met, b"its own");
    attached.stop().unwrap();
}

/// A host that is no client is told, and gets no address.
#[test]
fn strangers_are_refused() {
    let net = Inside::new().unwrap();
    let attached = nat64(&net, &[]);
    let [server, _] = &net.outside;
    let route = ["-6", "route", "add", "default", "via", "fd00:8::1"];
    net.c.netns.run("ip", route).unwrap();
    let stranger = udp::bind(&net.c.netns, (net.c.v6, 0)).unwrap();
    stranger.connect(called(server.v4, 7)).unwrap();
    wait::until(LIMIT, "the refusal", || {
        stranger.send(b"let me in").is_err()
    })
    .unwrap();
    assert!(counter(&net.gateway, "to_v4_drop_outside") >= 1);
    assert!(counter(&net.gateway, "refusals") >= 1);
    let nobody: Vec<Ipv6Addr> = Vec::new();
    let found: Vec<Ipv6Addr> = clients(&net.gateway)
        .iter()
        .map(|one| one["client"].as_str().unwrap().parse().unwrap())
        .collect();
    assert_eq!(found, nobody);
    attached.stop().unwrap();
}
