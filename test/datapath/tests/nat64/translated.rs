//! Headers of packets that pass (RFC 7915 sections 4.1 and 5.1), and checksums.

use std::net::{IpAddr, Ipv4Addr};

use etherparse::IpNumber;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{Packet, flags};

use crate::{Ends, SERVER, V4, V6, client};

#[test]
fn a_segment_of_a_client_goes_on_as_ipv4() {
    let (mut nat64, ends) = Ends::new();
    for len in [0, 1, 2, 3, 40, 1180, 1400] {
        let made = |version| {
            let packet = ends.to_server(version, 4000, 80).payload(payload(len));
            packet.segment(flags::DATA, 7, 9).tos(0xb9).ttl(61)
        };
        // Of more than 1,280 bytes DF is set, and there is no identification.
        let expected = made(V4);
        let found = nat64.meets(made(V6).flow_label(0x12345)).made(&["to_v4"]);
        let identification = u16::from_be_bytes([found[18], found[19]]);
        let expected = match len {
            1180.. if len + 60 > 1280 => expected,
            _ => expected.without_df().identified(identification),
        };
        assert_eq!(found, expected.bytes(), "{len} bytes");
    }
}

#[test]
fn a_segment_for_a_client_goes_on_as_ipv6() {
    let (mut nat64, ends) = Ends::new();
    for len in [0, 1, 2, 3, 40, 1400] {
        let made = |version| {
            let packet = ends.to_client(version, 80, 4000).payload(payload(len));
            packet.segment(flags::DATA, 7, 9).tos(0xb9).ttl(61)
        };
        nat64.meets(made(V4)).becomes(made(V6), &["to_v6"]);
        // What IPv4 may fragment is whole, and needs no fragment header.
        let may_be_fragmented = made(V4).without_df().identified(77);
        nat64.meets(may_be_fragmented).becomes(made(V6), &["to_v6"]);
    }
}

#[test]
fn datagrams_keep_their_checksum_true() {
    let (mut nat64, ends) = Ends::new();
    for len in 0..80 {
        let made = |version| ends.to_server(version, 4000, 53).payload(payload(len));
        let found = nat64.meets(made(V6)).made(&["to_v4"]);
        let identification = u16::from_be_bytes([found[18], found[19]]);
        let expected = made(V4).without_df().identified(identification);
        assert_eq!(found, expected.bytes(), "{len} bytes");
        let made = |version| ends.to_client(version, 53, 4000).payload(payload(len));
        nat64.meets(made(V4)).becomes(made(V6), &["to_v6"]);
    }
}

/// RFC 7915 section 4.5: IPv6 has to have one.
#[test]
fn a_datagram_without_checksum_gets_one() {
    let (mut nat64, ends) = Ends::new();
    for len in [0, 1, 2, 3, 600, 1400, 3000] {
        let made = |version| ends.to_client(version, 53, 4000).payload(payload(len));
        nat64
            .meets(made(V4).without_checksum())
            .becomes(made(V6), &["to_v6"]);
    }
}

/// The checksum is over what UDP's own length says (RFC 8200 section 8.1).
#[test]
fn bytes_behind_a_datagram_are_not_in_its_checksum() {
    let (mut nat64, ends) = Ends::new();
    let behind = b"behind".as_slice();
    for len in [0, 1, 2, 3, 600, 1400] {
        let made = |version| {
            let packet = ends.to_client(version, 53, 4000).payload(payload(len));
            packet.transport_len(8 + len + behind.len())
        };
        let followed = |packet: Packet| [&packet.bytes(), behind].concat();
        nat64
            .meets(followed(made(V4).without_checksum()))
            .becomes(followed(made(V6)), &["to_v6"]);
    }
}

/// A checksum that comes out as zero is sent in its other form (RFC 768).
#[test]
fn a_checksum_of_zero_is_not_none() {
    let (mut nat64, ends) = Ends::new();
    for number in 0..=u16::MAX {
        let made = |version| {
            let packet = ends.to_client(version, 53, 4000);
            packet.payload(number.to_be_bytes())
        };
        let expected = made(V6).bytes();
        // One of all payloads has this checksum.
        if expected[14 + 40 + 6..][..2] == [0xff, 0xff] {
            nat64.meets(made(V4)).becomes(expected, &["to_v6"]);
            return;
        }
    }
    panic!("no payload has that checksum");
}

#[test]
fn options_of_ipv4_are_left_out() {
    let (mut nat64, ends) = Ends::new();
    for words in [1, 10] {
        let made = |version| ends.to_client(version, 53, 4000).payload(*b"options");
        nat64
            .meets(made(V4).ip_options(words))
            .becomes(made(V6), &["to_v6"]);
    }
}

#[test]
fn options_of_ipv6_are_left_out() {
    let (mut nat64, ends) = Ends::new();
    for number in [
        IpNumber::IPV6_HEADER_HOP_BY_HOP,
        IpNumber::IPV6_DESTINATION_OPTIONS,
    ] {
        for units in [1, 3] {
            let made = |version| ends.to_server(version, 4000, 53).payload(payload(1300));
            nat64
                .meets(made(V6).extension(number, units))
                .becomes(made(V4), &["to_v4"]);
        }
    }
}

#[test]
fn padding_of_a_short_frame_is_cut_off() {
    let (mut nat64, ends) = Ends::new();
    let made = |version| ends.to_client(version, 53, 4000).payload(*b"x");
    nat64
        .meets(made(V4).padded_to(60))
        .becomes(made(V6), &["to_v6"]);
}

/// The prefix may be any of RFC 6052; its tests are in `xdptun-common/tests/nat64.rs`.
#[test]
fn clients_reach_each_other_by_their_ipv4_addresses() {
    let (mut nat64, first) = Ends::new();
    let second = Ends::of(&mut nat64, client(10));
    let IpAddr::V4(address) = second.client[V4] else {
        panic!("an IPv4 address");
    };
    let call = Packet::datagram(
        (first.client[V6], 4000).into(),
        (nat64.v6(address), 5000).into(),
    );
    let call = call.payload(payload(1300));
    let inside = Packet::datagram((first.client[V4], 4000).into(), (address, 5000).into());
    let inside = inside.payload(payload(1300)).linked_as(&call);
    nat64.meets(call).becomes(inside.clone(), &["to_v4"]);
    let IpAddr::V4(own) = first.client[V4] else {
        panic!("an IPv4 address");
    };
    let arrives = Packet::datagram(
        (nat64.v6(own), 4000).into(),
        (second.client[V6], 5000).into(),
    );
    let arrives = arrives.payload(payload(1300)).linked_as(&inside);
    nat64.meets(inside).becomes(arrives, &["to_v6"]);
}

#[test]
fn this_host_may_use_the_prefix() {
    let (mut nat64, _) = Ends::new();
    let own = nat64.v6(Ipv4Addr::new(100, 64, 0, 1));
    let call = Packet::datagram((own, 4000).into(), (nat64.v6(SERVER), 53).into());
    nat64.meets(call).made(&["to_v4", "leases_began"]);
    let IpAddr::V6(own) = own else {
        panic!("an IPv6 address");
    };
    let (address, _) = nat64.lease(own).expect("it has sent");
    assert_ne!(
        address,
        Ipv4Addr::new(100, 64, 0, 1),
        "that of the device is local"
    );
}

/// Its segments are packets that may be fragmented, as they would be one by one: the client has
/// learned that the path takes no more, and cannot send less.
#[test]
fn super_packets_of_small_segments_leave_without_df() {
    let (mut nat64, ends) = Ends::new();
    // With a TCP header of 20 bytes, 1260 and 1261 in all.
    for (segment, has_df) in [(1220, false), (1221, true)] {
        let made = |version| {
            let packet = ends.to_server(version, 4000, 80).payload(payload(2 * 1220));
            packet.segment(flags::DATA, 7, 9)
        };
        let step = nat64.meets(made(V6)).in_segments(segment);
        match has_df {
            true => step.becomes(made(V4), &["to_v4"]),
            false => {
                let found = step.made(&["to_v4"]);
                let identification = u16::from_be_bytes([found[18], found[19]]);
                let expected = made(V4).without_df().identified(identification);
                assert_eq!(found, expected.bytes());
            }
        }
    }
}

#[test]
fn super_packets_stay_whole() {
    let (mut nat64, ends) = Ends::new();
    let made = |version| {
        let packet = ends.to_client(version, 80, 4000).payload(payload(2800));
        packet.segment(flags::DATA, 7, 9)
    };
    nat64
        .meets(made(V4))
        .in_segments(1400)
        .becomes(made(V6), &["to_v6"]);
    let made = |version| {
        let packet = ends.to_server(version, 4000, 80).payload(payload(2800));
        packet.segment(flags::DATA, 7, 9)
    };
    nat64
        .meets(made(V6))
        .in_segments(1400)
        .becomes(made(V4), &["to_v4"]);
}
