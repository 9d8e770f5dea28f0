//! Fifty thousand clients at once.

use std::net::{Ipv6Addr, SocketAddr, UdpSocket};

use xdptun_lab::{Attached, Inside, udp};
use xdptun_test_net::LIMIT;
use xdptun_test_net::translated::{all_passed, called, counter, status, without_ipv4};

/// How many clients there are.
const CLIENTS: u32 = 50_000;

/// How many of them wait for their answers at a time.
const PACE: usize = 500;

/// The address of a client: a host behind the first inside one.
fn client(number: u32) -> Ipv6Addr {
    let base: u128 = u128::from("fd00:aa::".parse::<Ipv6Addr>().unwrap());
    Ipv6Addr::from(base + 1 + u128::from(number))
}

#[test]
fn fifty_thousand_clients_have_an_address_each() {
    let net = Inside::new().unwrap();
    without_ipv4(&net);
    // All of the network is one host, to which the gateway has a route.
    let own = ["-6", "route", "add", "local", "fd00:aa::/64", "dev", "lo"];
    net.a.netns.run("ip", own).unwrap();
    net.a
        .netns
        .sysctl("net.ipv6.ip_nonlocal_bind", "1")
        .unwrap();
    let route = [
        "-6",
        "route",
        "add",
        "fd00:aa::/64",
        "via",
        &net.a.v6.to_string(),
    ]
    .map(str::to_owned);
    net.gateway.run("ip", route).unwrap();
    let attached = Attached::nat64(
        &net.gateway,
        &[
            "--inside",
            "fd00:aa::/64",
            "--allow-private",
            "--per-prefix",
            "60000",
        ],
    )
    .unwrap();
    // One outside address has not so many ports: the network knows the pool.
    let pool = ["route", "add", "100.64.0.0/16", "via", "192.0.2.7"];
    net.router.run("ip", pool).unwrap();
    let [server, _] = &net.outside;
    let echo = udp::Server::echo(&server.netns, (server.v4, 7)).unwrap();
    let to = called(server.v4, 7);
    let numbers: Vec<u32> = (0..CLIENTS).collect();
    for numbers in numbers.chunks(PACE) {
        let bind = || {
            let sockets = numbers.iter().map(|number| {
                // Ports differ, so that the gateway need not search for one.
                let port = 2000 + u16::try_from(number % 30_000).unwrap();
                UdpSocket::bind(SocketAddr::from((client(*number), port)))
            });
            sockets.collect::<std::io::Result<Vec<UdpSocket>>>()
        };
        let sockets = net.a.netns.enter(bind).unwrap().unwrap();
        for (socket, number) in sockets.iter().zip(numbers) {
            socket.send_to(&number.to_ne_bytes(), to).unwrap();
        }
        for (socket, number) in sockets.iter().zip(numbers) {
            let (received, _) = attached.explain(udp::receive(socket, LIMIT)).unwrap();
            assert_eq!(received, number.to_ne_bytes());
        }
    }
    assert_eq!(echo.datagrams(), u64::from(CLIENTS));
    let nat64 = status(&net.gateway).unwrap();
    assert_eq!(nat64["client_states"]["answered"], CLIENTS, "{nat64}");
    assert_eq!(counter(&net.gateway, "leases_began"), u64::from(CLIENTS));
    attached.explain(all_passed(&net.gateway)).unwrap();
    attached.stop().unwrap();
}
