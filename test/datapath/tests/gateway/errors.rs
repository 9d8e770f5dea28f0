//! ICMP errors about translated packets.

use std::net::{IpAddr, SocketAddr};

use xdptun_common::address::address_bytes;
use xdptun_common::gateway::outcome::Outcome;
use xdptun_test_datapath::gateway::Gateway;
use xdptun_test_datapath::{Family, Message, Packet, flags};

use crate::{Hosts, both};

/// A router on the way.
fn router(hosts: Hosts) -> IpAddr {
    match hosts.client {
        SocketAddr::V4(_) => Family::V4.with_own_key(),
        SocketAddr::V6(_) => Family::V6.with_own_key(),
    }
}

/// Errors of each kind that a router or an end sends.
fn messages(hosts: Hosts, quote: &[u8]) -> Vec<Message> {
    let kinds: &[(u8, u8, u32)] = match hosts.client {
        // Unreachable by host and by port, too big, too old, a wrong field.
        SocketAddr::V4(_) => &[(3, 1, 0), (3, 3, 0), (3, 4, 1400), (11, 0, 0), (12, 0, 0)],
        SocketAddr::V6(_) => &[(1, 0, 0), (1, 4, 0), (2, 0, 1400), (3, 0, 0), (4, 0, 0)],
    };
    let message = |(kind, code, rest): &(u8, u8, u32)| Message {
        kind: *kind,
        code: *code,
        rest: *rest,
        body: quote.to_vec(),
    };
    kinds.iter().map(message).collect()
}

/// A datagram or segment between two ends.
type Make = fn(SocketAddr, SocketAddr) -> Packet;

fn datagram(from: SocketAddr, to: SocketAddr) -> Packet {
    Packet::datagram(from, to).payload([1, 2, 3, 4, 5, 6])
}

fn without_checksum(from: SocketAddr, to: SocketAddr) -> Packet {
    datagram(from, to).without_checksum()
}

fn segment(from: SocketAddr, to: SocketAddr) -> Packet {
    datagram(from, to).segment(flags::DATA, 1001, 5001)
}

/// Each kind of quoted packet, and how much of it is quoted from its transport header on.
const QUOTED: [(Make, usize); 5] = [
    (datagram, 14),
    (datagram, 8),
    (without_checksum, 14),
    (segment, 26),
    // As little as RFC 792 asks for.
    (segment, 8),
];

fn open(hosts: Hosts) -> Gateway {
    let mut gateway = hosts.gateway();
    hosts.connect(&mut gateway);
    let [call, forwarded] = hosts.call();
    gateway
        .comes_in(call)
        .becomes(forwarded, &["in_forwarded", "sessions_began"]);
    gateway
}

/// A router between this host and the client cannot take an answer on; the back end is told.
#[test]
fn errors_about_answers_reach_the_back_end() {
    for hosts in both(0) {
        let mut gateway = open(hosts);
        for (make, len) in QUOTED {
            let sent = make(hosts.listen, hosts.client).quote(len);
            let before = make(hosts.back_end, hosts.client).quote(len);
            for (message, expected) in messages(hosts, &sent).iter().zip(messages(hosts, &before)) {
                let message = message.packet(router(hosts), hosts.listen.ip());
                let expected = expected
                    .packet(router(hosts), hosts.back_end.ip())
                    .linked_as(&message);
                gateway.comes_in(message).becomes(expected, &["in_error"]);
            }
        }
    }
}

/// A router behind this host, or the back end, cannot take a packet on; the client is told, by
/// the only host that it knows.
#[test]
fn errors_about_calls_reach_the_client() {
    for hosts in both(1) {
        let mut gateway = open(hosts);
        for (make, len) in QUOTED {
            let sent = make(hosts.client, hosts.back_end).quote(len);
            let before = make(hosts.client, hosts.listen).quote(len);
            for (message, expected) in messages(hosts, &sent).iter().zip(messages(hosts, &before)) {
                for from in [router(hosts), hosts.back_end.ip(), hosts.listen.ip()] {
                    let message = message.packet(from, hosts.client.ip());
                    let expected = expected
                        .packet(hosts.listen.ip(), hosts.client.ip())
                        .linked_as(&message);
                    gateway.leaves(message).becomes(expected, &["out_error"]);
                }
            }
        }
    }
}

#[test]
fn other_messages_are_left_alone() {
    for hosts in both(2) {
        let mut gateway = open(hosts);
        let mut left_alone = |message: Message, from: IpAddr, to: IpAddr| {
            gateway.comes_in(message.packet(from, to)).passes();
            gateway.leaves(message.packet(from, to)).passes();
        };
        let strange = SocketAddr::new(hosts.client.ip(), 9);
        // About no session; to an address that did not send the quoted packet; about the other
        // direction.
        for (source, destination, to) in [
            (hosts.listen, strange, hosts.listen.ip()),
            (hosts.listen, hosts.client, hosts.back_end.ip()),
            (hosts.client, hosts.listen, hosts.client.ip()),
        ] {
            let quote = datagram(source, destination).quote(14);
            for message in messages(hosts, &quote) {
                left_alone(message, router(hosts), to);
            }
        }
        let echo = Message {
            kind: match hosts.client {
                SocketAddr::V4(_) => 8,
                SocketAddr::V6(_) => 128,
            },
            code: 0,
            rest: 7,
            body: vec![1, 2, 3],
        };
        left_alone(echo, hosts.client.ip(), hosts.listen.ip());
    }
}

/// The kernel would tell a client on its link to send to the back end by itself.
#[test]
fn the_kernels_redirects_are_dropped() {
    let link_address = [2, 1, 2, 0, 0, 0, 0, 2];
    for (family, option) in [
        (Family::V4, None),
        (Family::V6, None),
        (Family::V6, Some(link_address)),
    ] {
        let hosts = Hosts::new(family, 3);
        let mut gateway = open(hosts);
        let redirect = |of| match family {
            Family::V4 => Message {
                kind: 5,
                code: 1,
                rest: 0x0a00_0002,
                body: of,
            },
            // RFC 4861 section 4.5.
            Family::V6 => Message {
                kind: 137,
                code: 0,
                rest: 0,
                body: [
                    &[0xfe; 16][..],
                    &address_bytes(hosts.back_end.ip()),
                    option.as_ref().map_or(&[], |option| &option[..]),
                    &[4, 9, 0, 0, 0, 0, 0, 0],
                    &of,
                ]
                .concat(),
            },
        };
        let to_back_end = redirect(datagram(hosts.client, hosts.back_end).quote(14));
        gateway
            .leaves(to_back_end.packet(hosts.listen.ip(), hosts.client.ip()))
            .is_dropped(Outcome::OutDropRedirect);
        let elsewhere = SocketAddr::new(hosts.back_end.ip(), 9);
        let of_others = redirect(datagram(hosts.client, elsewhere).quote(14));
        gateway
            .leaves(of_others.packet(hosts.listen.ip(), hosts.client.ip()))
            .passes();
    }
}
