//! OpenVPN with its defaults. Inside it takes packets of 1,500 bytes, so its datagrams are longer
//! than the path takes, and IP cuts them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use xdptun_lab::topology::Router;
use xdptun_lab::{Attached, Capture, Frame, Host, Netns, Routed, WireStats};
use xdptun_test_net::{status, tcp};
use xdptun_test_real::openvpn::{INSIDE, PORT, Tunnel};

/// What goes through the tunnel for the speed, in bytes.
const BYTES: usize = 32 << 20;

/// A port inside.
const INNER: u16 = 5001;

/// How fast bytes go from one end to the other, in MiB/s.
fn speed(from: &Netns, to: &Netns, at: SocketAddr) -> f64 {
    let listener = to.enter(|| TcpListener::bind(at)).unwrap().unwrap();
    let connect = || TcpStream::connect(at);
    let mut near = from.enter(connect).unwrap().unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let started = Instant::now();
    let sender = thread::spawn(move || near.write_all(&vec![7; BYTES]).unwrap());
    let mut received = 0;
    let mut buffer = vec![0; 1 << 16];
    while received < BYTES {
        let len = far.read(&mut buffer).unwrap();
        assert!(len > 0, "the connection ended after {received} bytes");
        received += len;
    }
    sender.join().unwrap();
    BYTES as f64 / started.elapsed().as_secs_f64() / f64::from(1 << 20)
}

/// A connection through the tunnel, each way at once, and the speed up and down.
fn use_tunnel(server: &Host, client: &Host, options: &[&str], context: &str) -> [f64; 2] {
    let _tunnel = Tunnel::up(server, client, options).unwrap();
    let [near, far] = [INSIDE[1], INSIDE[0]];
    let (near, far) = ((near, 0).into(), (far, INNER).into());
    tcp::exchange(&client.netns, near, &server.netns, far)
        .unwrap_or_else(|error| panic!("{context}: {error:#}"));
    let back = SocketAddr::from((INSIDE[1], INNER));
    [
        speed(&client.netns, &server.netns, far),
        speed(&server.netns, &client.netns, back),
    ]
}

#[test]
fn its_defaults_carry_data_both_ways() {
    let net = Routed::new().unwrap();
    let (client, server) = (net.client(), &net.server);
    let without = use_tunnel(server, client, &[], "without xdptun");
    let port = PORT.to_string();
    let attach = |host: &Host| Attached::start(&host.netns, Host::DEV, &["--port", &port]).unwrap();
    let _attached = [attach(server), attach(client)];
    let count = |stats: &mut WireStats, frame: &Frame| stats.add(frame);
    // On a host, what GRO has met comes in once more, restored.
    let router = &net.router.netns;
    let wire = Capture::fold(router, Router::WAN, WireStats::new(PORT), count).unwrap();
    let with = use_tunnel(server, client, &[], "with xdptun");
    let wire = wire.stop().unwrap();
    assert_eq!((wire.udp_datagrams, wire.fragments), (0, 0), "{wire:#?}");
    assert!(
        wire.data_segments > 0 && wire.bad_checksums == 0,
        "{wire:#?}"
    );
    for host in [server, client] {
        let counters = status::counters(&host.netns).unwrap();
        let fragments = ["tx_fragment", "rx_fragment"].map(|name| counters[name]);
        assert!(
            fragments.iter().all(|count| *count > 10_000),
            "{counters:#?}"
        );
    }
    for (way, (with, without)) in ["up", "down"].iter().zip(with.iter().zip(without)) {
        println!(
            "{way}: {with:.0} MiB/s with xdptun, {without:.0} without: {:.2}",
            with / without
        );
    }
}

/// The option of docs/operating.md.
#[test]
fn a_smaller_mtu_inside_avoids_fragments() {
    let net = Routed::new().unwrap();
    let (client, server) = (net.client(), &net.server);
    let port = PORT.to_string();
    let attach = |host: &Host| Attached::start(&host.netns, Host::DEV, &["--port", &port]).unwrap();
    let _attached = [attach(server), attach(client)];
    use_tunnel(server, client, &["--tun-mtu", "1400"], "a smaller MTU");
    for host in [server, client] {
        let counters = status::counters(&host.netns).unwrap();
        let of_too_long = ["tx_fragment", "rx_fragment", "tx_too_big"];
        let found = of_too_long.map(|name| counters.get(name).copied().unwrap_or(0));
        assert_eq!(found, [0; 3], "{counters:#?}");
    }
}
