//! The receiver's GRO. It merges contiguous segments that differ in nothing
//! but their place, up to one with PSH. Without a veil all of ours have it. Those under a veil, and those
//! of others, are merged and must be split again.

use std::net::UdpSocket;

use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Capture, Direct, Family, Frame, Host, Kind, burst, secret, udp};
use xdptun_test_net::packet::TcpPacket;
use xdptun_test_net::socket;
use xdptun_test_net::{LIMIT, mode, status};

/// As many as a driver hands over at once.
const BURST: usize = 64;
const PAYLOAD: usize = 1400;
const MTU: usize = 1500;

fn payload(number: usize) -> Vec<u8> {
    udp::pattern(PAYLOAD, number.to_le_bytes()[0])
}

/// Sends datagrams and takes down the segments they became.
fn segments_of(net: &Direct, client: &UdpSocket, server: &UdpSocket) -> Vec<TcpPacket> {
    let capture = Capture::start(&net.a.netns, Host::DEV).unwrap();
    for number in 0..BURST {
        client.send(&payload(number)).unwrap();
    }
    receive_all(server, "one by one");
    let frames = capture.stop().unwrap();
    let sent = frames.iter().filter(|frame| frame.outgoing);
    let packets = sent.filter_map(|frame| TcpPacket::read(Kind::Tap, &frame.bytes).ok());
    let data: Vec<_> = packets
        .filter(|packet| !packet.payload.is_empty())
        .collect();
    assert_eq!(data.len(), BURST);
    data
}

fn receive_all(server: &UdpSocket, context: &str) {
    for number in 0..BURST {
        let (received, _) = udp::receive(server, LIMIT)
            .unwrap_or_else(|error| panic!("{context}: after {number}: {error:#}"));
        assert!(received == payload(number), "{context}: datagram {number}");
    }
}

/// How many frames that arrived are larger than the wire carries.
fn merged(frames: &[Frame]) -> usize {
    let arrived = frames.iter().filter(|frame| !frame.outgoing);
    arrived.filter(|frame| frame.bytes.len() > MTU + 14).count()
}

/// Sends these segments at once; each must arrive as a datagram. How many merged frames they were.
fn arrive_together(
    net: &Direct,
    server: &UdpSocket,
    packets: &[TcpPacket],
    context: &str,
) -> usize {
    let frames: Vec<_> = packets.iter().map(TcpPacket::write).collect();
    let capture = Capture::start(&net.b.netns, Host::DEV).unwrap();
    let before = status::counters(&net.b.netns).unwrap();
    burst::send_together(&net.a.netns, Host::DEV, &frames).unwrap();
    receive_all(server, context);
    let large = merged(&capture.stop().unwrap());
    let moved = status::moved(&before, &status::counters(&net.b.netns).unwrap());
    let counts = [("rx_restored", BURST as u64), ("rx_split", large as u64)];
    let expected = status::expected(&counts);
    assert_eq!(status::apart_from_timed(moved), expected, "{context}");
    large
}

/// The same segments arrive together twice: as xdptun wrote them, and with the
/// flags and the window of a sender of bare data, the same in each.
#[test]
fn our_segments_are_not_merged_and_those_of_others_are_split() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    net.offload("tx", false).unwrap();
    burst::gather(&net.b.netns, Host::DEV).unwrap();
    for family in Family::BOTH {
        let (client, server) = socket::open(&net.a, &net.b, family).unwrap();
        let ours = segments_of(&net, &client, &server);
        let mut others = ours.clone();
        for packet in &mut others {
            packet.tcp.psh = false;
            packet.tcp.window_size = 1000;
            packet.tcp.acknowledgment_number = ours[0].tcp.acknowledgment_number;
        }
        for (name, packets, merges) in [("ours", ours, false), ("others", others, true)] {
            let context = format!("{family}, {name}");
            let large = arrive_together(&net, &server, &packets, &context);
            assert_eq!(large > 0, merges, "{context}: {large} merged frames");
        }
    }
}

/// Under a veil most long segments have no PSH.
#[test]
fn our_segments_under_a_veil_are_merged_and_split() {
    let net = Direct::new().unwrap();
    let directory = Scratch::new().unwrap();
    let secret = secret::write(directory.path(), "secret", "correct horse battery").unwrap();
    let more = ["--secret", &secret, "--veil"];
    let _attached = mode::TC.attach_with([&net.a, &net.b], &more).unwrap();
    net.offload("tx", false).unwrap();
    burst::gather(&net.b.netns, Host::DEV).unwrap();
    for family in Family::BOTH {
        let (client, server) = socket::open(&net.a, &net.b, family).unwrap();
        let ours = segments_of(&net, &client, &server);
        // One for each 64 KiB.
        let pushed = ours.iter().filter(|packet| packet.tcp.psh).count();
        assert!((1..=2).contains(&pushed), "{family}: {pushed} with PSH");
        let large = arrive_together(&net, &server, &ours, &family.to_string());
        assert!(large > 0, "{family}");
    }
}
