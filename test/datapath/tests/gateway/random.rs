//! Random packets: what one translation changes, the opposite one changes back.

use std::env;
use std::net::SocketAddr;

use xdptun_lab::seeded::Random;
use xdptun_test_datapath::gateway::{Gateway, NatRow};
use xdptun_test_datapath::{Family, Packet, flags};

use crate::Hosts;
use crate::inside::{ARRIVES, BINDS, Conversation, LEAVES, Transport, nat, query, reply, row};

/// How many packets go through the programs of each family, there and back.
const PACKETS: u64 = 1500;

/// The environment variable with another seed.
const SEED: &str = "XDPTUN_SEED";

/// Every field that a translation leaves alone.
#[derive(Clone, Debug)]
struct Shape {
    is_segment: bool,
    /// Not for segments: they always have one.
    has_checksum: bool,
    payload: Vec<u8>,
    numbers: (u32, u32),
    window: u16,
    tcp_options: Vec<u8>,
    tos: u8,
    ttl: u8,
    id: u16,
}

impl Shape {
    fn random(random: &mut Random, family: Family) -> Self {
        // One, two and three words, each with its own padding.
        let tcp_options = random.pick(&[&[][..], &[1, 1, 1, 1], &[3, 3, 7, 1, 1, 1, 1, 1]]);
        let len = random.between(0, 1400);
        Self {
            is_segment: random.once_in(2),
            has_checksum: family == Family::V6 || !random.once_in(4),
            payload: random.bytes(len),
            numbers: (random.number(), random.number()),
            window: random.boundary(),
            tcp_options: tcp_options.to_vec(),
            tos: random.byte() & 0xfc,
            ttl: random.byte().max(2),
            id: random.boundary(),
        }
    }

    /// A packet of this shape between two ends.
    fn packet(&self, family: Family, from: SocketAddr, to: SocketAddr) -> Packet {
        let packet = Packet::datagram(from, to).payload(self.payload.clone());
        let packet = match (self.is_segment, self.has_checksum) {
            (true, _) => packet
                .segment(flags::DATA, self.numbers.0, self.numbers.1)
                .window(self.window)
                .options(&self.tcp_options),
            (false, true) => packet,
            (false, false) => packet.without_checksum(),
        };
        self.dressed(family, packet)
    }

    /// With the fields of this shape in its IP header.
    fn dressed(&self, family: Family, packet: Packet) -> Packet {
        let packet = packet.tos(self.tos).ttl(self.ttl);
        match family {
            Family::V4 => packet.id(self.id),
            Family::V6 => packet,
        }
    }
}

/// Opens a session of each protocol, so that all packets belong to one.
fn open(hosts: Hosts, gateway: &mut Gateway) {
    hosts.connect(gateway);
    let [call, forwarded] = hosts.call();
    let [answer, returned] = hosts.answer();
    gateway
        .comes_in(&call)
        .becomes(&forwarded, &["in_forwarded", "sessions_began"]);
    gateway.leaves(answer).becomes(returned, &["out_returned"]);
    gateway
        .comes_in(call)
        .becomes(forwarded, &["in_forwarded", "sessions_proven"]);
}

#[test]
fn there_and_back_is_the_identity() {
    let seed = env::var(SEED).map_or(1, |seed| seed.parse().expect("a number"));
    for (stream, family) in (0..).zip(Family::ALL) {
        let hosts = Hosts::new(family, 0);
        let mut gateway = hosts.gateway();
        open(hosts, &mut gateway);
        for iteration in 0..PACKETS {
            let shape = Shape::random(&mut Random::new(seed, stream, iteration), family);
            eprintln!("{SEED}={seed} {family:?} {iteration}: {shape:?}");
            let call = shape.packet(family, hosts.client, hosts.listen);
            let there = shape.packet(family, hosts.client, hosts.back_end);
            let there = there.linked_as(&call);
            gateway.comes_in(call).becomes(there, &["in_forwarded"]);
            // The same packet, sent back by the other end, comes to the client as the one that
            // it sent, turned around.
            let answer = shape.packet(family, hosts.back_end, hosts.client);
            let back = shape.packet(family, hosts.listen, hosts.client);
            let back = back.linked_as(&answer);
            gateway.leaves(answer).becomes(back, &["out_returned"]);
        }
    }
}

/// The same with the ends of inside hosts, whose ports are changed as well.
#[test]
fn there_and_back_is_the_identity_for_inside_hosts() {
    /// The one port that is lent.
    const OUTSIDE: u16 = 20_345;
    const STREAM: u64 = 2;
    let family = Family::V4;
    let seed = env::var(SEED).map_or(1, |seed| seed.parse().expect("a number"));
    let mut gateway = nat(NatRow {
        ports: [OUTSIDE, OUTSIDE],
        ..row()
    });
    let [udp, tcp, echo] = Transport::ALL.map(|by| {
        let one = Conversation::new(2, by).of_port(51_234).by_port(OUTSIDE);
        one.open(&mut gateway, &BINDS);
        one
    });
    for iteration in 0..PACKETS {
        let mut random = Random::new(seed, STREAM, iteration);
        let shape = Shape::random(&mut random, family);
        eprintln!("{SEED}={seed} nat {iteration}: {shape:?}");
        let is_echo = random.once_in(3);
        let one = match (is_echo, shape.is_segment) {
            (true, _) => echo,
            (false, true) => tcp,
            (false, false) => udp,
        };
        let [sent, becomes] = one.leaving(|from, to| match is_echo {
            true => shape.dressed(family, query(from, to.ip(), &shape.payload)),
            false => shape.packet(family, from, to),
        });
        gateway.leaves(sent).becomes(becomes, &LEAVES);
        let [sent, becomes] = one.arriving(|from, to| match is_echo {
            true => shape.dressed(family, reply(from.ip(), to, &shape.payload)),
            false => shape.packet(family, from, to),
        });
        gateway.comes_in(sent).becomes(becomes, &ARRIVES);
    }
}
