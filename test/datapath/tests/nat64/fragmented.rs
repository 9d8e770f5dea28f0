//! Fragments (RFC 7915 sections 4.1 and 5.1.1).

use etherparse::IpNumber;
use xdptun_common::nat64::outcome::Outcome;
use xdptun_test_datapath::Packet;
use xdptun_test_datapath::packet::payload;

use crate::{Ends, V4, V6};

#[test]
fn fragments_for_a_client_get_a_fragment_header() {
    let (mut nat64, ends) = Ends::new();
    for (offset, more) in [(0, true), (91, true), (91, false)] {
        let made = |version| {
            let packet = match offset {
                0 => ends.to_client(version, 53, 4000),
                _ => later(ends.server[version], ends.client[version]),
            };
            // As much as IPv6's headers leave room for in 1,500 bytes.
            let len = if offset == 0 { 1432 } else { 1440 };
            packet.payload(payload(len))
        };
        nat64
            .meets(made(V4).fragment_of(0x4321, offset, more))
            .becomes(made(V6).fragment_of(0x4321, offset, more), &["to_v6"]);
    }
}

#[test]
fn fragments_of_a_client_lose_their_header() {
    let (mut nat64, ends) = Ends::new();
    for (offset, more) in [(0, true), (91, true), (91, false)] {
        let made = |version| {
            let packet = match offset {
                0 => ends.to_server(version, 4000, 53),
                _ => later(ends.client[version], ends.server[version]),
            };
            packet.payload(payload(800))
        };
        // IPv4 has the low half of the identification.
        nat64
            .meets(made(V6).fragment_of(0x9876_4321, offset, more))
            .becomes(made(V4).fragment_of(0x4321, offset, more), &["to_v4"]);
    }
}

/// RFC 6946: the packet is whole, and its sender wants routers to fragment it.
#[test]
fn an_atomic_fragment_may_be_fragmented_as_ipv4() {
    let (mut nat64, ends) = Ends::new();
    let made = |version| ends.to_server(version, 4000, 53).payload(payload(1400));
    let optional = made(V6).extension(IpNumber::IPV6_DESTINATION_OPTIONS, 1);
    for packet in [made(V6), optional] {
        nat64
            .meets(packet.fragment_of(0x9876_4321, 0, false))
            .becomes(made(V4).without_df().identified(0x4321), &["to_v4"]);
    }
}

#[test]
fn a_fragment_behind_options_is_found() {
    let (mut nat64, ends) = Ends::new();
    let made = |version| ends.to_server(version, 4000, 53).payload(payload(800));
    let behind = made(V6).extension(IpNumber::IPV6_DESTINATION_OPTIONS, 2);
    nat64
        .meets(behind.fragment_of(0x4321, 0, true))
        .becomes(made(V4).fragment_of(0x4321, 0, true), &["to_v4"]);
}

/// RFC 7915 section 4.5.
#[test]
fn a_first_fragment_without_checksum_is_dropped() {
    let (mut nat64, ends) = Ends::new();
    let first = ends.to_client(V4, 53, 4000).payload(payload(800));
    nat64
        .meets(first.without_checksum().fragment(0, true))
        .is_dropped(Outcome::ToV6DropFragment);
}

/// What leaves the loopback device comes in again, and is met by no program in this test: so one half
/// is seen. The other is in `test/net`.
#[test]
fn a_fragment_that_headers_make_too_long_is_cut_in_two() {
    let (mut nat64, ends) = Ends::new();
    for (len, half) in [(1453, 728), (1456, 728), (1460, 736)] {
        let made = |version, from: usize| {
            let packet = later(ends.server[version], ends.client[version]);
            packet.payload(&payload(len)[from..])
        };
        let last = 91 + (half / 8) as u16;
        nat64
            .meets(made(V4, 0).fragment_of(0x4321, 91, false))
            .becomes(
                made(V6, half).fragment_of(0x4321, last, false),
                &["to_v6", "fragments_cut"],
            );
    }
}

/// Its second half would start at an offset that the field has no room for.
#[test]
fn a_fragment_that_ends_behind_every_datagram_is_not_cut() {
    let (mut nat64, ends) = Ends::new();
    let made = |offset| {
        let packet = later(ends.server[V4], ends.client[V4]).payload(payload(1456));
        packet.fragment_of(0x4321, offset, false)
    };
    for offset in [0x1fff - 90, 0x1fff] {
        nat64
            .meets(made(offset))
            .is_dropped(Outcome::ToV6DropMalformed);
    }
    let last = 0x1fff - 91;
    nat64.meets(made(last)).made(&["to_v6", "fragments_cut"]);
}

/// Not even in part: the halves go on as two packets or not at all.
#[test]
fn a_fragment_whose_halves_are_too_long_is_dropped() {
    let (mut nat64, ends) = Ends::new();
    let made = |len| {
        let packet = later(ends.server[V4], ends.client[V4]).payload(payload(len));
        packet.fragment_of(0x4321, 91, false)
    };
    let fits = 2 * 1448;
    nat64.meets(made(fits)).made(&["to_v6", "fragments_cut"]);
    nat64
        .meets(made(fits + 8))
        .is_dropped(Outcome::ToV6DropTooLong);
}

/// A fragment without transport header.
fn later(from: std::net::IpAddr, to: std::net::IpAddr) -> Packet {
    let packet = Packet::other(from, to, IpNumber::UDP);
    packet.link_to([9; 6]).link_from([8; 6])
}
