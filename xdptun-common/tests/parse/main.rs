//! `parse`: where the transport segment is, in every shape a packet can have.

mod chain;
#[path = "../common/datagram.rs"]
mod datagram;

use datagram::{Network, network};
use proptest::prelude::*;
use xdptun_common::bytes_of;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::parse::{Located, Shape, locate};
use xdptun_common::wire::{Ip, Ipv4Header, Ipv6Header, Protocol};

const PAYLOAD: &[u8] = b"twelve bytes";
const UDP_LEN: usize = 8 + PAYLOAD.len();

/// Bytes of a link header that stand before the packet.
const LINK: usize = 14;

fn framed(packet: &[u8]) -> Vec<u8> {
    [&[0xee; LINK][..], packet].concat()
}

/// What is compared of a [`Located`]; offsets from the start of the IP header.
type Found = (Protocol, usize, usize, Shape);

fn find<I: Ip>(packet: &[u8]) -> Option<Found> {
    let found = locate::<I>(packet, 0);
    // The offset of the packet in its frame adds to the offset of the segment.
    let frame = framed(packet);
    let shifted = locate::<I>(frame.as_slice(), LINK);
    let summary =
        |found: Located<I>, from| (found.protocol, found.offset - from, found.len, found.shape);
    let found = found.map(|found| summary(found, 0));
    assert_eq!(found, shifted.map(|found| summary(found, LINK)));
    found
}

#[test]
fn a_plain_datagram() {
    let network = Network::example();
    assert_eq!(
        find::<Ipv4Header>(&network.ipv4_datagram(PAYLOAD)),
        Some((Protocol::UDP, 20, UDP_LEN, Shape::Plain))
    );
    assert_eq!(
        find::<Ipv6Header>(&network.ipv6_datagram(PAYLOAD)),
        Some((Protocol::UDP, 40, UDP_LEN, Shape::Plain))
    );
}

#[test]
fn ports_and_flow_in_both_directions() {
    let network = Network::example();
    let packet = framed(&network.ipv4_datagram(PAYLOAD));
    let located = locate::<Ipv4Header>(packet.as_slice(), LINK).expect("a plain datagram");
    let ports = located
        .ports(packet.as_slice())
        .expect("a whole UDP header");
    assert_eq!(ports, (51820, 8000));
    let flow = FlowKey::new(
        "10.1.2.3:51820".parse().expect("an address"),
        "192.168.7.9:8000".parse().expect("an address"),
    );
    assert_eq!(located.outbound(ports), flow);
    assert_eq!(located.inbound(ports), flow.reversed());
    assert!(flow.is_ipv4());

    let packet = network.ipv6_datagram(PAYLOAD);
    let located = locate::<Ipv6Header>(packet.as_slice(), 0).expect("a plain datagram");
    let flow = FlowKey::new(
        "[2001:db8::a01:203]:51820".parse().expect("an address"),
        "[2001:db8::c0a8:709]:8000".parse().expect("an address"),
    );
    assert_eq!(located.outbound(ports), flow);
    assert_eq!(located.inbound(ports), flow.reversed());
    assert!(!flow.is_ipv4());
}

/// Short Ethernet frames are padded to 60 bytes; the IP header tells the truth.
#[test]
fn padding_of_a_short_frame_is_not_payload() {
    let network = Network::example();
    for len in 0..18 {
        let payload = vec![0x55; len];
        let mut packet = network.ipv4_datagram(&payload);
        packet.resize(46, 0);
        assert_eq!(
            find::<Ipv4Header>(&packet),
            Some((Protocol::UDP, 20, 8 + len, Shape::Plain))
        );
        let mut packet = network.ipv6_datagram(&payload);
        packet.resize(packet.len() + 10, 0);
        assert_eq!(
            find::<Ipv6Header>(&packet),
            Some((Protocol::UDP, 40, 8 + len, Shape::Plain))
        );
    }
}

#[test]
fn ipv4_options_move_the_segment() {
    for words in 1u8..=10 {
        let options = usize::from(words) * 4;
        let mut packet = Network::example().ipv4_datagram(PAYLOAD);
        packet.splice(20..20, vec![1; options]);
        packet[0] = 0x45 + words;
        packet[3] += words * 4;
        assert_eq!(
            find::<Ipv4Header>(&packet),
            Some((Protocol::UDP, 20 + options, UDP_LEN, Shape::Options))
        );
    }
}

#[test]
fn ipv4_fragments() {
    // Flags and offset; reserved and "don't fragment" bits do not make a fragment.
    let table = [
        (0x0000, Shape::Plain),
        (0x4000, Shape::Plain),
        (0x8000, Shape::Plain),
        (0x2000, Shape::FirstFragment),
        (0x6000, Shape::FirstFragment),
        (0x0001, Shape::LaterFragment),
        (0x1fff, Shape::LaterFragment),
        (0x2001, Shape::LaterFragment),
        (0x3000, Shape::LaterFragment),
    ];
    for (field, shape) in table {
        let mut packet = Network::example().ipv4_datagram(PAYLOAD);
        packet[6..8].copy_from_slice(&u16::to_be_bytes(field));
        assert_eq!(
            find::<Ipv4Header>(&packet),
            Some((Protocol::UDP, 20, UDP_LEN, shape)),
            "{field:#06x}"
        );
    }
    // A fragment with options is a fragment in the first place.
    let mut packet = Network::example().ipv4_datagram(PAYLOAD);
    packet.splice(20..20, [1; 4]);
    packet[0] = 0x46;
    packet[3] += 4;
    packet[6] = 0x20;
    assert_eq!(
        find::<Ipv4Header>(&packet),
        Some((Protocol::UDP, 24, UDP_LEN, Shape::FirstFragment))
    );
}

/// What the fragments of one datagram have in common, and those of two do not.
#[test]
fn ipv4_fragments_name_their_datagram() {
    let fragment = |field: u16, network: &Network| {
        let mut packet = network.ipv4_datagram(PAYLOAD);
        packet[6..8].copy_from_slice(&field.to_be_bytes());
        let located = locate::<Ipv4Header>(packet.as_slice(), 0).expect("a fragment");
        (located.identification, located.fragmented(true))
    };
    let network = Network::example();
    let first = fragment(0x2000, &network);
    assert_eq!(first.0, 0x1234);
    let [.., a, b, c, d] = network.source;
    let [.., e, f, g, h] = network.destination;
    let expected = [
        &[0; 10][..],
        &[0xff, 0xff, a, b, c, d],
        &[0; 10],
        &[0xff, 0xff, e, f, g, h],
        &[0, 0, 0x12, 0x34],
        &[17, 1, 0, 0],
    ];
    assert_eq!(bytes_of(&first.1), expected.concat());
    for field in [0x2001, 0x3fff, 0x0001] {
        assert_eq!(fragment(field, &network), first, "{field:#06x}");
    }
    let others: [fn(&mut Network); 3] = [
        |network| network.label += 1,
        |network| network.source[15] ^= 1,
        |network| network.destination[12] ^= 1,
    ];
    for change in others {
        let mut other = Network::example();
        change(&mut other);
        assert_ne!(fragment(0x2001, &other).1, first.1);
    }
    // A whole packet is part of none.
    assert_eq!(fragment(0x4000, &network).0, 0);
}

#[test]
fn a_header_that_contradicts_itself_is_none() {
    let v4 = Network::example().ipv4_datagram(PAYLOAD);
    let v6 = Network::example().ipv6_datagram(PAYLOAD);
    let changed = |packet: &[u8], at: usize, value: u8| {
        let mut packet = packet.to_vec();
        packet[at] = value;
        packet
    };
    for header_words in 0..5 {
        assert_eq!(
            find::<Ipv4Header>(&changed(&v4, 0, 0x40 | header_words)),
            None
        );
    }
    for version in (0..16).filter(|version| *version != 4) {
        assert_eq!(find::<Ipv4Header>(&changed(&v4, 0, version << 4 | 5)), None);
    }
    for version in (0..16).filter(|version| *version != 6) {
        assert_eq!(find::<Ipv6Header>(&changed(&v6, 0, version << 4)), None);
    }
    // A total length shorter than the header.
    assert_eq!(find::<Ipv4Header>(&changed(&v4, 3, 19)), None);
    let empty = find::<Ipv4Header>(&changed(&v4, 3, 20));
    assert_eq!(empty, Some((Protocol::UDP, 20, 0, Shape::Plain)));
}

/// IPv4 has no extension headers: number 51, 60 or 0 there is a protocol.
#[test]
fn ipv4_protocols_are_not_extension_headers() {
    for protocol in [0, 43, 44, 51, 60] {
        let mut packet = Network::example().ipv4_datagram(PAYLOAD);
        packet[9] = protocol;
        assert_eq!(
            find::<Ipv4Header>(&packet),
            Some((Protocol(protocol), 20, UDP_LEN, Shape::Plain))
        );
    }
}

/// A packet that ends early is never read beyond its end; headers that are
/// whole are still found.
#[test]
fn truncated_packets() {
    let packet = Network::example().ipv4_datagram(PAYLOAD);
    for len in 0..packet.len() {
        let located = locate::<Ipv4Header>(&packet[..len], 0);
        assert_eq!(located.is_some(), len >= 20, "{len}");
        let ports = located.and_then(|located| located.ports(&packet[..len]));
        assert_eq!(ports.is_some(), len >= 24, "{len}");
    }
    // An offset beyond any packet.
    assert!(locate::<Ipv4Header>(packet.as_slice(), usize::MAX).is_none());
    assert!(locate::<Ipv6Header>(packet.as_slice(), packet.len() + 1).is_none());
}

proptest! {
    #[test]
    fn addresses_and_ports_are_those_of_the_packet(network in network()) {
        let packet = network.ipv6_datagram(PAYLOAD);
        let located = locate::<Ipv6Header>(packet.as_slice(), 0).expect("a plain datagram");
        prop_assert_eq!(located.ip.source(), network.source);
        prop_assert_eq!(located.ip.destination(), network.destination);
        prop_assert_eq!(located.ports(packet.as_slice()), Some(network.ports));

        let packet = network.ipv4_datagram(PAYLOAD);
        let located = locate::<Ipv4Header>(packet.as_slice(), 0).expect("a plain datagram");
        prop_assert_eq!(&located.ip.source()[12..], &network.source[12..]);
        prop_assert_eq!(&located.ip.destination()[12..], &network.destination[12..]);
        prop_assert_eq!(located.ports(packet.as_slice()), Some(network.ports));
    }

    /// Whatever the bytes: no panic, and no segment that starts within the IP header.
    #[test]
    fn noise_is_survived(mut bytes in prop::collection::vec(any::<u8>(), 0..200), l3 in 0usize..220, next: prop::sample::Index) {
        if let Some(first) = bytes.get_mut(l3) {
            // Half of the noise gets past the version check, and on into a chain.
            *first = if *first & 1 == 0 { 0x45 } else { 0x60 };
            if let Some(protocol) = bytes.get_mut(l3 + 6) {
                *protocol = [0, 43, 44, 51, 60, 135][next.index(6)];
            }
        }
        if let Some(located) = locate::<Ipv4Header>(bytes.as_slice(), l3) {
            prop_assert!(located.offset >= l3 + 20 && located.offset <= l3 + 60);
            prop_assert!(located.len <= 65_515);
            let _ = located.ports(bytes.as_slice());
        }
        if let Some(located) = locate::<Ipv6Header>(bytes.as_slice(), l3) {
            prop_assert!(located.offset >= l3 + 40);
            prop_assert!(located.offset - l3 - 40 + located.len <= 65_535);
            let _ = located.ports(bytes.as_slice());
        }
    }
}
