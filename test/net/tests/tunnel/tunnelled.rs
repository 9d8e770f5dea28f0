//! Datagrams that carry packets (VXLAN) whose own checksums the device is still
//! to finish: where they are when the segment leaves, or not at all.

use std::net::SocketAddr;

use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Direct, Family, Host, link, secret, udp};
use xdptun_test_net::status::{Counters, counters, wait_moved};
use xdptun_test_net::vxlan::{self, DEV, MTU, dig, inner};
use xdptun_test_net::{LIMIT, PORT};

struct Scene {
    net: Direct,
    _attached: [Attached; 2],
}

impl Scene {
    fn new(checksums: bool) -> Self {
        Self::with(checksums, &[])
    }

    /// With more options of xdptun.
    fn with(checksums: bool, more: &[&str]) -> Self {
        let net = Direct::new().unwrap();
        dig(&net.a, 1, &net.b, checksums).unwrap();
        dig(&net.b, 2, &net.a, checksums).unwrap();
        let port = vxlan::PORT.to_string();
        let args = [&["--port", &port][..], more].concat();
        let attach = |host: &Host| Attached::start(&host.netns, Host::DEV, &args);
        let attached = [attach(&net.a).unwrap(), attach(&net.b).unwrap()];
        Self {
            net,
            _attached: attached,
        }
    }

    /// Whether the tunnel's packets leave with pending checksums.
    fn pend(&self, on: bool) {
        for host in [&self.net.a, &self.net.b] {
            link::offload(&host.netns, DEV, "tx", on).unwrap();
        }
    }

    fn counters(&self) -> Counters {
        counters(&self.net.a.netns).unwrap()
    }
}

#[test]
fn a_checksum_inside_is_finished_where_it_is() {
    let scene = Scene::new(true);
    for family in Family::BOTH {
        let address = SocketAddr::new(inner(family, 2), PORT);
        let server = udp::Server::echo(&scene.net.b.netns, address).unwrap();
        let local = SocketAddr::new(inner(family, 1), 0);
        let client = udp::bind(&scene.net.a.netns, local).unwrap();
        // The checksum of a packet that waits for a handshake is never finished.
        scene.pend(false);
        udp::exchange(&client, server.address(), b"opens the flows", LIMIT).unwrap();
        scene.pend(true);
        for device_adds in [true, false] {
            scene.net.offload("tx", device_adds).unwrap();
            let before = scene.counters();
            let largest = MTU - family.header_len() - 8 - 12;
            let lengths = [0, 1, 100, largest - 1, largest];
            for length in lengths {
                let payload = udp::pattern(length, 5);
                udp::exchange(&client, server.address(), &payload, LIMIT).unwrap_or_else(|error| {
                    panic!("{family}, {length} bytes, tx {device_adds}: {error:#}")
                });
            }
            let count = lengths.len() as u64;
            // Nothing else, whatever else a pause brings: an acknowledgement is due
            // after 480 ms, and fails if what came has a pending checksum itself.
            let after = scene.counters();
            for name in ["tx_disguised", "rx_restored"] {
                assert_eq!(after[name] - before[name], count, "{family}: {name}");
            }
        }
    }
    let errors = scene.net.b.netns.run("nstat", ["-as", "*InCsumErrors"]);
    let errors = errors.unwrap();
    assert!(!errors.contains("InCsumErrors"), "{errors}");
}

#[test]
fn without_a_checksum_around_it_is_refused() {
    let scene = Scene::new(false);
    let address = SocketAddr::new(inner(Family::V4, 2), PORT);
    let server = udp::Server::echo(&scene.net.b.netns, address).unwrap();
    let local = SocketAddr::new(inner(Family::V4, 1), 0);
    let client = udp::bind(&scene.net.a.netns, local).unwrap();
    scene.pend(false);
    for payload in [&b"opens the flows"[..], b"goes by them"] {
        udp::exchange(&client, server.address(), payload, LIMIT).unwrap();
    }
    scene.pend(true);
    let before = scene.counters();
    client.send_to(b"unfinished", server.address()).unwrap();
    wait_moved(&scene.net.a.netns, &before, &[("tx_drop_pending", 1)]).unwrap();
}

/// The device would write it into covered bytes: of what is padded, and of what is not.
#[test]
fn a_checksum_inside_is_refused_under_the_veil() {
    let directory = Scratch::new().unwrap();
    let secret = secret::write(directory.path(), "secret", "correct horse battery").unwrap();
    let scene = Scene::with(true, &["--secret", &secret, "--veil"]);
    for family in Family::BOTH {
        let address = SocketAddr::new(inner(family, 2), PORT);
        let server = udp::Server::echo(&scene.net.b.netns, address).unwrap();
        let local = SocketAddr::new(inner(family, 1), 0);
        let client = udp::bind(&scene.net.a.netns, local).unwrap();
        scene.pend(false);
        for length in [10, 100, 1000] {
            let payload = udp::pattern(length, 5);
            udp::exchange(&client, server.address(), &payload, LIMIT).unwrap();
        }
        scene.pend(true);
        for length in [10, 100, 1000] {
            let before = scene.counters();
            let payload = udp::pattern(length, 5);
            client.send_to(&payload, server.address()).unwrap();
            wait_moved(&scene.net.a.netns, &before, &[("tx_drop_pending", 1)]).unwrap();
        }
    }
}
