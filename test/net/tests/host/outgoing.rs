//! Real TCP connections from an owned port, of the host and of a LAN behind it, without a
//! secret: the kernel takes ports for them where it likes.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use xdptun_lab::topology::{Dropped, Router};
use xdptun_lab::{Attached, Direct, Family, Netns, Routed, udp, wait};
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::status::Counters;
use xdptun_test_net::{LIMIT, PORT, status, tcp};

/// The port of a web server, which is not ours.
const WEB: u16 = 9000;

/// A connection that is open, and its other end.
fn connect(from: &Netns, local: SocketAddr, to: &Netns, remote: SocketAddr) -> [TcpStream; 2] {
    let listener = to.enter(|| TcpListener::bind(remote)).unwrap().unwrap();
    let near = from.enter(|| try_connect(local, remote)).unwrap().unwrap();
    let (far, _) = listener.accept().unwrap();
    let limit = wait::stretched(LIMIT).unwrap();
    for end in [&near, &far] {
        end.set_read_timeout(Some(limit)).unwrap();
    }
    [near, far]
}

fn try_connect(local: SocketAddr, remote: SocketAddr) -> io::Result<TcpStream> {
    let domain = socket2::Domain::for_address(remote);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
    socket.bind(&local.into())?;
    socket.connect_timeout(&remote.into(), LIMIT)?;
    Ok(socket.into())
}

/// Sends words from one end and requires the other to receive them.
fn say([from, to]: [&TcpStream; 2], words: &[u8]) {
    let (mut from, mut to) = (from, to);
    from.write_all(words).unwrap();
    let mut heard = vec![0; words.len()];
    to.read_exact(&mut heard).unwrap();
    assert_eq!(heard, words);
}

/// Segments went to the host, merged ones in one piece, and none was answered.
fn assert_left_alone(before: &Counters, after: &Counters, context: &str) {
    let moved = status::moved(before, after);
    assert!(moved.contains_key("rx_to_host"), "{context}: {moved:?}");
    for name in ["sent_rst", "rx_drop_no_flow", "rx_drop_merged", "rx_split"] {
        assert!(!moved.contains_key(name), "{context}: {moved:?}");
    }
}

/// A host whose tunnel is open uses the same port for a connection, to the tunnel's other
/// end: large segments arrive merged, and nothing of either gets in the other's way.
#[test]
fn a_connection_of_the_host_works() {
    for mode in [mode::TC, mode::XDP, mode::XDP_GENERIC, mode::TC_CLSACT] {
        let net = Direct::new().unwrap();
        let (client, server) = (&net.a, &net.b);
        let _attached = mode.attach_both(&net).unwrap();
        for family in Family::BOTH {
            let context = format!("{mode:?} {family}");
            let echo = udp::Server::echo(&server.netns, server.socket(family, PORT)).unwrap();
            let local = client.socket(family, PORT);
            let socket = udp::bind(&client.netns, local).unwrap();
            udp::exchange(&socket, echo.address(), b"before", LIMIT).unwrap();
            let before = status::counters(&client.netns).unwrap();
            let web = server.socket(family, WEB);
            tcp::exchange(&client.netns, local, &server.netns, web)
                .unwrap_or_else(|error| panic!("{context}: {error:#}"));
            assert_left_alone(&before, &status::counters(&client.netns).unwrap(), &context);
            udp::exchange(&socket, echo.address(), b"after", LIMIT).unwrap();
        }
    }
}

/// A server that refuses is heard at once, and does not hear a reset itself.
#[test]
fn a_refusal_reaches_the_host() {
    let net = Direct::new().unwrap();
    let port = PORT.to_string();
    let _attached = mode::TC.attach(&net.a, &["--port", &port]).unwrap();
    for family in Family::BOTH {
        let (local, remote) = (net.a.socket(family, PORT), net.b.socket(family, WEB));
        let refused = net.a.netns.enter(|| try_connect(local, remote)).unwrap();
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{family}");
        let to_host = status::counter(&net.a.netns, "rx_to_host").unwrap();
        assert!(to_host > 0, "{family}");
    }
}

/// Attaches to the side of a router that faces the server.
fn attach(router: &Router, mode: Mode, more: &[&str]) -> Attached {
    let port = PORT.to_string();
    let args = ["--port", &port, "--ingress", mode.ingress, "--tc", mode.tc];
    Attached::start(&router.netns, Router::WAN, &[&args, more].concat()).unwrap()
}

/// A router gives the owned port to a host behind it.
#[test]
fn a_connection_of_a_host_behind_it_works() {
    for mode in [mode::TC, mode::XDP, mode::TC_CLSACT] {
        let net = Routed::new().unwrap();
        net.router.masquerade_to(&(PORT..=PORT)).unwrap();
        let (client, server, router) = (net.client(), &net.server, &net.router);
        let attached = attach(router, mode, &[]);
        for family in Family::BOTH {
            let context = format!("{mode:?} {family}");
            let counters = || status::counters_on(&router.netns, Router::WAN).unwrap();
            let before = counters();
            let any = client.socket(family, 0);
            tcp::exchange(
                &client.netns,
                any,
                &server.netns,
                server.socket(family, WEB),
            )
            .unwrap_or_else(|error| panic!("{context}: {error:#}"));
            assert_left_alone(&before, &counters(), &context);
        }
        assert_eq!(router.dropped().unwrap(), Dropped::default(), "{mode:?}");
        attached.stop().unwrap();
    }
}

/// After a take-over the new process knows the open connections, even if no segment has
/// left since.
#[test]
fn connections_of_hosts_behind_it_outlive_an_upgrade() {
    let net = Routed::new().unwrap();
    net.router.masquerade_to(&(PORT..=PORT)).unwrap();
    let (client, server) = (net.client(), &net.server);
    let first = attach(&net.router, mode::TC, &[]);
    let ends = Family::BOTH.map(|family| {
        let remote = server.socket(family, WEB);
        let any = client.socket(family, 0);
        let ends = connect(&client.netns, any, &server.netns, remote);
        say([&ends[0], &ends[1]], b"before");
        ends
    });
    let second = attach(&net.router, mode::TC, &["--take-over"]);
    for [near, far] in &ends {
        say([far, near], b"the server speaks first");
        say([near, far], b"after");
    }
    second.stop().unwrap();
    drop(first);
}
