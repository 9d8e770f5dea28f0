//! Payloads under the veil: on the wire their first bytes and short lengths are others, and they arrive
//! as they were sent.

use std::collections::BTreeSet;
use std::net::UdpSocket;

use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Direct, Family, Netns, secret, udp, wait};
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::socket::roomy;
use xdptun_test_net::status::counters;
use xdptun_test_net::wire::{Wire, data_of, segments};
use xdptun_test_net::{LIMIT, PORT};

/// Two hosts that veil their payloads.
struct Hosts {
    net: Direct,
    _attached: [Attached; 2],
    _secret: Scratch,
}

impl Hosts {
    fn new(mode: Mode, veil: &str) -> Self {
        let net = Direct::new().unwrap();
        let directory = Scratch::new().unwrap();
        let secret = secret::write(directory.path(), "secret", "correct horse battery").unwrap();
        let more = ["--secret", &secret, veil];
        let attached = mode.attach_with([&net.a, &net.b], &more).unwrap();
        Self {
            net,
            _attached: attached,
            _secret: directory,
        }
    }
}

/// Payloads that nothing else looks like: their first bytes say how much of them is covered.
fn payload(length: usize, first: u8) -> Vec<u8> {
    let mut payload = udp::pattern(length, 0x5a);
    let start = length.min(4);
    payload[..start].copy_from_slice(&[first, 0, 0, 0][..start]);
    payload
}

/// First bytes by which 16, 32 and 64 bytes are covered.
const FIRST: [u8; 3] = [4, 0x45, 0xc1];

fn lengths() -> impl Iterator<Item = usize> {
    (0..=300).chain((301..=1452).step_by(23))
}

/// Echoes payloads of all lengths; on the wire their beginnings are others, and short ones have other
/// lengths, up to `most` bytes.
fn echo(hosts: &Hosts, family: Family, most: usize, context: &str) {
    let net = &hosts.net;
    let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
    let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
    let largest = 1500 - family.header_len() - 20;
    let sent: Vec<Vec<u8>> = FIRST
        .into_iter()
        .flat_map(|first| lengths().map(move |length| payload(length, first)))
        .filter(|payload| payload.len() <= largest)
        .collect();
    let wire = Wire::watch(&[&net.a, &net.b]).unwrap();
    for payload in &sent {
        udp::exchange(&client, server.address(), payload, LIMIT)
            .unwrap_or_else(|error| panic!("{context}, {} bytes: {error:#}", payload.len()));
    }
    let frames = wire.stop().unwrap();
    let segments = segments(&frames, PORT);
    for source in [client.local_addr().unwrap(), server.address()] {
        let data = data_of(&segments, source);
        assert_eq!(data.len(), sent.len(), "{context}");
        // Of 253 first datagrams at least; chance gives them 160 lengths and more.
        let short = data.iter().take(most.saturating_sub(1));
        let lengths: BTreeSet<usize> = short.map(|one| one.payload.len()).collect();
        assert!(lengths.len() >= most / 4, "{context}: {lengths:?}");
        for (segment, plain) in data.iter().zip(&sent) {
            let (on_wire, length) = (&segment.payload, plain.len());
            let context = format!("{context}, {length} bytes: {}", segment.packet);
            match length + 2 <= most {
                true => assert!((length + 2..=most).contains(&on_wire.len()), "{context}"),
                false => assert_eq!(on_wire.len(), length, "{context}"),
            }
            // By chance one in 2^64 would be equal.
            if length >= 8 {
                assert_ne!(on_wire[..8], plain[..8], "{context}");
            }
        }
    }
}

fn echo_in(mode: Mode) {
    for (veil, most) in [("--veil", 256), ("--veil=0", 0)] {
        let hosts = Hosts::new(mode, veil);
        for offload in [true, false] {
            hosts.net.offload("tx", offload).unwrap();
            for family in Family::BOTH {
                let context = format!("{mode:?} {veil}, {family}, tx offload {offload}");
                echo(&hosts, family, most, &context);
            }
        }
    }
}

#[test]
fn through_tc() {
    echo_in(mode::TC);
}

#[test]
fn through_native_xdp() {
    echo_in(mode::XDP);
}

#[test]
fn through_generic_xdp_and_clsact_filters() {
    echo_in(Mode {
        tc: "clsact",
        ..mode::XDP_GENERIC
    });
}

/// Each datagram of a super-packet is covered by itself; the last, short one is padded.
#[test]
fn super_packets_are_covered_piece_by_piece() {
    let hosts = Hosts::new(mode::TC, "--veil");
    let net = &hosts.net;
    for family in Family::BOTH {
        let server = roomy(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let client = roomy(&net.a.netns, net.a.socket(family, 0)).unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        client.send(b"opens the flow").unwrap();
        assert_eq!(received(&server), b"opens the flow", "{family}");
        setsockopt(&client, UdpGsoSegment, &1000).unwrap();
        for rest in [0, 1, 100, 300] {
            let all = udp::pattern(10_000 + rest, 3);
            client.send(&all).unwrap();
            for piece in all.chunks(1000) {
                assert!(
                    received(&server) == piece,
                    "{family}, {} bytes",
                    piece.len()
                );
            }
        }
    }
}

fn received(socket: &UdpSocket) -> Vec<u8> {
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let mut buffer = [0; 2000];
    let length = socket.recv(&mut buffer).unwrap();
    buffer[..length].to_vec()
}

/// Otherwise the one without would deliver noise.
#[test]
fn hosts_with_and_without_a_veil_refuse_each_other() {
    let net = Direct::new().unwrap();
    let directory = Scratch::new().unwrap();
    let secret = secret::write(directory.path(), "secret", "correct horse battery").unwrap();
    let args = ["--port", &PORT.to_string(), "--secret", &secret];
    let _a = mode::TC
        .attach(&net.a, &[&args[..], &["--veil"]].concat())
        .unwrap();
    let _b = mode::TC.attach(&net.b, &args).unwrap();
    let ends = [(&net.a, &net.b), (&net.b, &net.a)];
    for (from, to) in ends {
        let socket = udp::bind(&from.netns, from.socket(Family::V4, 0)).unwrap();
        socket
            .send_to(b"refused", to.socket(Family::V4, PORT))
            .unwrap();
        wait::until(LIMIT, "the SYN to be refused", || {
            counter(&to.netns, "rx_drop_unproven") > 0
        })
        .unwrap();
        assert_eq!(counter(&to.netns, "rx_restored"), 0);
    }
}

/// The status omits counters that are zero.
fn counter(netns: &Netns, name: &str) -> u64 {
    counters(netns).unwrap().get(name).copied().unwrap_or(0)
}
