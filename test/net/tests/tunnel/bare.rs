//! Interfaces without a link header (TUN here, ppp is alike): what the wire
//! shows is what the kernel handed to the device.

use xdptun_lab::{Attached, Family, Kind, Offload, Relayed, WireStats, udp, wait};
use xdptun_test_net::mode::{self, Mode};
use xdptun_test_net::status::{self, counter};
use xdptun_test_net::wire::{describe, segments};
use xdptun_test_net::{LIMIT, PORT};

const MTU: usize = 1500;

/// Empty, tiny, around what is saved to settle a pending checksum (32 and 48
/// bytes less the UDP header, which differ without a link header), and large.
fn lengths(family: Family) -> Vec<usize> {
    let largest = MTU - family.header_len() - 20;
    let near = [0, 1, 2].into_iter().chain(10..50);
    near.chain([1000, 1399, largest - 1, largest]).collect()
}

fn echo_in(mode: Mode, offload: Offload) {
    let net = Relayed::new(Kind::Tun, offload).unwrap();
    let attached = mode.attach_to([&net.a, &net.b]).unwrap();
    for family in Family::BOTH {
        for checksum in [true, false] {
            if !checksum && family == Family::V6 {
                continue;
            }
            let context = format!("{mode:?}, {offload:?}, {family}, UDP checksum {checksum}");
            echo(&net, family, checksum, &context);
        }
    }
    for attached in attached {
        attached.stop().unwrap();
    }
}

fn echo(net: &Relayed, family: Family, checksum: bool, context: &str) {
    let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
    let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
    if !checksum {
        udp::without_checksum(&client).unwrap();
    }
    net.relay.sent().unwrap();
    udp::exchange(&client, server.address(), b"opens the flow", LIMIT)
        .unwrap_or_else(|error| panic!("{context}: {error:#}"));
    // Datagrams may overtake the ACK on another core; both complete the handshake.
    let mut frames = Vec::new();
    wait::until(LIMIT, "the ACK", || {
        frames.extend(net.relay.sent().unwrap());
        let opening = segments(&frames, PORT);
        opening.iter().any(|segment| segment.flags() == ".")
    })
    .unwrap_or_else(|error| panic!("{context}: {error:#}"));
    let opening = segments(&frames, PORT);
    let flags: Vec<String> = opening.iter().map(|s| s.flags()).collect();
    let orders = [
        ["S", "S.", ".", "P.", "P."],
        ["S", "S.", "P.", ".", "P."],
        ["S", "S.", "P.", "P.", "."],
    ];
    let is_one = orders.iter().any(|order| flags == order);
    assert!(is_one, "{}", describe(&opening));
    let hosts = [&net.a, &net.b];
    let before = hosts.map(|host| status::counters(&host.netns).unwrap());
    let lengths = lengths(family);
    for &length in &lengths {
        let payload = udp::pattern(length, length.to_le_bytes()[0]);
        udp::exchange(&client, server.address(), &payload, LIMIT)
            .unwrap_or_else(|error| panic!("{context}, {length} bytes: {error:#}"));
    }
    let frames = net.relay.sent().unwrap();
    let segments = segments(&frames, PORT);
    for sender in [client.local_addr().unwrap(), server.address()] {
        let data = segments
            .iter()
            .filter(|segment| segment.source == sender && segment.is_data());
        let sent: Vec<usize> = data
            .inspect(|segment| {
                let length = segment.payload.len();
                let payload = udp::pattern(length, length.to_le_bytes()[0]);
                assert_eq!(segment.payload, payload, "{context}: {}", segment.packet);
            })
            .map(|segment| segment.payload.len())
            .collect();
        assert_eq!(sent, lengths, "{context}: {sender}");
    }
    let count = lengths.len() as u64;
    status::assert_carried(hosts, &before, count, context);
}

#[test]
fn every_kind_of_length_through_tc() {
    for offload in [Offload::None, Offload::Checksum, Offload::Segmentation] {
        echo_in(mode::TC, offload);
    }
}

#[test]
fn every_kind_of_length_through_clsact_filters() {
    echo_in(mode::TC_CLSACT, Offload::Checksum);
}

#[test]
fn every_kind_of_length_through_generic_xdp() {
    for offload in [Offload::None, Offload::Checksum] {
        echo_in(mode::XDP_GENERIC, offload);
    }
}

/// The frames that the daemon itself sends: the datagram that waited, the probe of a
/// silent flow, the FIN at the end.
#[test]
fn the_daemon_sends_without_a_link_header() {
    for family in Family::BOTH {
        let net = Relayed::new(Kind::Tun, Offload::None).unwrap();
        let port = &PORT.to_string();
        let args = ["--port", port, "--keepalive", "1"];
        let a = mode::TC.attach(&net.a, &args).unwrap();
        let b = mode::TC.attach(&net.b, &["--port", port]).unwrap();
        let server = udp::Server::echo(&net.b.netns, net.b.socket(family, PORT)).unwrap();
        let client = udp::bind(&net.a.netns, net.a.socket(family, 0)).unwrap();
        udp::exchange(&client, server.address(), b"waited", LIMIT).unwrap();
        wait_for(&net, &a, family, "sent_probe");
        a.stop().unwrap();
        wait_for(&net, &b, family, "rx_fin");
        let frames = net.relay.sent().unwrap();
        let wire = WireStats::of(PORT, &frames);
        assert_eq!(
            (wire.udp_datagrams, wire.rst),
            (0, 0),
            "{family}: {wire:#?}"
        );
        assert!(wire.fin >= 1, "{family}: {wire:#?}");
        let segments = segments(&frames, PORT);
        let first = segments.iter().find(|segment| segment.is_data()).unwrap();
        assert_eq!(first.payload, b"waited", "{family}");
        let probes = segments.iter().filter(|segment| {
            let next = first.end();
            segment.flags() == "." && segment.header().seq == next.wrapping_sub(1)
        });
        assert!(probes.count() >= 1, "{family}: {}", describe(&segments));
    }
}

fn wait_for(net: &Relayed, attached: &Attached, family: Family, name: &str) {
    wait::until_some(LIMIT, name, || {
        Ok((counter(attached.netns(), name)? > 0).then_some(()))
    })
    .unwrap_or_else(|error| {
        let frames = net.relay.sent().unwrap();
        panic!("{family}: {error:#}{}", describe(&segments(&frames, PORT)))
    });
}
