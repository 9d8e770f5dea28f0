//! ICMP errors about packets of inside hosts (RFC 5508).

use std::net::{IpAddr, SocketAddr};

use xdptun_common::gateway::outcome::Outcome;
use xdptun_test_datapath::gateway::NatRow;
use xdptun_test_datapath::{Family, Message, Packet, flags};

use crate::HERE;
use crate::inside::{
    BINDS, Conversation, LAN, PORT, Transport, inside_host, nat, query, remote, reply, row,
};

/// A router outside, and one inside.
const ROUTER: IpAddr = Family::V4.with_own_key();
const INSIDE_ROUTER: IpAddr = inside_host(1);

/// Errors of each kind that a router or an end sends: unreachable by host and by port, too big,
/// too old, a wrong field.
const KINDS: [(u8, u8, u32); 5] = [(3, 1, 0), (3, 3, 0), (3, 4, 1400), (11, 0, 0), (12, 0, 0)];

fn about((kind, code, rest): (u8, u8, u32), quote: Vec<u8>) -> Message {
    Message {
        kind,
        code,
        rest,
        body: quote,
    }
}

fn datagram(from: SocketAddr, to: SocketAddr) -> Packet {
    Packet::datagram(from, to).payload([1, 2, 3, 4, 5, 6])
}

fn without_checksum(from: SocketAddr, to: SocketAddr) -> Packet {
    datagram(from, to).without_checksum()
}

fn segment(from: SocketAddr, to: SocketAddr) -> Packet {
    datagram(from, to).segment(flags::DATA, 1001, 5001)
}

fn asks(from: SocketAddr, to: SocketAddr) -> Packet {
    query(from, to.ip(), &[1, 2, 3, 4, 5, 6])
}

fn replies(from: SocketAddr, to: SocketAddr) -> Packet {
    reply(from.ip(), to, &[1, 2, 3, 4, 5, 6])
}

/// A packet between two ends.
type Make = fn(SocketAddr, SocketAddr) -> Packet;

/// Each kind of quoted packet, as the inside host sends it and as it gets it, and how much of it
/// is quoted from its transport header on.
const QUOTED: [(Transport, [Make; 2], usize); 7] = [
    (Transport::Udp, [datagram, datagram], 14),
    (Transport::Udp, [datagram, datagram], 8),
    (Transport::Udp, [without_checksum, without_checksum], 14),
    (Transport::Tcp, [segment, segment], 26),
    // As little as RFC 792 asks for.
    (Transport::Tcp, [segment, segment], 8),
    (Transport::Echo, [asks, replies], 14),
    (Transport::Echo, [asks, replies], 8),
];

/// `Packet::quote` knows no ICMP header: all of it is payload.
fn quote(packet: &Packet, by: Transport, len: usize) -> Vec<u8> {
    match by {
        Transport::Echo => {
            let mut whole = packet.clone().without_link().bytes();
            whole.truncate(20 + len);
            whole
        }
        _ => packet.quote(len),
    }
}

/// A router outside, or the remote end, cannot take a packet on; the inside host is told.
#[test]
fn errors_from_outside_reach_the_inside_host() {
    for (by, [make, _], len) in QUOTED {
        // The second host with this port.
        let one = Conversation::new(3, by).by_port(PORT + 1);
        let mut gateway = nat(NatRow {
            ports: [PORT, PORT + 1],
            ..row()
        });
        Conversation::new(2, by).begin(&mut gateway, &BINDS);
        one.open(&mut gateway, &BINDS);
        let [before, sent] = one.leaving(make).map(|packet| quote(&packet, by, len));
        for kind in KINDS {
            for from in [ROUTER, one.remote.ip()] {
                let message = about(kind, sent.clone()).packet(from, one.outside.ip());
                let expected = about(kind, before.clone())
                    .packet(from, one.inside.ip())
                    .linked_as(&message);
                gateway.comes_in(message).becomes(expected, &["in_error"]);
            }
        }
    }
}

/// The inside host, or a router before it, cannot take a packet on; the remote end is told, from
/// the only address that it knows.
#[test]
fn errors_from_inside_reach_the_remote_end() {
    for (by, [_, make], len) in QUOTED {
        let one = Conversation::new(2, by).of_port(5000).by_port(PORT);
        let mut gateway = nat(NatRow {
            ports: [PORT, PORT],
            ..row()
        });
        one.open(&mut gateway, &BINDS);
        let [before, got] = one.arriving(make).map(|packet| quote(&packet, by, len));
        for kind in KINDS {
            for from in [INSIDE_ROUTER, one.inside.ip()] {
                let message = about(kind, got.clone()).packet(from, one.remote.ip());
                let expected = about(kind, before.clone())
                    .packet(one.outside.ip(), one.remote.ip())
                    .linked_as(&message);
                gateway.leaves(message).becomes(expected, &["out_error"]);
            }
        }
    }
}

/// An answer of the inside host to a stranger is answered with an error.
#[test]
fn errors_about_sessions_of_strangers_find_their_way() {
    let one = Conversation::new(2, Transport::Udp);
    let mut gateway = nat(row());
    one.begin(&mut gateway, &BINDS);
    let called = one.with(remote(9));
    called.open_from_outside(&mut gateway);
    let [before, sent] = called.sends().map(|packet| packet.quote(13));
    let message = about(KINDS[1], sent).packet(ROUTER, one.outside.ip());
    let expected = about(KINDS[1], before)
        .packet(ROUTER, one.inside.ip())
        .linked_as(&message);
    gateway.comes_in(message).becomes(expected, &["in_error"]);
}

/// Errors about no session come in for this host; of those of inside hosts none leaves with their
/// address.
#[test]
fn errors_about_no_session_reach_nobody() {
    let one = Conversation::new(2, Transport::Udp);
    let mut gateway = nat(row());
    one.open(&mut gateway, &BINDS);
    let strange = [
        one.with(remote(9)),
        one.by_port(PORT + 1).of_port(PORT + 1),
        Conversation::new(3, Transport::Udp).by_port(PORT + 2),
    ];
    for strange in strange {
        let [_, sent] = strange.sends().map(|packet| packet.quote(13));
        let [_, got] = strange.gets().map(|packet| packet.quote(13));
        for kind in KINDS {
            gateway
                .comes_in(about(kind, sent.clone()).packet(ROUTER, one.outside.ip()))
                .passes();
            let message = about(kind, got.clone());
            let leaves = message.packet(one.inside.ip(), one.remote.ip());
            gateway
                .leaves(&leaves)
                .is_dropped(Outcome::OutDropUntranslated);
            gateway.leaves(leaves).at(LAN).passes();
            gateway
                .leaves(message.packet(one.outside.ip(), one.remote.ip()))
                .passes();
        }
    }
    // To another address than the one that has sent the quoted packet.
    let [_, sent] = one.sends().map(|packet| packet.quote(13));
    let elsewhere = about(KINDS[0], sent).packet(ROUTER, Family::V4.also_host());
    gateway.comes_in(elsewhere.link_to(HERE)).passes();
}
