//! Both hosts open the same flow at the same time, as two WireGuard peers do.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Barrier;
use std::thread;

use xdptun_lab::{Direct, Family, Host, WireStats, udp, wait};
use xdptun_test_net::nets::Plain;
use xdptun_test_net::wire::{Segment, Wire, describe, segments};
use xdptun_test_net::{LIMIT, PORT, mode, raw, socket, status};

/// Both ends of a flow from port 8000 to port 8000, with a datagram sent on
/// each side that the router does not let pass.
struct Crossing {
    net: Plain,
    near: UdpSocket,
    far: UdpSocket,
    wire: Wire,
}

impl Crossing {
    fn new(family: Family, net: Plain) -> Self {
        let (client, server) = (net.0.client(), &net.0.server);
        net.hold().unwrap();
        let wire = Wire::watch(&[client, server]).unwrap();
        let bind = |host: &Host| socket::roomy(&host.netns, host.socket(family, PORT)).unwrap();
        let (near, far) = (bind(client), bind(server));
        near.send_to(b"from near", far.local_addr().unwrap())
            .unwrap();
        far.send_to(b"from far", near.local_addr().unwrap())
            .unwrap();
        for host in [client, server] {
            status::wait_states(&host.netns, "syn-sent", 1).unwrap();
        }
        wait::until(LIMIT, "a SYN of both", || {
            wire.count(PORT, |segment| segment.flags() == "S") >= 2
        })
        .unwrap();
        Self {
            net,
            near,
            far,
            wire,
        }
    }

    /// Lets packets pass, and requires one flow that carries data both ways.
    fn finish(self) {
        self.net.release().unwrap();
        let (near, far) = (
            self.near.local_addr().unwrap(),
            self.far.local_addr().unwrap(),
        );
        let received = |socket| udp::receive(socket, LIMIT).unwrap();
        assert_eq!(received(&self.far), (b"from near".to_vec(), near));
        assert_eq!(received(&self.near), (b"from far".to_vec(), far));
        for round in 0..10 {
            let payload = udp::pattern(100, round);
            self.near.send_to(&payload, far).unwrap();
            assert_eq!(received(&self.far), (payload.clone(), near));
            self.far.send_to(&payload, near).unwrap();
            assert_eq!(received(&self.near), (payload, far));
        }
        for host in [self.net.0.client(), &self.net.0.server] {
            status::wait_states(&host.netns, "established", 1).unwrap();
        }
        let frames = self.wire.stop().unwrap();
        let all = segments(&frames, PORT);
        assert_eq!(
            all.iter().filter(|segment| segment.header().rst).count(),
            0,
            "{}",
            describe(&all)
        );
        for end in [near, far] {
            let sent: Vec<_> = all.iter().filter(|segment| segment.source == end).collect();
            let data = sent.iter().filter(|segment| segment.is_data());
            assert_eq!(data.count(), 11, "{}", describe(&all));
            let numbers = sent.iter().filter(|segment| segment.header().syn);
            let numbers: Vec<u32> = numbers.map(|segment| segment.header().seq).collect();
            assert!(
                numbers.windows(2).all(|pair| pair[0] == pair[1]),
                "{}",
                describe(&all)
            );
            let first_data = sent.iter().position(|segment| segment.is_data()).unwrap();
            let syns_after = sent[first_data..]
                .iter()
                .filter(|segment| segment.header().syn);
            assert_eq!(syns_after.count(), 0, "{}", describe(&all));
        }
    }
}

/// The state of RFC 9293 figure 7: each SYN reaches a host that has sent one.
/// The router holds all back, and the test hands each SYN over itself.
#[test]
fn both_syns_cross() {
    for family in Family::BOTH {
        let net = Plain::new().unwrap();
        let _attached = mode::TC.attach_to([net.0.client(), &net.0.server]).unwrap();
        let crossing = Crossing::new(family, net);
        let router = &crossing.net.0.router.netns;
        let hosts = [crossing.net.0.client(), &crossing.net.0.server];
        for (from, to) in [(0, 1), (1, 0)] {
            let syn = first_syn(&crossing.wire, hosts[from].socket(family, PORT));
            raw::send_packet(router, hosts[to].address(family), &syn).unwrap();
            status::wait_states(&hosts[to].netns, "syn-received", 1).unwrap();
        }
        crossing.finish();
    }
}

/// Only one SYN gets through, to a host that has sent its own.
#[test]
fn one_syn_meets_the_other() {
    for family in Family::BOTH {
        let net = Plain::new().unwrap();
        let _attached = mode::TC.attach_to([net.0.client(), &net.0.server]).unwrap();
        Crossing::new(family, net).finish();
    }
}

fn first_syn(wire: &Wire, from: SocketAddr) -> Vec<u8> {
    let is_it = |segment: &Segment<'_>| segment.flags() == "S" && segment.source == from;
    wire.first_packet(PORT, is_it).expect("it was counted")
}

/// Real time, many flows: whatever the order of events, both ends agree.
#[test]
fn flows_opened_from_both_ends_at_once_come_up() {
    const ROUNDS: u16 = 50;
    let net = Direct::new().unwrap();
    let ports = format!("{PORT}-{}", PORT + ROUNDS - 1);
    let _near = mode::TC.attach(&net.a, &["--port", &ports]).unwrap();
    let _far = mode::TC.attach(&net.b, &["--port", &ports]).unwrap();
    let wire = Wire::watch(&[&net.a, &net.b]).unwrap();
    for round in 0..ROUNDS {
        let family = if round % 2 == 0 {
            Family::V4
        } else {
            Family::V6
        };
        let bind =
            |host: &Host| socket::roomy(&host.netns, host.socket(family, PORT + round)).unwrap();
        let (near, far) = (bind(&net.a), bind(&net.b));
        let (near_end, far_end) = (near.local_addr().unwrap(), far.local_addr().unwrap());
        let start = Barrier::new(2);
        let meet = |socket: &UdpSocket, peer: SocketAddr| {
            start.wait();
            socket.send_to(b"hello", peer).unwrap();
            let (payload, from) = udp::receive(socket, LIMIT)
                .unwrap_or_else(|error| panic!("round {round}, {family}: {error:#}"));
            assert_eq!((payload.as_slice(), from), (b"hello".as_slice(), peer));
        };
        thread::scope(|scope| {
            scope.spawn(|| meet(&near, far_end));
            meet(&far, near_end);
        });
    }
    for host in [&net.a, &net.b] {
        status::wait_states(&host.netns, "established", ROUNDS.into()).unwrap();
    }
    let stats = WireStats::of(PORT, &wire.stop().unwrap());
    assert_eq!(
        (stats.udp_datagrams, stats.bad_checksums, stats.rst),
        (0, 0, 0),
        "{stats:#?}"
    );
}
