//! ICMP and ICMPv6 messages that are no errors.

use std::net::IpAddr;

use etherparse::IpNumber;
use xdptun_common::nat64::outcome::Outcome;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{Message, Packet};

use crate::{Ends, V4, V6};

/// A message in a version, from one end to the other.
fn message(kind: u8, rest: u32, body: &[u8], [from, to]: [IpAddr; 2]) -> Packet {
    let message = Message {
        kind,
        code: 0,
        rest,
        body: body.to_vec(),
    };
    let packet = message.packet(from, to);
    packet.link_to([9; 6]).link_from([8; 6])
}

/// Echo requests and replies, by both versions' types.
const ECHO: [[u8; 2]; 2] = [[8, 128], [0, 129]];

#[test]
fn echo_passes_both_ways() {
    let (mut nat64, ends) = Ends::new();
    for kinds in ECHO {
        for len in [0, 1, 2, 7, 56, 1400] {
            let body = payload(len);
            let to_server = |version: usize| {
                let ends = [ends.client[version], ends.server[version]];
                message(kinds[version], 0x1234_0007, &body, ends)
            };
            let found = nat64.meets(to_server(V6)).made(&["to_v4"]);
            let identification = u16::from_be_bytes([found[18], found[19]]);
            let expected = match len {
                1400 => to_server(V4),
                _ => to_server(V4).without_df().identified(identification),
            };
            assert_eq!(found, expected.bytes(), "{kinds:?}, {len} bytes");
            let to_client = |version: usize| {
                let ends = [ends.server[version], ends.client[version]];
                message(kinds[version], 0x1234_0007, &body, ends)
            };
            nat64
                .meets(to_client(V4))
                .becomes(to_client(V6), &["to_v6"]);
        }
    }
}

/// A message that was damaged stays so: the host that gets it drops it.
#[test]
fn damage_stays() {
    let (mut nat64, ends) = Ends::new();
    let [from, to] = [ends.server, ends.client];
    let damaged = |version: usize| {
        let mut bytes =
            message(ECHO[1][version], 7, b"damage", [from[version], to[version]]).bytes();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        bytes
    };
    nat64.meets(damaged(V4)).becomes(damaged(V6), &["to_v6"]);
}

/// RFC 7915 sections 4.2 and 5.2: all of these are dropped.
#[test]
fn other_messages_are_dropped() {
    let (mut nat64, ends) = Ends::new();
    // Timestamps, information, address masks, routers, source quench.
    for kind in [13, 14, 15, 16, 17, 18, 9, 10, 4, 40, 255] {
        let packet = message(kind, 0, &[0; 28], [ends.server[V4], ends.client[V4]]);
        nat64.meets(packet).is_dropped(Outcome::ToV6DropMessage);
    }
    let redirect = message(5, 0, &[0; 28], [ends.server[V4], ends.client[V4]]);
    nat64.meets(redirect).is_dropped(Outcome::ToV6DropRedirect);
    // Listeners, routers, neighbours, redirects, node information, experiments.
    for kind in [130, 131, 132, 133, 134, 135, 136, 137, 139, 140, 143, 200] {
        let packet = message(kind, 0, &[0; 48], [ends.client[V6], ends.server[V6]]);
        nat64.meets(packet).is_dropped(Outcome::ToV4DropMessage);
    }
}

/// RFC 7915 sections 4.2 and 5.1: the pseudo-header has the length of the whole message.
#[test]
fn fragments_of_messages_are_dropped() {
    let (mut nat64, ends) = Ends::new();
    for (offset, more) in [(0, true), (1, true), (1, false)] {
        let packet = Packet::other(ends.server[V4], ends.client[V4], IpNumber::ICMP);
        let packet = packet.payload([8; 16]).fragment(offset, more);
        nat64.meets(packet).is_dropped(Outcome::ToV6DropFragment);
        let packet = Packet::other(ends.client[V6], ends.server[V6], IpNumber::IPV6_ICMP);
        let packet = packet.payload([128; 16]).fragment(offset, more);
        nat64.meets(packet).is_dropped(Outcome::ToV4DropFragment);
    }
}
