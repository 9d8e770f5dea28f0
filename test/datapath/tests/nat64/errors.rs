//! ICMP errors, with the packet inside. Types and codes are rows of `xdptun-common/tests/nat64.rs`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::IpNumber;
use xdptun_common::nat64::outcome::Outcome;
use xdptun_common::nat64::translator::Translator;
use xdptun_test_datapath::nat64::{Nat64, translator};
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{Message, Packet, Skb, flags};

use crate::{Ends, V4, V6, client};

/// A router between this host and the server.
const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 9, 1);

/// An error in a version.
fn error([kind, code]: [u8; 2], rest: u32, body: Vec<u8>, [from, to]: [IpAddr; 2]) -> Packet {
    let message = Message {
        kind,
        code,
        rest,
        body,
    };
    let packet = message.packet(from, to);
    packet.link_to([9; 6]).link_from([8; 6])
}

/// What a client has sent, in a version, and how much of each an error quotes.
fn sent(ends: &Ends, version: usize) -> [(Packet, usize); 4] {
    let datagram = ends.to_server(version, 4000, 53).payload(payload(1300));
    let datagram = datagram.ttl(3);
    let segment = datagram.clone().segment(flags::DATA, 7, 9);
    [
        (datagram.clone(), 8),
        (datagram, 38),
        (segment.clone(), 8),
        (segment, 50),
    ]
}

#[test]
fn errors_reach_the_client_with_its_own_packet_inside() {
    let (mut nat64, ends) = Ends::new();
    for (kind_v4, rest_v4, kind_v6, rest_v6) in [
        ([3, 3], 0, [1, 4], 0),
        ([3, 1], 0, [1, 0], 0),
        ([3, 13], 0, [1, 1], 0),
        ([3, 4], 1400, [2, 0], 1420),
        ([3, 2], 0, [4, 1], 6),
        ([11, 0], 0, [3, 0], 0),
        ([12, 0], 8 << 24, [4, 0], 7),
    ] {
        for from in [ROUTER, crate::SERVER] {
            let rows = sent(&ends, V4).into_iter().zip(sent(&ends, V6));
            for ((inner_v4, len), (inner_v6, _)) in rows {
                let met = error(
                    kind_v4,
                    rest_v4,
                    inner_v4.quote(len),
                    [from.into(), ends.client[V4]],
                );
                let expected = error(
                    kind_v6,
                    rest_v6,
                    inner_v6.quote(len),
                    [nat64.v6(from), ends.client[V6]],
                );
                nat64
                    .meets(met.tos(0xc0).ttl(61))
                    .becomes(expected.tos(0xc0).ttl(61), &["to_v6_error"]);
            }
        }
    }
}

#[test]
fn errors_of_a_client_reach_the_server() {
    let (mut nat64, ends) = Ends::new();
    for (kind_v6, rest_v6, kind_v4, rest_v4) in [
        ([1, 4], 0, [3, 3], 0),
        ([1, 1], 0, [3, 10], 0),
        ([2, 0], 1400, [3, 4], 1380),
        ([3, 1], 0, [11, 1], 0),
        ([4, 0], 7, [12, 0], 8 << 24),
    ] {
        let inner = |version| {
            let packet = ends.to_client(version, 53, 4000).payload(payload(1300));
            packet.ttl(3).quote(100)
        };
        let met = error(
            kind_v6,
            rest_v6,
            inner(V6),
            [ends.client[V6], ends.server[V6]],
        );
        let expected = error(
            kind_v4,
            rest_v4,
            inner(V4),
            [ends.client[V4], ends.server[V4]],
        );
        let found = nat64.meets(met).made(&["to_v4_error"]);
        assert_eq!(found, like(expected, &found), "{kind_v6:?}");
    }
}

/// The packet with DF and identification as a small one of IPv6 gets them.
fn like(packet: Packet, found: &[u8]) -> Vec<u8> {
    let identification = u16::from_be_bytes([found[18], found[19]]);
    packet.without_df().identified(identification).bytes()
}

#[test]
fn errors_about_an_echo_have_it_inside() {
    let (mut nat64, ends) = Ends::new();
    let echo = |version: usize| {
        let echo = Message {
            kind: [8, 128][version],
            code: 0,
            rest: 0x1234_0007,
            body: payload(30),
        };
        let packet = echo.packet(ends.client[version], ends.server[version]);
        packet.ttl(1).bytes()[14..].to_vec()
    };
    let met = error([11, 0], 0, echo(V4), [ROUTER.into(), ends.client[V4]]);
    let expected = error([3, 0], 0, echo(V6), [nat64.v6(ROUTER), ends.client[V6]]);
    nat64.meets(met).becomes(expected, &["to_v6_error"]);
}

#[test]
fn headers_inside_have_options_and_fragments() {
    let (mut nat64, ends) = Ends::new();
    let inner = |version| ends.to_server(version, 4000, 53).payload(payload(64));
    let from_router =
        |kind, body, version: usize, router| error(kind, 0, body, [router, ends.client[version]]);
    let router = nat64.v6(ROUTER);
    for words in [1, 5, 10] {
        let met = inner(V4).ip_options(words).quote(8);
        let met = from_router([3, 3], met, V4, ROUTER.into());
        let expected = from_router([1, 4], inner(V6).quote(8), V6, router);
        nat64
            .meets(met.ip_options(words))
            .becomes(expected, &["to_v6_error"]);
    }
    let met = inner(V4).fragment_of(0x4321, 0, true).quote(8);
    let met = from_router([3, 3], met, V4, ROUTER.into());
    let expected = inner(V6).fragment_of(0x4321, 0, true).quote(8);
    let expected = from_router([1, 4], expected, V6, router);
    nat64.meets(met).becomes(expected, &["to_v6_error"]);
}

/// RFC 4884 section 4: what stands behind the packet inside is another thing.
#[test]
fn extensions_of_an_error_are_cut_off() {
    let (mut nat64, ends) = Ends::new();
    let inner = |version| ends.to_server(version, 4000, 53).payload(payload(200));
    // 128 bytes of the packet, and twelve of an extension.
    let body = [
        inner(V4).quote(108),
        vec![0x20, 0, 0, 0, 0, 8, 1, 1, 1, 2, 3, 4],
    ]
    .concat();
    let met = error([11, 0], 32 << 16, body, [ROUTER.into(), ends.client[V4]]);
    let expected = error(
        [3, 0],
        0,
        inner(V6).quote(108),
        [nat64.v6(ROUTER), ends.client[V6]],
    );
    nat64.meets(met).becomes(expected, &["to_v6_error"]);
}

/// Captures show what was dropped.
#[test]
fn a_dropped_error_keeps_its_extension() {
    let (mut nat64, ends) = Ends::new();
    for version in [V4, V6] {
        let (from, to) = match version {
            V4 => (ends.client[V4], ends.server[V4]),
            _ => (ends.server[V6], ends.client[V6]),
        };
        let inner = Packet::other(from, to, IpNumber::GRE).payload(payload(160));
        let mut body = inner.without_link().bytes();
        body.truncate(128);
        body.extend([0x20, 0, 0, 0, 0, 8, 1, 1, 1, 2, 3, 4]);
        let (kind, rest) = match version {
            V4 => ([11, 0], 32 << 16),
            _ => ([3, 0], 16 << 24),
        };
        let met = error(kind, rest, body, [to, from]).bytes();
        nat64.moved();
        let (_, after) = nat64.run(&met, Skb::default());
        let dropped = ["to_v6_drop_message", "to_v4_drop_message"][version];
        assert_eq!(nat64.moved(), [(dropped, 1)].into());
        assert_eq!(after, met, "{dropped}");
    }
}

/// RFC 6791 section 3.
#[test]
fn errors_of_private_routers_come_from_the_device() {
    let strict = Translator {
        only_global: 1,
        ..translator()
    };
    let (mut nat64, ends) = Ends::new();
    nat64.set(strict);
    let router = IpAddr::from([10, 9, 9, 9]);
    let inner = |version| ends.to_server(version, 4000, 53).quote(8);
    let met = error([11, 0], 0, inner(V4), [router, ends.client[V4]]);
    let own = nat64.v6(Ipv4Addr::new(100, 64, 0, 1));
    let expected = error([3, 0], 0, inner(V6), [own, ends.client[V6]]);
    nat64.meets(met).becomes(expected, &["to_v6_error"]);
}

/// RFC 6791 section 4.
#[test]
fn errors_of_routers_of_ipv6_come_from_the_device() {
    let (mut nat64, ends) = Ends::new();
    let router: Ipv6Addr = "fd00:6::1".parse().unwrap();
    let inner = |version| {
        ends.to_client(version, 53, 4000)
            .payload(payload(1300))
            .quote(8)
    };
    let met = error([3, 0], 0, inner(V6), [router.into(), ends.server[V6]]);
    let own = Ipv4Addr::new(100, 64, 0, 1);
    let expected = error([11, 0], 0, inner(V4), [own.into(), ends.server[V4]]);
    let found = nat64.meets(met).made(&["to_v4_error"]);
    assert_eq!(found, like(expected, &found));
}

#[test]
fn errors_about_other_packets_are_dropped() {
    let (mut nat64, ends) = Ends::new();
    let quoted = ends.to_server(V4, 4000, 53).quote(8);
    let other = Ends::of(&mut nat64, client(10));
    let elsewhere = error([3, 3], 0, quoted, [ROUTER.into(), other.client[V4]]);
    nat64.meets(elsewhere).is_dropped(Outcome::ToV6DropMessage);
    let nobody = IpAddr::from([100, 64, 0, 250]);
    let quoted = Packet::datagram((nobody, 4000).into(), (ends.server[V4], 53).into());
    let about_nobody = error([3, 3], 0, quoted.quote(8), [ROUTER.into(), nobody]);
    nat64
        .meets(about_nobody)
        .is_dropped(Outcome::ToV6DropUnknown);
    let quoted = ends.to_client(V6, 53, 4000).quote(8);
    let elsewhere = error([1, 4], 0, quoted, [ends.client[V6], nat64.v6(ROUTER)]);
    nat64.meets(elsewhere).is_dropped(Outcome::ToV4DropMessage);
    let stranger: Ipv6Addr = "fd00:6::77".parse().unwrap();
    let quoted = Packet::datagram((ends.server[V6], 53).into(), (stranger, 4000).into());
    let about_nobody = error(
        [1, 4],
        0,
        quoted.quote(8),
        [ends.client[V6], ends.server[V6]],
    );
    nat64
        .meets(about_nobody)
        .is_dropped(Outcome::ToV4DropMessage);
}

/// RFC 7915 sections 4.3 and 5.3: nothing is told about an error.
#[test]
fn errors_about_errors_are_dropped() {
    let (mut nat64, ends) = Ends::new();
    let unreachable = |kind, from: IpAddr, to: IpAddr| {
        let inner = error([kind, 3], 0, payload(40), [from, to]);
        inner.bytes()[14..].to_vec()
    };
    let inner = unreachable(3, ends.client[V4], ends.server[V4]);
    let met = error([3, 3], 0, inner, [ROUTER.into(), ends.client[V4]]);
    nat64.meets(met).is_dropped(Outcome::ToV6DropMessage);
    let inner = unreachable(1, ends.server[V6], ends.client[V6]);
    let met = error([1, 4], 0, inner, [ends.client[V6], ends.server[V6]]);
    nat64.meets(met).is_dropped(Outcome::ToV4DropMessage);
}

/// RFC 4443 section 2.4 (c): an error fits 1,280 bytes.
#[test]
fn a_long_error_becomes_one_that_fits_every_path() {
    let (mut nat64, ends) = Ends::new();
    let inner = |version| ends.to_server(version, 4000, 53).payload(payload(1400));
    let met = error(
        [3, 3],
        0,
        inner(V4).quote(1300),
        [ROUTER.into(), ends.client[V4]],
    );
    let expected = error(
        [1, 4],
        0,
        inner(V6).quote(1280 - 96),
        [nat64.v6(ROUTER), ends.client[V6]],
    );
    nat64.meets(met).becomes(expected, &["to_v6_error"]);
}

/// RFC 6052 section 3.1.
#[test]
fn errors_to_private_addresses_are_dropped() {
    let (mut nat64, ends) = Ends::new();
    let strict = Translator {
        only_global: 1,
        ..translator()
    };
    nat64.set(strict);
    let server = nat64.v6(Ipv4Addr::new(10, 0, 0, 1));
    let inner = Packet::datagram((server, 53).into(), (ends.client[V6], 4000).into());
    let met = error([1, 4], 0, inner.quote(8), [ends.client[V6], server]);
    nat64.meets(met).is_dropped(Outcome::ToV4DropMessage);
}

#[test]
fn errors_without_a_packet_are_dropped() {
    let (mut nat64, ends) = Ends::new();
    for len in [0, 4, 19] {
        let met = error([3, 3], 0, payload(len), [ROUTER.into(), ends.client[V4]]);
        nat64.meets(met).is_dropped(Outcome::ToV6DropMalformed);
        let met = error([1, 4], 0, payload(len), [ends.client[V6], ends.server[V6]]);
        nat64.meets(met).is_dropped(Outcome::ToV4DropMalformed);
    }
}

/// An error changes no lease.
#[test]
fn an_error_gives_nobody_an_address() {
    let mut nat64 = Nat64::new(translator());
    let server = nat64.v6(crate::SERVER);
    let quoted = Packet::datagram((server, 53).into(), (client(9), 4000).into());
    let met = error([1, 4], 0, quoted.quote(8), [client(9).into(), server]);
    nat64.meets(met).is_dropped(Outcome::ToV4DropMessage);
    assert_eq!(nat64.leases(), 0);
}
