//! `parse`: where the transport segment is, in every shape a packet can have.

#[path = "common/datagram.rs"]
mod datagram;

use datagram::{Network, network};
use etherparse::{IpNumber, Ipv6Header as Ipv6Oracle};
use proptest::prelude::*;
use xdptun_common::flow::FlowKey;
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

/// An IPv6 extension header, with the least that a parser needs of it.
#[derive(Clone, Copy, Debug)]
enum Extension {
    HopByHop(u8),
    Routing(u8),
    Destination(u8),
    Mobility(u8),
    /// Length in words, less two; at least one word of sequence number.
    Authentication(u8),
    /// Offset, reserved and more-fragments bits.
    Fragment(u16),
}

impl Extension {
    fn protocol(self) -> u8 {
        match self {
            Self::HopByHop(_) => 0,
            Self::Routing(_) => 43,
            Self::Destination(_) => 60,
            Self::Mobility(_) => 135,
            Self::Authentication(_) => 51,
            Self::Fragment(_) => 44,
        }
    }

    fn bytes(self, next: u8) -> Vec<u8> {
        let (len, units) = match self {
            Self::HopByHop(len)
            | Self::Routing(len)
            | Self::Destination(len)
            | Self::Mobility(len) => (len, (usize::from(len) + 1) * 8),
            Self::Authentication(len) => (len, (usize::from(len) + 2) * 4),
            Self::Fragment(field) => {
                let [high, low] = field.to_be_bytes();
                return vec![next, 0x77, high, low, 1, 2, 3, 4];
            }
        };
        // 0xff where a fragment header would have its field: to be left alone.
        let mut bytes = vec![0xff; units];
        bytes[0] = next;
        bytes[1] = len;
        bytes
    }
}

/// A UDP datagram behind a chain of extension headers.
fn chained(extensions: &[Extension]) -> Vec<u8> {
    let mut packet = Network::example().ipv6_datagram(PAYLOAD);
    let mut next = Protocol::UDP.0;
    let mut chain = Vec::new();
    for extension in extensions.iter().rev() {
        chain.splice(0..0, extension.bytes(next));
        next = extension.protocol();
    }
    packet[6] = next;
    let len = u16::try_from(UDP_LEN + chain.len()).expect("a short packet");
    packet[4..6].copy_from_slice(&len.to_be_bytes());
    packet.splice(40..40, chain);
    packet
}

#[test]
fn ipv6_extension_headers_are_followed() {
    use Extension::{Authentication, Destination, Fragment, HopByHop, Mobility, Routing};
    let table: &[(&[Extension], usize, Shape)] = &[
        (&[HopByHop(0)], 8, Shape::Options),
        (&[HopByHop(3)], 32, Shape::Options),
        (&[Routing(2)], 24, Shape::Options),
        (&[Destination(0)], 8, Shape::Options),
        (&[Mobility(1)], 16, Shape::Options),
        (&[Authentication(4)], 24, Shape::Options),
        (&[Authentication(1)], 12, Shape::Options),
        (
            &[HopByHop(0), Destination(1), Routing(2), Authentication(4)],
            72,
            Shape::Options,
        ),
        // An atomic fragment (RFC 6946) holds all of its datagram.
        (&[Fragment(0)], 8, Shape::Options),
        // The reserved bits do not make it anything else.
        (&[Fragment(0x0006)], 8, Shape::Options),
        (&[Fragment(0x0001)], 8, Shape::FirstFragment),
        (
            &[HopByHop(1), Fragment(1), Destination(0)],
            32,
            Shape::FirstFragment,
        ),
        (&[Fragment(0x0008)], 8, Shape::LaterFragment),
        (&[Fragment(0xfff9)], 8, Shape::LaterFragment),
        (&[Routing(0), Fragment(0x0100)], 16, Shape::LaterFragment),
    ];
    for (extensions, len, shape) in table {
        assert_eq!(
            find::<Ipv6Header>(&chained(extensions)),
            Some((Protocol::UDP, 40 + len, UDP_LEN, *shape)),
            "{extensions:?}"
        );
    }
}

/// What follows the header of a later fragment is a piece of payload, even if
/// the chain named another extension header for the first one.
#[test]
fn a_later_fragment_is_not_looked_into() {
    use Extension::{Destination, Fragment};
    let packet = chained(&[Fragment(0x0010), Destination(0)]);
    assert_eq!(
        find::<Ipv6Header>(&packet),
        Some((Protocol(60), 48, 8 + UDP_LEN, Shape::LaterFragment))
    );
}

#[test]
fn a_chain_of_eight_is_followed_and_a_longer_one_is_no_udp() {
    let longest = [Extension::Destination(0); 8];
    assert_eq!(
        find::<Ipv6Header>(&chained(&longest)),
        Some((Protocol::UDP, 40 + 64, UDP_LEN, Shape::Options))
    );
    let longer = [Extension::Destination(0); 9];
    let found = find::<Ipv6Header>(&chained(&longer)).expect("a valid header");
    assert_eq!((found.0, found.3), (Protocol(60), Shape::Options));
}

#[test]
fn extension_headers_longer_than_the_payload_are_none() {
    let mut packet = chained(&[Extension::HopByHop(1)]);
    packet[4..6].copy_from_slice(&15u16.to_be_bytes());
    assert_eq!(find::<Ipv6Header>(&packet), None);
    packet[4..6].copy_from_slice(&16u16.to_be_bytes());
    assert_eq!(
        find::<Ipv6Header>(&packet),
        Some((Protocol::UDP, 56, 0, Shape::Options))
    );
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
    use Extension::{Authentication, Fragment, HopByHop};
    let network = Network::example();
    let v4 = network.ipv4_datagram(PAYLOAD);
    for len in 0..v4.len() {
        let located = locate::<Ipv4Header>(&v4[..len], 0);
        assert_eq!(located.is_some(), len >= 20, "{len}");
        let ports = located.and_then(|located| located.ports(&v4[..len]));
        assert_eq!(ports.is_some(), len >= 24, "{len}");
    }
    let v6 = chained(&[HopByHop(1), Fragment(1), Authentication(2)]);
    for len in 0..v6.len() {
        // 40 fixed, 16 hop-by-hop, 8 fragment, 16 authentication; of the
        // datagram, the ports.
        let located = locate::<Ipv6Header>(&v6[..len], 0);
        assert_eq!(located.is_some(), len >= 40 + 16 + 8 + 16 + 4, "{len}");
        let ports = located.and_then(|located| located.ports(&v6[..len]));
        assert_eq!(ports.is_some(), located.is_some(), "{len}");
    }
    // An offset beyond any packet.
    assert!(locate::<Ipv4Header>(v4.as_slice(), usize::MAX).is_none());
    assert!(locate::<Ipv6Header>(v6.as_slice(), v6.len() + 1).is_none());
}

fn extension() -> impl Strategy<Value = Extension> {
    prop_oneof![
        (0u8..4).prop_map(Extension::HopByHop),
        (0u8..4).prop_map(Extension::Routing),
        (0u8..4).prop_map(Extension::Destination),
        (0u8..4).prop_map(Extension::Mobility),
        (1u8..6).prop_map(Extension::Authentication),
        // Whole or first: what follows is still a header.
        (0u16..2).prop_map(Extension::Fragment),
    ]
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

    /// The end of any chain is where etherparse sees it.
    #[test]
    fn any_chain_ends_where_etherparse_ends(extensions in prop::collection::vec(extension(), 1..=8)) {
        let packet = chained(&extensions);
        let (protocol, rest) =
            Ipv6Oracle::skip_all_header_extensions_in_slice(&packet[40..], IpNumber(packet[6]))
                .expect("a whole packet");
        let found = find::<Ipv6Header>(&packet).expect("a whole packet");
        prop_assert_eq!(found.0, Protocol(protocol.0));
        prop_assert_eq!(found.1, packet.len() - rest.len());
        prop_assert_eq!(found.2, rest.len());
        let fragment = extensions.iter().any(|extension| matches!(extension, Extension::Fragment(1)));
        prop_assert_eq!(found.3, if fragment { Shape::FirstFragment } else { Shape::Options });
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
