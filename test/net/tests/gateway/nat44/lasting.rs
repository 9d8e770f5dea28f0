//! What connections and bindings outlive: the daemon, and the outside address.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use serde_json::json;
use xdptun_lab::{Capture, Family, Inside, link, wait};
use xdptun_test_net::inside::{
    bindings, counter, nat, outside_end, packets, pass, sessions, socket, without_inside,
};
use xdptun_test_net::traces::pins;
use xdptun_test_net::{LIMIT, status, tcp};

/// The port of inside hosts.
const LOCAL: u16 = 5000;

/// A connection of the first inside host to the first outside one, and whom the latter sees.
fn connect(net: &Inside) -> ([TcpStream; 2], SocketAddr) {
    let [server, _] = &net.outside;
    let listen = || TcpListener::bind((server.v4, 0));
    let listener = server.netns.enter(listen).unwrap().unwrap();
    let to = listener.local_addr().unwrap();
    let near = tcp::connect(&net.a.netns, net.a.socket(Family::V4, 0), to).unwrap();
    let (far, seen) = listener.accept().unwrap();
    ([near, far], seen)
}

/// A kilobyte each way.
fn talk([near, far]: &[TcpStream; 2], byte: u8) {
    for (from, to) in [(near, far), (far, near)] {
        tcp::send_and_receive(from, to, &[byte; 1000]).unwrap();
    }
}

/// The daemon is killed, another one goes on, and a third takes over.
#[test]
fn connections_and_bindings_outlive_the_daemon() {
    let net = Inside::new().unwrap();
    let attached = nat(&net, &[]);
    let (connection, _) = connect(&net);
    let inside = socket(&net.a, LOCAL);
    let [first, second] = [0, 1].map(|host: usize| socket(&net.outside[host], 0));
    let seen = outside_end(&inside, &first);
    let carry = |byte: u8| {
        talk(&connection, byte);
        assert_eq!(outside_end(&inside, &first), seen);
        pass(&second, seen, &inside, byte).unwrap();
    };
    carry(1);
    let remains = attached.kill().unwrap();
    carry(2);
    // One more, without a daemon.
    let other = socket(&net.b, LOCAL);
    let other_seen = outside_end(&other, &first);
    let next = nat(&net, &[]);
    carry(3);
    let last = nat(&net, &["--take-over"]);
    carry(4);
    assert_eq!(outside_end(&other, &first), other_seen);
    assert_eq!(bindings(&net), 3);
    let found = sessions(&net);
    assert_eq!(found.len(), 4, "{found:#?}");
    let open = found.iter().find(|one| one["protocol"] == "tcp").unwrap();
    assert_eq!(open["state"], "open");
    last.stop().unwrap();
    assert_eq!(pins(&net.gateway).unwrap(), [""; 0]);
    drop((next, remains));
}

/// A DHCP client gives the interface another address.
#[test]
fn the_outside_address_is_followed() {
    let net = Inside::new().unwrap();
    net.complete_checksums().unwrap();
    let attached = nat(&net, &[]);
    let outside_is = |address: Option<Ipv4Addr>| {
        wait::until(LIMIT, "the address", || {
            let status = status::gateway(&net.gateway, Inside::WAN).unwrap();
            status["nat"]["outside"] == json!(address)
        })
        .unwrap();
    };
    let is_told = |words: &str| {
        wait::until(LIMIT, words, || {
            let log = attached.process().stderr().join("\n");
            log.contains(words)
        })
        .unwrap();
    };
    outside_is(Some(Inside::ADDRESS));
    let inside = socket(&net.a, LOCAL);
    let outside = socket(&net.outside[0], 0);
    let seen = outside_end(&inside, &outside);
    assert_eq!(seen, Inside::outside_at(LOCAL));
    let (connection, _) = connect(&net);
    talk(&connection, 1);

    let new = Ipv4Addr::new(192, 0, 2, 77);
    net.readdress(Inside::ADDRESS, new).unwrap();
    outside_is(Some(new));
    let (wan, before) = (Inside::WAN, Inside::ADDRESS);
    is_told(&format!(
        "{wan}: the outside address is {new} now ({before} before)"
    ));
    let wire = Capture::start(&net.gateway, Inside::WAN).unwrap();
    let seen = outside_end(&inside, &outside);
    assert_eq!(seen, SocketAddr::from((new, LOCAL)));
    let (next, seen) = connect(&net);
    assert_eq!(seen.ip(), new);
    talk(&next, 2);
    // What has begun with the old address leaves with neither.
    let [mut near, far] = connection;
    near.write_all(b"lost").unwrap();
    wait::until(LIMIT, "the drop", || counter(&net, "out_drop_stray") > 0).unwrap();
    // The inside host is told.
    near.set_read_timeout(Some(LIMIT)).unwrap();
    let told = near.read(&mut [0; 8]).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::ConnectionReset);
    drop(far);
    let all = without_inside(&wire.stop().unwrap());
    let old = all.iter().find(|one| one.outgoing && one.source != new);
    assert_eq!(old, None);

    // Without an address nothing leaves.
    let address = format!("{new}/24");
    let delete = ["address", "delete", &address, "dev", Inside::WAN];
    net.gateway.run("ip", delete).unwrap();
    outside_is(None);
    is_told(&format!("{wan}: no IPv4 address any more"));
    let route = ["route", "add", "default", "dev", Inside::WAN];
    net.gateway.run("ip", route).unwrap();
    let router = link::ethernet_address(&net.router, Inside::WAN).unwrap();
    let router = router.map(|octet| format!("{octet:02x}")).join(":");
    let server = net.outside[0].v4.to_string();
    let neighbour = [
        "neighbour",
        "add",
        &server,
        "lladdr",
        &router,
        "dev",
        Inside::WAN,
    ];
    net.gateway.run("ip", neighbour).unwrap();
    let wire = Capture::start(&net.gateway, Inside::WAN).unwrap();
    let fresh = socket(&net.b, LOCAL);
    let to = outside.local_addr().unwrap();
    fresh.send_to(b"hello", to).unwrap();
    wait::until(LIMIT, "the drop", || counter(&net, "out_drop_address") == 1).unwrap();
    // The other end of the lost connection may still repeat its FIN.
    let all = packets(&wire.stop().unwrap());
    assert!(all.iter().all(|one| !one.outgoing), "{all:?}");
    attached.stop().unwrap();
}
