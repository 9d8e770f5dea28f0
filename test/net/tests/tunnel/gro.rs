//! The receiver's GRO. It merges contiguous segments that differ in nothing
//! but their place, up to one with PSH. Without a veil all of ours have it. Those under a veil, and those
//! of others, are merged and must be split again.

use std::net::UdpSocket;

use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Capture, Direct, Family, Frame, Host, Kind, burst, link, secret, udp};
use xdptun_test_net::packet::TcpPacket;
use xdptun_test_net::socket;
use xdptun_test_net::{LIMIT, mode, status};

/// As many as a driver hands over at once.
const BURST: usize = 64;
const PAYLOAD: usize = 1400;
const MTU: usize = 1500;
const BEHIND: &str = "rx_behind_merged";

fn payload(number: usize) -> Vec<u8> {
    udp::pattern(PAYLOAD, number.to_le_bytes()[0])
}

/// Sends datagrams and takes down the segments they became, which do not arrive: they are for another
/// Ethernet address.
fn segments_of(net: &Direct, client: &UdpSocket) -> Vec<TcpPacket> {
    let peer = &net.b.netns;
    let address = link::ethernet_address(peer, Host::DEV).unwrap();
    let other = [2, 0, 0, 0, 0, 0x99];
    link::set_ethernet_address_quietly(peer, Host::DEV, other).unwrap();
    let capture = Capture::start(&net.a.netns, Host::DEV).unwrap();
    for number in 0..BURST {
        client.send(&payload(number)).unwrap();
    }
    let frames = capture.stop().unwrap();
    link::set_ethernet_address_quietly(peer, Host::DEV, address).unwrap();
    let sent = frames.iter().filter(|frame| frame.outgoing);
    let packets = sent.filter_map(|frame| TcpPacket::read(Kind::Tap, &frame.bytes).ok());
    let data: Vec<_> = packets
        .filter(|packet| !packet.payload.is_empty())
        .collect();
    assert_eq!(data.len(), BURST);
    data
}

/// Makes host `a` send segments with checksums, and the GRO of host `b` merge what comes at once.
fn let_receiver_merge(net: &Direct) {
    net.offload("tx", false).unwrap();
    burst::gather(&net.b.netns, Host::DEV).unwrap();
}

/// How many frames that arrived are larger than the wire carries.
fn merged(frames: &[Frame]) -> usize {
    let arrived = frames.iter().filter(|frame| !frame.outgoing);
    arrived.filter(|frame| frame.bytes.len() > MTU + 14).count()
}

/// Sends these segments at once; each must arrive as a datagram, in order. How many merged frames they
/// were, and how many single ones went to the splitter behind these.
fn arrive_together(
    net: &Direct,
    server: &UdpSocket,
    packets: &[TcpPacket],
    context: &str,
) -> (usize, u64) {
    let frames: Vec<_> = packets.iter().map(TcpPacket::write).collect();
    let capture = Capture::start(&net.b.netns, Host::DEV).unwrap();
    let before = status::counters(&net.b.netns).unwrap();
    burst::send_together(&net.a.netns, Host::DEV, &frames).unwrap();
    for number in 0..BURST {
        let (received, _) = udp::receive(server, LIMIT)
            .unwrap_or_else(|error| panic!("{context}: after {number}: {error:#}"));
        assert!(received == payload(number), "{context}: datagram {number}");
    }
    let large = merged(&capture.stop().unwrap());
    let moved = status::moved(&before, &status::counters(&net.b.netns).unwrap());
    // Of those that are not merged, some are behind some that are.
    let behind = moved.get(BEHIND).copied().unwrap_or_default();
    let counts = [
        ("rx_restored", BURST as u64),
        ("rx_split", large as u64),
        (BEHIND, behind),
    ];
    let expected = status::expected(&counts);
    assert_eq!(status::apart_from_timed(moved), expected, "{context}");
    (large, behind)
}

/// The same segments arrive together twice: as xdptun wrote them, and with the
/// flags and the window of a sender of bare data, the same in each.
#[test]
fn our_segments_are_not_merged_and_those_of_others_are_split() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    let_receiver_merge(&net);
    for family in Family::BOTH {
        let (client, server) = socket::open(&net.a, &net.b, family).unwrap();
        let ours = segments_of(&net, &client);
        let mut others = ours.clone();
        for packet in &mut others {
            packet.tcp.psh = false;
            packet.tcp.window_size = 1000;
            packet.tcp.acknowledgment_number = ours[0].tcp.acknowledgment_number;
        }
        for (name, packets, merges) in [("ours", ours, false), ("others", others, true)] {
            let context = format!("{family}, {name}");
            let (large, _) = arrive_together(&net, &server, &packets, &context);
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
    let_receiver_merge(&net);
    for family in Family::BOTH {
        let (client, server) = socket::open(&net.a, &net.b, family).unwrap();
        let ours = segments_of(&net, &client);
        // One for each 64 KiB.
        let pushed = ours.iter().filter(|packet| packet.tcp.psh).count();
        assert!((1..=2).contains(&pushed), "{family}: {pushed} with PSH");
        let (large, _) = arrive_together(&net, &server, &ours, &family.to_string());
        assert!(large > 0, "{family}");
    }
}

/// Those that are merged take a longer way than the single ones behind them.
#[test]
fn a_single_segment_does_not_overtake_merged_ones() {
    const SINGLE: u64 = 8;
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    let_receiver_merge(&net);
    for family in Family::BOTH {
        let (client, server) = socket::open(&net.a, &net.b, family).unwrap();
        let mut packets = segments_of(&net, &client);
        let (merged, single) = packets.split_at_mut(BURST - SINGLE as usize);
        for packet in &mut *merged {
            packet.tcp.psh = false;
            packet.tcp.window_size = single[0].tcp.window_size;
        }
        // The last that GRO merges has PSH, and so has each single one.
        merged.last_mut().unwrap().tcp.psh = true;
        let (large, behind) = arrive_together(&net, &server, &packets, &family.to_string());
        assert!(large > 0, "{family}");
        assert!((1..=SINGLE).contains(&behind), "{family}: {behind} behind");
    }
}
