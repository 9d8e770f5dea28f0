//! Chains of IPv6 extension headers, as a packet has them and as one number.

use etherparse::{IpNumber, Ipv6Header as Ipv6Oracle};
use proptest::prelude::*;
use xdptun_common::bytes_of;
use xdptun_common::parse::{Chain, Located, Shape, follow, locate};
use xdptun_common::wire::{Ipv6Header, Protocol};

use crate::datagram::Network;
use crate::{LINK, PAYLOAD, UDP_LEN, framed};
use Extension::{
    Authentication, Destination, Fragment, HopByHop, HostIdentity, Mobility, Routing, Shim,
};

/// The identification of every fragment.
const ID: u32 = 0x0102_0304;
/// An IPv6 extension header, with the least that a parser needs of it.
#[derive(Clone, Copy, Debug)]
enum Extension {
    HopByHop(u8),
    Routing(u8),
    Destination(u8),
    Mobility(u8),
    HostIdentity(u8),
    Shim(u8),
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
            Self::HostIdentity(_) => 139,
            Self::Shim(_) => 140,
            Self::Authentication(_) => 51,
            Self::Fragment(_) => 44,
        }
    }

    fn bytes(self, next: u8) -> Vec<u8> {
        let (len, units) = match self {
            Self::HopByHop(len)
            | Self::Routing(len)
            | Self::Destination(len)
            | Self::Mobility(len)
            | Self::HostIdentity(len)
            | Self::Shim(len) => (len, (usize::from(len) + 1) * 8),
            Self::Authentication(len) => (len, (usize::from(len) + 2) * 4),
            Self::Fragment(field) => {
                let [high, low] = field.to_be_bytes();
                return [&[next, 0x77, high, low][..], &ID.to_be_bytes()].concat();
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

/// What `locate` finds, which does not depend on where the packet starts.
fn find(packet: &[u8]) -> Option<Located<Ipv6Header>> {
    let found = locate::<Ipv6Header>(packet, 0);
    let shifted = locate::<Ipv6Header>(framed(packet).as_slice(), LINK).map(|found| Located {
        offset: found.offset - LINK,
        ..found
    });
    assert_eq!(found, shifted);
    found
}

#[test]
fn chains_are_followed() {
    // The headers; their length; what they mean; where the last one starts.
    let table: &[(&[Extension], usize, Shape, usize)] = &[
        (&[HopByHop(0)], 8, Shape::Options, 0),
        (&[HopByHop(3)], 32, Shape::Options, 0),
        (&[Destination(0)], 8, Shape::Options, 0),
        (&[Destination(255)], 2048, Shape::Options, 0),
        (&[HopByHop(0), Destination(1)], 24, Shape::Options, 8),
        (
            &[HopByHop(2), Destination(0), Destination(4)],
            72,
            Shape::Options,
            32,
        ),
        (&[Routing(2)], 24, Shape::Extensions, 0),
        (&[Mobility(1)], 16, Shape::Extensions, 0),
        (&[HostIdentity(0)], 8, Shape::Extensions, 0),
        (&[Shim(1)], 16, Shape::Extensions, 0),
        (&[Authentication(4)], 24, Shape::Extensions, 0),
        (&[Authentication(1)], 12, Shape::Extensions, 0),
        (
            &[Authentication(1), Destination(0)],
            20,
            Shape::Extensions,
            12,
        ),
        (
            &[Destination(0), Authentication(1)],
            20,
            Shape::Extensions,
            8,
        ),
        (
            &[HopByHop(0), Destination(1), Routing(2), Authentication(4)],
            72,
            Shape::Extensions,
            48,
        ),
        // An atomic fragment (RFC 6946) holds all of its datagram, but its
        // header must not be lost; the reserved bits do not make it anything else.
        (&[Fragment(0)], 8, Shape::Extensions, 0),
        (&[Fragment(0x0006)], 8, Shape::Extensions, 0),
        (&[HopByHop(0), Fragment(0)], 16, Shape::Extensions, 8),
        (&[Fragment(0x0001)], 8, Shape::FirstFragment, 0),
        (
            &[HopByHop(1), Fragment(1), Destination(0)],
            32,
            Shape::FirstFragment,
            24,
        ),
        (&[Fragment(1), Routing(0)], 16, Shape::FirstFragment, 8),
        (&[Routing(0), Fragment(1)], 16, Shape::FirstFragment, 8),
        (&[Fragment(1), Fragment(0)], 16, Shape::FirstFragment, 8),
        (&[Fragment(0), Fragment(1)], 16, Shape::FirstFragment, 8),
        (&[Fragment(0x0008)], 8, Shape::LaterFragment, 0),
        (&[Fragment(0xfff9)], 8, Shape::LaterFragment, 0),
        (&[Routing(0), Fragment(0x0100)], 16, Shape::LaterFragment, 8),
    ];
    for (extensions, len, shape, last) in table {
        let found = find(&chained(extensions)).expect("a whole packet");
        assert_eq!(found.protocol, Protocol::UDP, "{extensions:?}");
        assert_eq!(found.offset, 40 + len, "{extensions:?}");
        assert_eq!(found.len, UDP_LEN, "{extensions:?}");
        assert_eq!(found.shape, *shape, "{extensions:?}");
        assert_eq!(found.last_extension, *last, "{extensions:?}");
        let is_part = matches!(shape, Shape::FirstFragment | Shape::LaterFragment);
        assert_eq!(
            found.identification,
            if is_part { ID } else { 0 },
            "{extensions:?}"
        );
    }
}

/// What the fragments of one datagram have in common: addresses and number,
/// wherever the fragment header stands.
#[test]
fn fragments_name_their_datagram() {
    let network = Network::example();
    let expected = |outbound: u8| {
        let id = &ID.to_be_bytes();
        let way = &[0, outbound, 0, 0];
        [&network.source[..], &network.destination, id, way].concat()
    };
    for extensions in [
        &[Fragment(1)][..],
        &[Fragment(0x0100)],
        &[HopByHop(3), Fragment(1), Destination(0)],
        &[Destination(1), Fragment(0x0109)],
    ] {
        let found = find(&chained(extensions)).expect("a whole packet");
        for way in [false, true] {
            let key = found.fragmented(way);
            assert_eq!(bytes_of(&key), expected(way.into()), "{extensions:?}");
        }
    }
    // A second fragment header is part of what was cut.
    let mut packet = chained(&[Fragment(1), Fragment(0)]);
    packet[40 + 8 + 4] ^= 0xff;
    let found = find(&packet).expect("a whole packet");
    assert_eq!(bytes_of(&found.fragmented(false)), expected(0));
}

/// What follows the header of a later fragment is a piece of payload, even if
/// the chain named another extension header for the first one.
#[test]
fn a_later_fragment_is_not_looked_into() {
    let found = find(&chained(&[Fragment(0x0010), Destination(0)])).expect("a whole packet");
    assert_eq!(found.protocol, Protocol::DESTINATION_OPTIONS);
    assert_eq!((found.offset, found.len), (48, 8 + UDP_LEN));
    assert_eq!(found.shape, Shape::LaterFragment);
}

#[test]
fn a_chain_of_eight_is_followed_and_a_longer_one_is_no_udp() {
    for len in [0, 255] {
        let found = find(&chained(&[Destination(len); 8])).expect("a whole packet");
        assert_eq!(found.protocol, Protocol::UDP);
        assert_eq!(found.offset, 40 + 64 * (usize::from(len) + 1));
        assert_eq!((found.len, found.shape), (UDP_LEN, Shape::Options));
    }
    let found = find(&chained(&[Destination(0); 9])).expect("a valid header");
    assert_eq!(found.protocol, Protocol::DESTINATION_OPTIONS);
    assert_eq!(found.shape, Shape::Options);
}

#[test]
fn extension_headers_longer_than_the_payload_are_none() {
    let mut packet = chained(&[HopByHop(1)]);
    packet[4..6].copy_from_slice(&15u16.to_be_bytes());
    assert_eq!(find(&packet), None);
    packet[4..6].copy_from_slice(&16u16.to_be_bytes());
    let found = find(&packet).expect("a whole chain");
    assert_eq!((found.offset, found.len), (56, 0));
}

/// A packet that ends early is never read beyond its end.
#[test]
fn truncated_chains() {
    let packet = chained(&[HopByHop(1), Fragment(1), Authentication(2)]);
    // 40 fixed, 16 hop-by-hop, 8 fragment, 16 authentication; of the datagram,
    // the ports. Of the last header, its first word tells all.
    let ports = 40 + 16 + 8 + 16 + 4;
    for len in 0..packet.len() {
        let located = locate::<Ipv6Header>(&packet[..len], 0);
        assert_eq!(located.is_some(), len >= 40 + 16 + 8 + 4, "{len}");
        let found = located.and_then(|located| located.ports(&packet[..len]));
        assert_eq!(found.is_some(), len >= ports, "{len}");
    }
    // A fragment's number is read too.
    let packet = chained(&[Fragment(1)]);
    for len in 40..packet.len() {
        let located = locate::<Ipv6Header>(&packet[..len], 0);
        assert_eq!(located.is_some(), len >= 40 + 8, "{len}");
    }
}

fn extension() -> impl Strategy<Value = Extension> {
    prop_oneof![
        (0u8..4).prop_map(HopByHop),
        (0u8..4).prop_map(Routing),
        (0u8..4).prop_map(Destination),
        (0u8..4).prop_map(Mobility),
        (0u8..4).prop_map(HostIdentity),
        (0u8..4).prop_map(Shim),
        (1u8..6).prop_map(Authentication),
        // Whole or first: what follows is still a header.
        (0u16..2).prop_map(Fragment),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Options),
        Just(Shape::Extensions),
        Just(Shape::FirstFragment),
        Just(Shape::LaterFragment),
    ]
}

/// Length in bytes of the longest chain that is followed.
const LONGEST: usize = 8 * 2048;

proptest! {
    /// The end of any chain is where etherparse sees it.
    #[test]
    fn any_chain_ends_where_etherparse_ends(extensions in prop::collection::vec(extension(), 1..=8)) {
        let packet = chained(&extensions);
        let (protocol, rest) =
            Ipv6Oracle::skip_all_header_extensions_in_slice(&packet[40..], IpNumber(packet[6]))
                .expect("a whole packet");
        let found = find(&packet).expect("a whole packet");
        prop_assert_eq!(found.protocol, Protocol(protocol.0));
        prop_assert_eq!(found.offset, packet.len() - rest.len());
        prop_assert_eq!(found.len, rest.len());
        let last = extensions.last().expect("one at least").bytes(0).len();
        prop_assert_eq!(found.last_extension + last, found.offset - 40);
        let only_options = |extension: &Extension| matches!(extension, HopByHop(_) | Destination(_));
        let shape = if extensions.iter().any(|extension| matches!(extension, Fragment(1))) {
            Shape::FirstFragment
        } else if extensions.iter().all(only_options) {
            Shape::Options
        } else {
            Shape::Extensions
        };
        prop_assert_eq!(found.shape, shape);
    }

    /// Whatever a packet has comes back out of the number it is packed into.
    #[test]
    fn a_packed_chain_is_the_chain(
        protocol: u8, shape in shape(),
        len in 1..=LONGEST / 4, last in 0..LONGEST / 4, fragment in 0..LONGEST / 4,
    ) {
        // The last header and a fragment header are inside, and not empty.
        let last = last.min(len - 1).min((LONGEST - 2048) / 4);
        let chain = Chain {
            protocol: Protocol(protocol),
            shape,
            len: len * 4,
            last: last * 4,
            fragment: fragment.min(last) * 4,
        };
        prop_assert_eq!(Chain::unpack(Chain::pack(Some(chain))), Some(chain));
    }

    /// And so do the chains of real packets.
    #[test]
    fn a_followed_chain_survives_packing(extensions in prop::collection::vec(extension(), 1..=8)) {
        let packet = chained(&extensions);
        let chain = follow(packet.as_slice(), 40, Protocol(packet[6]));
        prop_assert!(chain.is_some());
        prop_assert_eq!(Chain::unpack(Chain::pack(chain)), chain);
    }
}

#[test]
fn no_chain_is_packed_as_none() {
    assert_eq!(Chain::unpack(Chain::pack(None)), None);
    let longest = chained(&[Destination(255); 8]);
    let chain = follow(longest.as_slice(), 40, Protocol::DESTINATION_OPTIONS);
    assert_eq!(chain.map(|chain| chain.len), Some(LONGEST));
    assert_eq!(Chain::unpack(Chain::pack(chain)), chain);
}
