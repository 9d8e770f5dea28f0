//! Packets that are not translated, and who is told.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::IpNumber;
use xdptun_common::nat64::outcome::Outcome;
use xdptun_common::nat64::translator::Translator;
use xdptun_test_datapath::nat64::{Nat64, translator};
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{Message, Packet};

use crate::{Ends, SERVER, V4, V6, client};

/// The error that tells a client, whose packet it quotes up to the ports.
fn refusal(nat64: &Nat64, code: u8, packet: &Packet, to: IpAddr) -> Packet {
    let message = Message {
        kind: 1,
        code,
        rest: 0,
        body: packet.quote(8),
    };
    let own = nat64.v6(Ipv4Addr::new(100, 64, 0, 1));
    message.packet(own, to).linked_as(packet)
}

#[test]
fn a_stranger_is_told_that_it_is_none_of_the_clients() {
    let mut nat64 = Nat64::new(translator());
    let stranger: Ipv6Addr = "fd00:7::9".parse().unwrap();
    let call = Packet::datagram((stranger, 4000).into(), (nat64.v6(SERVER), 53).into());
    let told = refusal(&nat64, 5, &call, stranger.into());
    nat64
        .meets(call)
        .becomes(told, &["to_v4_drop_outside", "refusals"]);
    assert_eq!(nat64.leases(), 0);
}

/// RFC 6052 section 3.1.
#[test]
fn private_addresses_are_refused_behind_the_well_known_prefix() {
    let strict = Translator {
        only_global: 1,
        ..translator()
    };
    let mut nat64 = Nat64::new(strict);
    let private = nat64.v6(Ipv4Addr::new(10, 0, 0, 1));
    let call = Packet::datagram((client(9), 4000).into(), (private, 53).into());
    let told = refusal(&nat64, 1, &call, client(9).into());
    nat64
        .meets(call.clone())
        .becomes(told, &["to_v4_drop_private", "refusals"]);
    nat64.set(translator());
    nat64.meets(call).made(&["to_v4", "leases_began"]);
    let (address, _) = nat64.lease(client(9)).unwrap();
    nat64.set(strict);
    let answer = Packet::datagram(
        (Ipv4Addr::new(10, 0, 0, 1), 53).into(),
        (address, 4000).into(),
    );
    nat64.meets(answer).is_dropped(Outcome::ToV6DropPrivate);
}

/// RFC 4443 section 2.4 (e).
#[test]
fn nothing_is_told_about_an_error_or_to_nobody() {
    let mut nat64 = Nat64::new(translator());
    let multicast: Ipv6Addr = "ff02::1".parse().unwrap();
    let call = Packet::datagram((multicast, 4000).into(), (nat64.v6(SERVER), 53).into());
    nat64.meets(call).is_dropped(Outcome::ToV4DropOutside);
    let unspecified = Ipv6Addr::UNSPECIFIED;
    let call = Packet::datagram((unspecified, 4000).into(), (nat64.v6(SERVER), 53).into());
    nat64.meets(call).is_dropped(Outcome::ToV4DropOutside);
}

#[test]
fn messages_to_strangers_have_a_limit() {
    let mut nat64 = Nat64::new(translator());
    let stranger: Ipv6Addr = "fd00:7::9".parse().unwrap();
    let call = Packet::datagram((stranger, 4000).into(), (nat64.v6(SERVER), 53).into()).bytes();
    for _ in 0..2000 {
        nat64.run(&call, xdptun_test_datapath::Skb::default());
    }
    let moved = nat64.moved();
    assert_eq!(moved["to_v4_drop_outside"], 2000);
    assert!(moved["refusals"] < 2000, "{moved:?}");
}

#[test]
fn other_protocols_are_dropped() {
    let (mut nat64, ends) = Ends::new();
    for protocol in [
        IpNumber::GRE,
        IpNumber::SCTP,
        IpNumber::ENCAPSULATING_SECURITY_PAYLOAD,
    ] {
        let packet = Packet::other(ends.client[V6], ends.server[V6], protocol);
        nat64
            .meets(packet.payload([7; 40]))
            .is_dropped(Outcome::ToV4DropProtocol);
        let packet = Packet::other(ends.server[V4], ends.client[V4], protocol);
        nat64
            .meets(packet.payload([7; 40]))
            .is_dropped(Outcome::ToV6DropProtocol);
    }
}

/// RFC 7915 section 5.1: a route that has ended is skipped.
#[test]
fn what_asks_for_a_route_or_authenticates_addresses_is_dropped() {
    let (mut nat64, ends) = Ends::new();
    let authenticated = ends.to_server(V6, 4000, 53);
    let authenticated = authenticated.extension(IpNumber::AUTHENTICATION_HEADER, 1);
    nat64
        .meets(authenticated)
        .is_dropped(Outcome::ToV4DropExtensions);
    let routed = ends.to_server(V6, 4000, 53).payload(payload(1300));
    let routed = routed.extension(IpNumber::IPV6_ROUTE_HEADER, 1);
    let mut asks = routed.bytes();
    nat64.meets(routed).made(&["to_v4"]);
    // One segment is left.
    asks[14 + 40 + 3] = 1;
    nat64.meets(asks).is_dropped(Outcome::ToV4DropExtensions);
}

/// RFC 7915 section 5.1.1: the others of its fragments would not have the header.
#[test]
fn a_header_behind_that_of_a_fragment_is_refused() {
    let (mut nat64, ends) = Ends::new();
    for number in [
        IpNumber::IPV6_DESTINATION_OPTIONS,
        IpNumber::IPV6_ROUTE_HEADER,
        IpNumber::AUTHENTICATION_HEADER,
    ] {
        let packet = ends.to_server(V6, 4000, 53).payload(payload(800));
        let packet = packet.fragment_of(7, 0, true).extension(number, 1);
        nat64.meets(packet).is_dropped(Outcome::ToV4DropExtensions);
        // Before it, what forbids a translation does so all the same.
        let packet = ends.to_server(V6, 4000, 53).payload(payload(800));
        let packet = packet.extension(IpNumber::AUTHENTICATION_HEADER, 1);
        nat64
            .meets(packet.fragment_of(7, 0, true))
            .is_dropped(Outcome::ToV4DropExtensions);
    }
}

#[test]
fn what_is_not_for_the_prefix_or_for_a_client_is_dropped() {
    let (mut nat64, ends) = Ends::new();
    let all: Ipv6Addr = "ff02::2".parse().unwrap();
    let call = Packet::datagram((client(9), 4000).into(), (all, 53).into());
    nat64.meets(call).is_dropped(Outcome::ToV4DropDestination);
    let nobody = Ipv4Addr::new(100, 64, 0, 250);
    let call = Packet::datagram((ends.server[V4], 53).into(), (nobody, 4000).into());
    nat64.meets(call).is_dropped(Outcome::ToV6DropUnknown);
}

#[test]
fn lengths_that_contradict_are_dropped() {
    let (mut nat64, ends) = Ends::new();
    let long = ends
        .to_server(V6, 4000, 53)
        .payload(*b"x")
        .transport_len(200);
    nat64.meets(long).is_dropped(Outcome::ToV4DropMalformed);
    let short = ends.to_server(V6, 4000, 53).transport_len(7);
    nat64.meets(short).is_dropped(Outcome::ToV4DropMalformed);
    let long = ends
        .to_client(V4, 53, 4000)
        .payload(*b"x")
        .transport_len(200);
    nat64.meets(long).is_dropped(Outcome::ToV6DropMalformed);
    let short = ends.to_client(V4, 53, 4000).transport_len(7);
    nat64.meets(short).is_dropped(Outcome::ToV6DropMalformed);
}

/// No checksum can be computed over it, and receivers drop it.
#[test]
fn a_datagram_without_checksum_whose_length_is_wrong_is_dropped() {
    let (mut nat64, ends) = Ends::new();
    let datagram = || ends.to_client(V4, 53, 4000).payload(payload(20));
    for length in [0, 7, 29, u16::MAX] {
        nat64
            .meets(datagram().without_checksum().udp_length(length))
            .is_dropped(Outcome::ToV6DropMalformed);
    }
}
