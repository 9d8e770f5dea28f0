//! Translation between IPv6 and IPv4, row by row of RFC 6052 and RFC 7915.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{IpFragOffset, IpNumber, Ipv4Header as V4, Ipv6Header as V6};
use proptest::prelude::*;
use xdptun_common::address::address_bytes;
use xdptun_common::nat64::address::{LENGTHS, Prefix, is_global};
use xdptun_common::nat64::chain::{Chain, follow};
use xdptun_common::nat64::pool::Pool;
use xdptun_common::nat64::{header, message};
use xdptun_common::wire::{
    FragmentHeader, IcmpHeader, Ip as _, Ipv4Header, Ipv6Header, Part, Protocol,
};
use xdptun_common::{bytes_of, read_plain};

fn prefix(text: &str, len: u32) -> Prefix {
    let address: Ipv6Addr = text.parse().unwrap();
    Prefix::new(address.octets(), len).unwrap()
}

/// RFC 6052 section 2.4.
#[test]
fn addresses_stand_where_the_prefix_says() {
    let address = Ipv4Addr::new(192, 0, 2, 33);
    for (text, len, expected) in [
        ("2001:db8::", 32, "2001:db8:c000:221::"),
        ("2001:db8:100::", 40, "2001:db8:1c0:2:21::"),
        ("2001:db8:122::", 48, "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::", 56, "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::", 64, "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::", 96, "2001:db8:122:344::192.0.2.33"),
        ("64:ff9b::", 96, "64:ff9b::192.0.2.33"),
    ] {
        let prefix = prefix(text, len);
        let expected: Ipv6Addr = expected.parse().unwrap();
        assert_eq!(Ipv6Addr::from(prefix.embed(address.octets())), expected);
        let found = prefix.extract(expected.octets());
        assert_eq!(found, Some(address.octets()), "{expected}");
    }
}

#[test]
fn what_is_no_prefix_is_refused() {
    let octets = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
    for (text, len) in [
        ("2001:db8::", 0),
        ("2001:db8::", 33),
        ("2001:db8::", 128),
        ("2001:db8::1", 96),
        ("2001:db8:0:0:100::", 96),
        ("2001:db8:1::", 32),
    ] {
        assert_eq!(Prefix::new(octets(text), len), None, "{text}/{len}");
    }
    assert!(prefix("64:ff9b::", 96).is_well_known());
    assert!(!prefix("64:ff9b:1::", 48).is_well_known());
}

#[test]
fn addresses_before_other_prefixes_are_none_of_it() {
    for len in LENGTHS {
        let address = "2001:db8:122:344::".parse::<Ipv6Addr>().unwrap().octets();
        let mut cut = [0; 16];
        let bytes = len as usize / 8;
        cut[..bytes].copy_from_slice(&address[..bytes]);
        let prefix = Prefix::new(cut, len).unwrap();
        let inside = prefix.embed([192, 0, 2, 33]);
        for at in 0..bytes {
            let mut other = inside;
            other[at] ^= 1;
            assert_eq!(prefix.extract(other), None, "/{len}, octet {at}");
        }
    }
}

/// RFC 6890 section 2.2.2.
#[test]
fn only_global_addresses_may_be_behind_the_well_known_prefix() {
    for (address, expected) in [
        ([0, 0, 0, 1], false),
        ([1, 2, 3, 4], true),
        ([9, 255, 255, 255], true),
        ([10, 0, 0, 1], false),
        ([11, 0, 0, 1], true),
        ([100, 63, 255, 255], true),
        ([100, 64, 0, 1], false),
        ([100, 127, 255, 255], false),
        ([100, 128, 0, 1], true),
        ([127, 0, 0, 1], false),
        ([169, 254, 1, 1], false),
        ([169, 253, 1, 1], true),
        ([172, 15, 0, 1], true),
        ([172, 16, 0, 1], false),
        ([172, 31, 255, 255], false),
        ([172, 32, 0, 1], true),
        ([192, 0, 0, 8], false),
        ([192, 0, 1, 1], true),
        ([192, 0, 2, 1], false),
        ([192, 167, 0, 1], true),
        ([192, 168, 0, 1], false),
        ([198, 17, 0, 1], true),
        ([198, 18, 0, 1], false),
        ([198, 19, 255, 255], false),
        ([198, 51, 100, 1], false),
        ([198, 51, 101, 1], true),
        ([203, 0, 113, 1], false),
        ([203, 0, 114, 1], true),
        ([224, 0, 0, 1], false),
        ([240, 0, 0, 1], false),
        ([255, 255, 255, 255], false),
    ] {
        assert_eq!(is_global(address), expected, "{}", Ipv4Addr::from(address));
    }
}

const SOURCES: [&str; 2] = ["100.64.0.9", "2001:db8::9"];
const DESTINATIONS: [&str; 2] = ["198.51.100.1", "64:ff9b::198.51.100.1"];

/// Source and destination of a family: 0 is IPv4, 1 is IPv6.
fn ends(family: usize) -> [[u8; 16]; 2] {
    [SOURCES, DESTINATIONS].map(|all| address_bytes(all[family].parse::<IpAddr>().unwrap()))
}

fn v4(fill: impl FnOnce(&mut V4)) -> Ipv4Header {
    let octets = |text: &str| text.parse::<Ipv4Addr>().unwrap().octets();
    let (source, destination) = (octets(SOURCES[0]), octets(DESTINATIONS[0]));
    let mut header = V4::new(100, 17, IpNumber::UDP, source, destination).unwrap();
    header.dont_fragment = false;
    fill(&mut header);
    header.header_checksum = header.calc_header_checksum();
    read_plain(&header.to_bytes()).unwrap()
}

fn v6(fill: impl FnOnce(&mut V6)) -> Ipv6Header {
    let octets = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
    let mut header = V6 {
        payload_length: 100,
        next_header: IpNumber::UDP,
        hop_limit: 17,
        source: octets(SOURCES[1]),
        destination: octets(DESTINATIONS[1]),
        ..V6::default()
    };
    fill(&mut header);
    read_plain(&header.to_bytes()).unwrap()
}

/// The header in IPv4 of a packet with `payload` bytes behind all extension headers.
fn in_v4(from: &Ipv6Header, payload: u16, part: Option<Part>) -> V4 {
    let made = header::to_v4(from, ends(0), from.protocol(), payload, part, 4711).unwrap();
    let (header, _) = V4::from_slice(bytes_of(&made)).unwrap();
    assert_eq!(header.header_checksum, header.calc_header_checksum());
    header
}

/// RFC 7915 section 5.1.
#[test]
fn every_field_of_an_ipv4_header_has_its_source() {
    let from = v6(|header| {
        header.traffic_class = 0xb9;
        header.flow_label = 0x12345.try_into().unwrap();
    });
    let made = in_v4(&from, 100, None);
    let octets = |text: &str| text.parse::<Ipv4Addr>().unwrap().octets();
    assert_eq!([made.dscp.value() << 2 | made.ecn.value()], [0xb9]);
    assert_eq!(made.total_len, 120);
    assert_eq!((made.time_to_live, made.protocol), (17, IpNumber::UDP));
    assert_eq!(made.source, octets(SOURCES[0]));
    assert_eq!(made.destination, octets(DESTINATIONS[0]));
    assert!(!made.more_fragments && made.options.is_empty());
    let icmp = v6(|header| header.next_header = IpNumber::IPV6_ICMP);
    assert_eq!(in_v4(&icmp, 8, None).protocol, IpNumber::ICMP);
    // Up to 1260 bytes routers may fragment it, so it has a number of its own.
    for (payload, df, identification) in [(1240, false, 4711), (1241, true, 0), (65515, true, 0)] {
        let made = in_v4(&v6(|_| {}), payload, None);
        assert_eq!(made.dont_fragment, df, "{payload}");
        assert_eq!(made.identification, identification, "{payload}");
        assert_eq!(made.total_len, payload + 20);
    }
    for payload in [65516, u16::MAX] {
        let made = header::to_v4(&v6(|_| {}), ends(0), Protocol::UDP, payload, None, 1);
        assert_eq!(made, None, "{payload}");
    }
    let part = Part {
        offset: 181,
        more: true,
        identification: 0xabcd_1234,
    };
    for more in [false, true] {
        let made = in_v4(&v6(|_| {}), 1400, Some(Part { more, ..part }));
        assert_eq!(made.fragment_offset.value(), 181);
        assert_eq!((made.more_fragments, made.dont_fragment), (more, false));
        assert_eq!(made.identification, 0x1234);
    }
}

/// RFC 7915 section 4.1.
#[test]
fn every_field_of_an_ipv6_header_has_its_source() {
    let from = v4(|header| {
        header.dscp = 46.try_into().unwrap();
        header.ecn = 1.try_into().unwrap();
        header.dont_fragment = true;
    });
    let (made, fragment) = header::to_v6(&from, ends(1)).unwrap();
    assert_eq!(fragment, None);
    let expected = v6(|header| header.traffic_class = 0xb9);
    assert_eq!(made, expected);
    let icmp = v4(|header| header.protocol = IpNumber::ICMP);
    let (made, _) = header::to_v6(&icmp, ends(1)).unwrap();
    assert_eq!(made.protocol(), Protocol::ICMPV6);
    let options = v4(|header| {
        header.options = [1; 8].into();
        header.total_len = 128;
    });
    let (made, _) = header::to_v6(&options, ends(1)).unwrap();
    assert_eq!(made.payload_len(), Some(100));
    // Without DF and whole it has no fragment header (RFC 8021).
    let (_, fragment) = header::to_v6(&v4(|_| {}), ends(1)).unwrap();
    assert_eq!(fragment, None);
    for (offset, more) in [(0, true), (181, true), (181, false)] {
        let from = v4(|header| {
            header.identification = 0x1234;
            header.fragment_offset = IpFragOffset::try_new(offset).unwrap();
            header.more_fragments = more;
        });
        let (made, fragment) = header::to_v6(&from, ends(1)).unwrap();
        let part = Part {
            offset,
            more,
            identification: 0x1234,
        };
        assert_eq!(fragment, Some(FragmentHeader::new(Protocol::UDP, part)));
        assert_eq!(made.protocol(), Protocol::IPV6_FRAGMENT);
        assert_eq!(made.payload_len(), Some(108));
    }
    let contradictory = v4(|header| header.total_len = 19);
    assert_eq!(header::to_v6(&contradictory, ends(1)), None);
}

fn icmp(kind: u8, code: u8, rest: u32) -> IcmpHeader {
    IcmpHeader::new(kind, code, rest)
}

/// RFC 7915 section 4.2: type and code of ICMP, and those of ICMPv6 if there is such a message.
#[test]
fn every_icmp_message() {
    /// Types that have rows.
    const NAMED: [u8; 5] = [0, 3, 8, 11, 12];
    let unreachable = [
        (0, Some((1, 0))),
        (1, Some((1, 0))),
        (2, Some((4, 1))),
        (3, Some((1, 4))),
        (4, Some((2, 0))),
        (5, Some((1, 0))),
        (6, Some((1, 0))),
        (7, Some((1, 0))),
        (8, Some((1, 0))),
        (9, Some((1, 1))),
        (10, Some((1, 1))),
        (11, Some((1, 0))),
        (12, Some((1, 0))),
        (13, Some((1, 1))),
        (14, None),
        (15, Some((1, 1))),
        (16, None),
        (255, None),
    ];
    let others = [
        (8, 0, Some((128, 0))),
        (0, 0, Some((129, 0))),
        (11, 0, Some((3, 0))),
        (11, 1, Some((3, 1))),
        (12, 0, Some((4, 0))),
        (12, 1, None),
        (12, 2, Some((4, 0))),
        (12, 3, None),
    ];
    let rows = unreachable.map(|(code, becomes)| (3, code, becomes));
    for (kind, code, becomes) in rows.into_iter().chain(others) {
        let made = message::to_v6(&icmp(kind, code, 0), 1500, 1500);
        let made = made.map(|made| made.kind_and_code().into());
        assert_eq!(made, becomes, "type {kind}, code {code}");
    }
    // Source quench, redirect, queries other than echo, and what is not known.
    for kind in (0..=u8::MAX).filter(|kind| !NAMED.contains(kind)) {
        assert_eq!(
            message::to_v6(&icmp(kind, 0, 0), 1500, 1500),
            None,
            "{kind}"
        );
    }
}

/// RFC 7915 section 5.2.
#[test]
fn every_icmpv6_message() {
    /// Types that have rows.
    const NAMED: [u8; 6] = [1, 2, 3, 4, 128, 129];
    for (kind, code, becomes) in [
        (128, 0, Some((8, 0))),
        (129, 0, Some((0, 0))),
        (1, 0, Some((3, 1))),
        (1, 1, Some((3, 10))),
        (1, 2, Some((3, 1))),
        (1, 3, Some((3, 1))),
        (1, 4, Some((3, 3))),
        (1, 5, None),
        (1, 255, None),
        (2, 0, Some((3, 4))),
        (3, 0, Some((11, 0))),
        (3, 1, Some((11, 1))),
        (4, 0, Some((12, 0))),
        (4, 1, Some((3, 2))),
        (4, 2, None),
        (4, 3, None),
    ] {
        let made = message::to_v4(&icmp(kind, code, 0), 1500);
        let made = made.map(|made| made.kind_and_code().into());
        assert_eq!(made, becomes, "type {kind}, code {code}");
    }
    for kind in (0..=u8::MAX).filter(|kind| !NAMED.contains(kind)) {
        assert_eq!(message::to_v4(&icmp(kind, 0, 0), 1500), None, "{kind}");
    }
}

/// Identifier and sequence number of a query stay; what errors do not use is zero.
#[test]
fn the_second_half_of_a_message() {
    let rest = 0x1234_5678;
    for (kind, code, becomes) in [(8, 0, rest), (0, 0, rest), (3, 0, 0), (11, 0, 0)] {
        let made = message::to_v6(&icmp(kind, code, rest), 1500, 1500).unwrap();
        assert_eq!(made.rest(), becomes, "type {kind}");
    }
    for (kind, code, becomes) in [
        (128, 0, rest),
        (129, 0, rest),
        (1, 0, 0),
        (3, 0, 0),
        (4, 1, 0),
    ] {
        let made = message::to_v4(&icmp(kind, code, rest), 1500).unwrap();
        assert_eq!(made.rest(), becomes, "type {kind}");
    }
}

/// Figures 3 and 6: which byte of the header an error is about.
#[test]
fn every_pointer() {
    /// The bytes that a row of a figure names, and what the field becomes.
    type Row = (std::ops::RangeInclusive<u32>, u32);
    const FIGURE_3: [Row; 7] = [
        (0..=0, 0),
        (1..=1, 1),
        (2..=3, 4),
        (8..=8, 7),
        (9..=9, 6),
        (12..=15, 8),
        (16..=19, 24),
    ];
    const FIGURE_6: [Row; 7] = [
        (0..=0, 0),
        (1..=1, 1),
        (4..=5, 2),
        (6..=6, 9),
        (7..=7, 8),
        (8..=23, 12),
        (24..=39, 16),
    ];
    let expected = |rows: &[Row], at: u32| {
        let row = rows.iter().find(|(bytes, _)| bytes.contains(&at));
        row.map(|(_, becomes)| *becomes)
    };
    for at in 0..=255 {
        let made = message::to_v6(&icmp(12, 0, at << 24), 1500, 1500);
        assert_eq!(
            made.map(|made| made.rest()),
            expected(&FIGURE_3, at),
            "{at}"
        );
    }
    // A protocol that the host does not know is named by its place.
    let unknown = message::to_v6(&icmp(3, 2, 0), 1500, 1500).unwrap();
    assert_eq!(unknown.rest(), 6);
    for at in (0..300).chain([u32::MAX]) {
        let made = message::to_v4(&icmp(4, 0, at), 1500);
        let made = made.map(|made| made.rest() >> 24);
        assert_eq!(made, expected(&FIGURE_6, at), "{at}");
    }
}

/// The MTU of an error is that of a packet of the other family, and not more than the next hops
/// take.
#[test]
fn the_mtu_of_an_error() {
    for (named, quoted, hops, becomes) in [
        (1400, 1500, 1500, 1420),
        (1480, 1500, 1500, 1500),
        (1500, 1500, 1500, 1500),
        (1400, 1500, 1300, 1300),
        // An IPv6 host sends nothing smaller (RFC 8201 section 4).
        (576, 1500, 1500, 1280),
        (68, 1500, 1500, 1280),
        // Routers of before RFC 1191 name none.
        (0, 1500, 1500, 1500),
        (0, 1492, 1500, 1280),
        (0, 9000, 65535, 8186),
        (0, 60000, 65535, 32020),
    ] {
        let made = message::to_v6(&icmp(3, 4, named), quoted, hops).unwrap();
        assert_eq!(made.rest(), becomes, "{named} of {quoted}, {hops}");
    }
    for (named, hops, becomes) in [
        (1500, 1500, 1480),
        (1400, 1500, 1380),
        (1500, 1300, 1300),
        (1280, 1500, 1260),
        (0, 1500, 68),
        (70, 1500, 68),
        (u32::MAX, u32::MAX, 65535),
    ] {
        let made = message::to_v4(&icmp(2, 0, named), hops).unwrap();
        assert_eq!(made.rest(), becomes, "{named}, {hops}");
    }
}

proptest! {
    /// Whatever prefix: an address comes back, and so it does with anything behind it.
    #[test]
    fn an_embedded_address_comes_back(
        bytes: [u8; 16],
        address: [u8; 4],
        len in prop::sample::select(&LENGTHS[..]),
        suffix: [u8; 16],
    ) {
        let mut cut = [0; 16];
        cut[..len as usize / 8].copy_from_slice(&bytes[..len as usize / 8]);
        cut[8] = 0;
        let prefix = Prefix::new(cut, len).unwrap();
        let mut embedded = prefix.embed(address);
        prop_assert_eq!(embedded[8], 0);
        prop_assert_eq!(prefix.extract(embedded), Some(address));
        let behind = match len {
            32 => 9,
            96 => 16,
            len => len as usize / 8 + 5,
        };
        embedded[behind..].copy_from_slice(&suffix[behind..]);
        prop_assert_eq!(prefix.extract(embedded), Some(address));
    }

    /// There and back a fragment is the same, and what it says of itself.
    #[test]
    fn a_fragment_stays_the_same(
        offset in 0..0x2000_u16,
        more: bool,
        identification: u16,
        payload in 8..1400_u16,
        class: u8,
    ) {
        prop_assume!(offset > 0 || more);
        let part = Part { offset, more, identification: identification.into() };
        let from = v6(|header| header.traffic_class = class);
        let made = header::to_v4(&from, ends(0), Protocol::UDP, payload, Some(part), 1).unwrap();
        prop_assert!(made.is_intact());
        let (back, fragment) = header::to_v6(&made, ends(1)).unwrap();
        let fragment = fragment.unwrap();
        prop_assert_eq!((fragment.next(), fragment.part()), (Protocol::UDP, part));
        let expected = from.with_payload(Protocol::IPV6_FRAGMENT, payload + 8);
        prop_assert_eq!(back, expected);
    }
}

/// An extension header of `units` times eight bytes more than eight.
fn extension(next: u8, units: u8, fourth: u8) -> Vec<u8> {
    let mut header = vec![0; (usize::from(units) + 1) * 8];
    header[..4].copy_from_slice(&[next, units, 0, fourth]);
    header
}

/// RFC 7915 sections 5.1 and 5.1.1.
#[test]
fn extension_headers_are_left_out_or_forbid_it() {
    let fragment = |next| extension(next, 0, 0);
    let [
        hop_by_hop,
        routing,
        fragmented,
        authentication,
        options,
        udp,
    ] = [0, 43, 44, 51, 60, 17];
    for (headers, first, expected) in [
        (vec![], udp, Some((udp, 0, None))),
        (vec![extension(udp, 0, 0)], hop_by_hop, Some((udp, 8, None))),
        (vec![extension(udp, 3, 0)], options, Some((udp, 32, None))),
        (vec![extension(udp, 2, 0)], routing, Some((udp, 24, None))),
        (vec![extension(udp, 2, 1)], routing, None),
        (vec![extension(udp, 2, 0)], authentication, None),
        (vec![fragment(udp)], fragmented, Some((udp, 8, Some(0)))),
        (
            vec![extension(fragmented, 1, 0), fragment(udp)],
            options,
            Some((udp, 24, Some(16))),
        ),
        (
            vec![fragment(options), extension(udp, 0, 0)],
            fragmented,
            None,
        ),
        (vec![fragment(fragmented), fragment(udp)], fragmented, None),
        (vec![extension(options, 0, 0)], options, None),
        (vec![extension(options, 0, 0); 7], options, None),
        (
            vec![extension(options, 40, 0), extension(udp, 0, 0)],
            options,
            None,
        ),
    ] {
        let packet = [vec![0xff; 40], headers.concat()].concat();
        let found = follow(&packet[..], 40, Protocol(first));
        let expected = expected.map(|(protocol, len, fragment)| Chain {
            protocol: Protocol(protocol),
            len,
            fragment,
        });
        assert_eq!(found, expected, "{first}: {headers:?}");
        assert_eq!(Chain::unpack(Chain::pack(found)), found);
    }
}

/// Every address of a pool that clients can have is lent, whoever asks, and no other.
#[test]
fn a_pool_lends_each_of_its_addresses() {
    for prefix in 16..=30 {
        let pool = Pool::new([100, 64, 0, 0], prefix).unwrap();
        let size = 1_u32 << (32 - prefix);
        let first = u32::from_be_bytes([100, 64, 0, 0]);
        let lent = (first..first + size).filter(|one| pool.lends(one.to_be_bytes()));
        assert_eq!(lent.count() as u32, pool.clients(), "/{prefix}");
        // Double hashing meets each once.
        let client = [7; 16];
        let mut found = std::collections::BTreeSet::new();
        for attempt in 0..size {
            let Some(address) = pool.candidate(client, [5, 6], attempt) else {
                continue;
            };
            assert!(pool.lends(address) && address != pool.own());
            assert!(found.insert(address), "{address:?} twice");
        }
        assert_eq!(found.len() as u32, pool.clients(), "/{prefix}");
    }
    assert_eq!(Pool::new([100, 64, 0, 0], 15), None);
    assert_eq!(Pool::new([100, 64, 0, 0], 31), None);
    assert_eq!(Pool::new([100, 64, 0, 1], 16), None);
}

proptest! {
    #[test]
    fn a_client_that_comes_back_asks_for_the_same_address(client: [u8; 16], key: [u64; 2]) {
        let pool = Pool::new([100, 64, 0, 0], 16).unwrap();
        let first = |key| (0..4).find_map(|attempt| pool.candidate(client, key, attempt));
        prop_assert_eq!(first(key), first(key));
        prop_assert!(first(key).is_some_and(|address| pool.has(address)));
    }
}
