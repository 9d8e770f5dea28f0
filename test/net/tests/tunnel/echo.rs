//! Every payload length there and back, through every hook, with and without
//! checksum offload; the bytes on the wire are judged, not only what arrives.

use xdptun_lab::{Capture, Direct, Family, Host, udp, xdptun};
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::wire::{Wire, data_of, describe, packets, segments};
use xdptun_test_net::{LIMIT, PORT};

const MTU: usize = 1500;

/// IP header and TCP header.
fn largest(family: Family) -> usize {
    MTU - family.header_len() - 20
}

/// Every one there is: no two lengths take quite the same way through the
/// checksum loop, and short ones take another way through the room-making.
fn lengths(family: Family) -> Vec<usize> {
    (0..=largest(family)).collect()
}

fn seed(length: usize) -> u8 {
    length.to_le_bytes()[0] ^ 0x5a
}

/// Echoes every length and compares every byte at the receiver and on the wire.
fn echo(net: &Direct, family: Family, checksum: bool, context: &str) {
    let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
    let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
    if !checksum {
        udp::without_checksum(&client).unwrap();
    }
    let lengths = lengths(family);
    let wire = Wire::watch(&[&net.a, &net.b]).unwrap();
    for &length in &lengths {
        let payload = udp::pattern(length, seed(length));
        udp::exchange(&client, server.address(), &payload, LIMIT)
            .unwrap_or_else(|error| panic!("{context}, {length} bytes: {error:#}"));
    }
    let frames = wire.stop().unwrap();
    let segments = segments(&frames, PORT);
    for (sender, name) in [
        (client.local_addr().unwrap(), "client"),
        (server.address(), "server"),
    ] {
        let data = data_of(&segments, sender);
        let sent: Vec<usize> = data.iter().map(|segment| segment.payload.len()).collect();
        assert_eq!(sent, lengths, "{context}: segments of the {name}");
        for segment in data {
            let length = segment.payload.len();
            assert_eq!(
                segment.payload,
                udp::pattern(length, seed(length)),
                "{context}: {}",
                segment.packet
            );
        }
    }
    let resets = segments.iter().filter(|segment| segment.header().rst);
    assert_eq!(resets.count(), 0, "{context}: {}", describe(&segments));
}

fn echo_in(mode: Mode) {
    let net = Direct::new().unwrap();
    let attached = mode.attach_both(&net).unwrap();
    for offload in [true, false] {
        net.offload("tx", offload).unwrap();
        for family in Family::BOTH {
            let context = format!("{mode:?}, {family}, tx offload {offload}");
            echo(&net, family, true, &context);
        }
        echo(
            &net,
            Family::V4,
            false,
            &format!("{mode:?}, no UDP checksum, tx offload {offload}"),
        );
    }
    let status = xdptun::status(&net.a.netns).unwrap();
    assert_eq!(status["interfaces"][0]["ingress"], mode.ingress);
    for attached in attached {
        attached.stop().unwrap();
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
fn through_generic_xdp() {
    echo_in(mode::XDP_GENERIC);
}

#[test]
fn through_clsact_filters() {
    echo_in(mode::TC_CLSACT);
}

#[test]
fn through_native_xdp_and_clsact_filters() {
    echo_in(mode::XDP_CLSACT);
}

/// XDP that restored nothing would go unnoticed: tc restores what it leaves.
/// `tcpdump` and our capture sit between the two and see datagrams then.
#[test]
fn xdp_restores_before_the_stack_sees_the_segment() {
    for mode in [mode::XDP, mode::XDP_GENERIC] {
        let net = Direct::new().unwrap();
        let _attached = mode.attach_both(&net).unwrap();
        for family in Family::BOTH {
            let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
            let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
            udp::exchange(&client, server.address(), b"opens the flow", LIMIT).unwrap();
            let capture = Capture::start(&net.b.netns, Host::DEV).unwrap();
            for round in 0..50 {
                let payload = udp::pattern(100, round);
                udp::exchange(&client, server.address(), &payload, LIMIT).unwrap();
            }
            let mut frames = capture.stop().unwrap();
            frames.retain(|frame| !frame.outgoing);
            let seen = packets(&frames, PORT);
            let restored = seen.iter().filter(|packet| packet.tcp().is_none()).count();
            // Segments for which an ACK is due are left to tc.
            assert!(
                restored >= 40,
                "{mode:?} {family}: {restored} of 50: {}",
                describe(&seen)
            );
        }
    }
}
