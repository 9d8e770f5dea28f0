//! Packets to a listen address, and their answers.

use std::net::SocketAddr;

use xdptun_common::gateway::tuple::{Side, Tuple};
use xdptun_common::wire::Protocol;
use xdptun_test_datapath::gateway::{Gateway, Rule};
use xdptun_test_datapath::{Family, Packet, flags};

use crate::{HERE, Hosts, LISTEN, SERVICE, both};

#[test]
fn datagrams_are_forwarded_and_answered() {
    for hosts in both(0) {
        let mut gateway = hosts.gateway();
        let [call, forwarded] = hosts.call();
        let [answer, returned] = hosts.answer();
        gateway
            .comes_in(&call)
            .becomes(&forwarded, &["in_forwarded", "sessions_began"]);
        gateway
            .leaves(&answer)
            .becomes(&returned, &["out_returned"]);
        assert_eq!(gateway.entries(), [0, 2], "it waits for proof");
        gateway
            .comes_in(&call)
            .becomes(&forwarded, &["in_forwarded", "sessions_proven"]);
        assert_eq!(gateway.entries(), [2, 0], "it lasts");
        assert_eq!(gateway.lasting(), [1, 0]);
        gateway
            .comes_in(&call)
            .becomes(&forwarded, &["in_forwarded"]);
        gateway
            .leaves(&answer)
            .becomes(&returned, &["out_returned"]);
    }
}

#[test]
fn a_connection_is_forwarded_and_counted() {
    for hosts in both(1) {
        let mut gateway = hosts.gateway();
        hosts.connect(&mut gateway);
        let [data, forwarded] = hosts.call_segment(flags::DATA, (1001, 5001));
        gateway
            .comes_in(&data)
            .becomes(forwarded, &["in_forwarded"]);
        let call = Tuple::new(hosts.client, hosts.listen, Protocol::TCP, Side::In);
        let entry = gateway.entry(&call).unwrap();
        let ip_len = data.without_link().bytes().len() as u64;
        assert_eq!((entry.packets, entry.bytes), (3, 3 * ip_len));
        assert_eq!(entry.to.socket_addr(), hosts.back_end);
    }
}

/// Every length has its own alignment in the checksum, which is changed and not made anew.
#[test]
fn every_length_has_a_right_checksum() {
    for hosts in both(2) {
        let mut gateway = hosts.gateway();
        for len in (0..=70).chain([999, 1000, 1400]) {
            let payload = xdptun_test_datapath::packet::payload(len);
            let [call, forwarded] = hosts.call().map(|packet| packet.payload(payload.clone()));
            let began: &[&str] = if len == 0 { &["sessions_began"] } else { &[] };
            let counters = [&["in_forwarded"], began].concat();
            gateway.comes_in(call).becomes(forwarded, &counters);
        }
    }
}

/// A sum of zero stands for none, so that it is sent as 0xffff; none stays none.
#[test]
fn udp_checksums_of_every_value_are_right() {
    for hosts in both(3) {
        let mut gateway = hosts.gateway();
        let mut began: &[&str] = &["in_forwarded", "sessions_began"];
        for word in 0..=u16::MAX {
            if word % 251 != 0 && word > 64 {
                continue;
            }
            let [call, forwarded] = hosts.call().map(|call| call.payload(word.to_be_bytes()));
            gateway.comes_in(call).becomes(forwarded, began);
            began = &["in_forwarded"];
        }
        // Of the values in between one gives the sum that is zero after the translation.
        let zero = (0..=u16::MAX)
            .map(|word| hosts.call().map(|call| call.payload(word.to_be_bytes())))
            .find(|[_, forwarded]| {
                let bytes = forwarded.clone().bytes();
                bytes[bytes.len() - 4..bytes.len() - 2] == [0xff, 0xff]
            });
        let [call, forwarded] = zero.expect("one of 65,536");
        gateway.comes_in(call).becomes(forwarded, began);
    }
    let hosts = Hosts::new(Family::V4, 3);
    let [call, forwarded] = hosts.call().map(Packet::without_checksum);
    let began = ["in_forwarded", "sessions_began"];
    hosts.gateway().comes_in(call).becomes(forwarded, &began);
}

#[test]
fn options_and_extension_headers_stay() {
    for hosts in both(4) {
        let mut gateway = hosts.gateway();
        let with = |packet: Packet| match hosts.client {
            SocketAddr::V4(_) => packet.ip_options(3),
            SocketAddr::V6(_) => packet.extension(etherparse::IpNumber(60), 1),
        };
        let [call, forwarded] = hosts.call().map(with);
        gateway
            .comes_in(call)
            .becomes(forwarded, &["in_forwarded", "sessions_began"]);
        let [answer, returned] = hosts.answer().map(with);
        gateway.leaves(answer).becomes(returned, &["out_returned"]);
    }
}

/// A header that was damaged stays so: the back end is to find it.
#[test]
fn damage_is_kept() {
    for hosts in both(5) {
        let mut gateway = hosts.gateway();
        let [mut call, mut forwarded] = hosts.call().map(|packet| packet.bytes());
        for packet in [&mut call, &mut forwarded] {
            let last = packet.len() - 1;
            packet[last] ^= 0x55;
        }
        gateway
            .comes_in(call)
            .becomes(forwarded, &["in_forwarded", "sessions_began"]);
    }
}

#[test]
fn only_what_a_rule_names_is_forwarded() {
    for family in Family::ALL {
        let hosts = Hosts::new(family, 6);
        let mut gateway = hosts.gateway();
        let other_port = SocketAddr::new(family.host(), LISTEN + 1);
        let transit = SocketAddr::new(family.peer(), LISTEN);
        for to in [other_port, transit] {
            let call = Packet::datagram(hosts.client, to).link_to(HERE);
            gateway.comes_in(&call).passes();
            gateway.comes_in(call.segment(flags::SYN, 1, 0)).passes();
        }
        let [call, _] = hosts.call();
        gateway.leaves(&call).passes();
        let [answer, _] = hosts.answer();
        gateway.leaves(answer).passes();
        // No session begins in the middle of a connection.
        for flags in [flags::ACK, flags::DATA, flags::RST, flags::SYN | flags::ACK] {
            let [segment, _] = hosts.call_segment(flags, (7, 7));
            gateway.comes_in(segment).passes();
        }
        gateway.listens(false);
        gateway.comes_in(&call).passes();
        assert_eq!(gateway.entries(), [0, 0]);
        gateway.listens(true);
        let [call, forwarded] = hosts.call();
        gateway
            .comes_in(call)
            .becomes(forwarded, &["in_forwarded", "sessions_began"]);
    }
}

/// The rule of an address goes before that of the port alone, and serves addresses that are
/// not this host's.
#[test]
fn an_address_goes_before_any() {
    for family in Family::ALL {
        let hosts = Hosts::new(family, 7);
        let special = SocketAddr::new(family.also_host(), LISTEN);
        let elsewhere = SocketAddr::new(family.peer(), SERVICE + 1);
        let rule = Rule {
            address: Some(special.ip()),
            port: LISTEN,
            protocol: Protocol::UDP,
            to: elsewhere,
            source: None,
        };
        let [tcp, udp] = Rule::both(LISTEN, hosts.back_end);
        let mut gateway = Gateway::new(&[tcp, udp, rule]);
        let began = ["in_forwarded", "sessions_began"];
        let [call, forwarded] = hosts.call();
        gateway.comes_in(call).becomes(forwarded, &began);
        let call = Packet::datagram(hosts.client, special).link_to(HERE);
        let forwarded = Packet::datagram(hosts.client, elsewhere).linked_as(&call);
        gateway.comes_in(call).becomes(forwarded, &began);
    }
}

/// A rule for any address is for the family of its back end.
#[test]
fn the_other_family_is_left_alone() {
    for [own, other] in [[Family::V4, Family::V6], [Family::V6, Family::V4]] {
        let mut gateway = Hosts::new(own, 9).gateway();
        let [call, _] = Hosts::new(other, 9).call();
        gateway.comes_in(&call).passes();
        let [syn, _] = Hosts::new(other, 9).call_segment(flags::SYN, (1, 0));
        gateway.comes_in(&syn).passes();
    }
}

/// What passes egress again was translated when it passed first.
#[test]
fn marked_frames_are_left_alone() {
    for hosts in both(8) {
        let mut gateway = hosts.gateway();
        let [call, forwarded] = hosts.call();
        gateway
            .comes_in(call)
            .becomes(forwarded, &["in_forwarded", "sessions_began"]);
        let [answer, _] = hosts.answer();
        let own = xdptun_common::again::OWN;
        gateway.leaves(answer).marked(own).passes();
    }
}
