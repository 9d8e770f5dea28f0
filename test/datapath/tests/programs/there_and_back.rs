//! Random datagrams: what arrives at the peer, and what an ICMP error about
//! them says to their sender.

use std::cell::RefCell;

use etherparse::IpNumber;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::state::Flow;
use xdptun_test_datapath::{Family, Message, Moment, Packet, Path, Program, Skb};

use crate::{datapath, largest};

const CASES: u32 = 4000;

#[derive(Clone, Debug)]
struct Datagram {
    path: Path,
    packet: Packet,
    /// The same without IP options.
    plain: Packet,
    payload_len: usize,
    has_checksum: bool,
    has_options: bool,
}

/// Words of IPv4 options, and IPv6 options headers with their lengths in units
/// of eight bytes: of either, what fits a packet and 64 bytes.
type Options = (usize, Vec<(u8, u8)>);

fn options() -> impl Strategy<Value = Options> {
    let header = (prop_oneof![Just(0u8), Just(60)], 1u8..=8);
    let chain = proptest::collection::vec(header, 0..4).prop_map(|mut chain| {
        let mut room = 8;
        chain.retain(|(_, units)| {
            let fits = *units <= room;
            room -= if fits { *units } else { 0 };
            fits
        });
        chain
    });
    prop_oneof![
        3 => Just((0, Vec::new())),
        2 => (0usize..=10, chain),
    ]
}

fn with_options(packet: Packet, (words, chain): &Options) -> Packet {
    let headers = chain.iter();
    headers.fold(packet.ip_options(*words), |packet, (number, units)| {
        packet.extension(IpNumber(*number), *units)
    })
}

fn datagrams() -> impl Strategy<Value = Datagram> {
    let family = prop_oneof![Just(Family::V4), Just(Family::V6)];
    let ports = prop_oneof![
        (Just(8000u16), any::<u16>()),
        (any::<u16>(), Just(8000u16)),
        Just((8000, 443)),
    ];
    let ip = (any::<u8>(), 1u8.., any::<u16>());
    (family, ports, ip, any::<bool>(), options())
        .prop_flat_map(
            |(family, (local, remote), (tos, ttl, id), has_checksum, options)| {
                let path = Path::new(family, local, remote);
                let payload = prop_oneof![
                    proptest::collection::vec(any::<u8>(), 0..=largest(family)),
                    proptest::collection::vec(any::<u8>(), 0..=70),
                    proptest::collection::vec(prop_oneof![Just(0u8), Just(0xff)], 0..=200),
                ];
                payload.prop_map(move |payload| {
                    let payload_len = payload.len();
                    let plain = path.outbound().payload(payload).tos(tos).ttl(ttl).id(id);
                    let packet = with_options(plain.clone(), &options);
                    Datagram {
                        path,
                        has_options: packet.bytes() != plain.bytes(),
                        packet,
                        plain,
                        payload_len,
                        has_checksum,
                    }
                })
            },
        )
        .no_shrink()
}

/// Both ends of a flow, as each end's host has it. Ports may be equal, but
/// addresses never are, so the two can share a table.
fn ends(path: Path, numbers: (u32, u32, u64)) -> [(Path, Flow); 2] {
    let at = Moment::now();
    let (ours, theirs, count) = numbers;
    let mut here = path.established(at);
    here.sent_at = at.ns();
    here.tx_packets = count;
    let mut there = here;
    (here.snd_una, here.snd_nxt) = (ours, ours);
    (here.rcv_nxt, here.acked) = (theirs, theirs);
    (there.snd_una, there.snd_nxt) = (theirs, theirs);
    (there.rcv_nxt, there.acked) = (ours, ours);
    [(path, here), (path.reversed(), there)]
}

/// The peer restores the datagram that this host sent; a checksum that was not made
/// is there afterwards.
#[test]
fn what_arrives_is_what_was_sent() {
    let datapath = RefCell::new(datapath());
    let numbers = any::<(u32, u32, u64)>();
    let inbound = prop_oneof![
        Just(Program::Ingress),
        Just(Program::Xdp),
        Just(Program::XdpFrags)
    ];
    let mut runner = TestRunner::new(Config {
        cases: CASES,
        failure_persistence: None,
        ..Config::default()
    });
    let result = runner.run(
        &(datagrams(), numbers, inbound),
        |(datagram, numbers, inbound)| {
            let mut datapath = datapath.borrow_mut();
            let ends = ends(datagram.path, numbers).map(|(path, flow)| (path.key(), flow));
            datapath.set_flows(ends.iter().map(|(key, flow)| (key, flow)));

            let packet = datagram.packet.bytes();
            let sent = if datagram.has_checksum {
                packet.clone()
            } else {
                datagram.packet.without_checksum().bytes()
            };
            let segment = datapath.run(Program::Egress, &sent, Skb::default());
            prop_assert_eq!(segment.verdict, u32::MAX);
            prop_assert_eq!(segment.packet.len(), packet.len() + 12);

            // XDP leaves options to tc.
            let program = if datagram.has_options {
                Program::Ingress
            } else {
                inbound
            };
            let pass = if program.is_xdp() { 2 } else { u32::MAX };
            // The link carries it to the peer, which is the loopback again.
            let arrived = |frame: &[u8]| [&[0; 6], &frame[6..]].concat();
            let restored = datapath.run(program, &arrived(&segment.packet), Skb::default());
            prop_assert_eq!(restored.verdict, pass);
            prop_assert_eq!(restored.packet, arrived(&packet));

            let flows = datapath.flows();
            let (here, there) = (flows[&ends[0].0], flows[&ends[1].0]);
            prop_assert_eq!(
                here.tx_bytes - ends[0].1.tx_bytes,
                there.rx_bytes - ends[1].1.rx_bytes
            );
            prop_assert_eq!(here.snd_nxt, there.rcv_nxt);
            Ok(())
        },
    );
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// A router on the way quotes some of the segment; this host's socket hears of
/// the datagram that it sent.
#[test]
fn an_error_is_about_what_was_sent() {
    let datapath = RefCell::new(datapath());
    let numbers = any::<(u32, u32, u64)>();
    let quoted = any::<prop::sample::Index>();
    let mut runner = TestRunner::new(Config {
        cases: CASES,
        failure_persistence: None,
        ..Config::default()
    });
    let strategy = (datagrams(), numbers, quoted, 0u32..70_000);
    let result = runner.run(&strategy, |(datagram, numbers, quoted, mtu)| {
        let mut datapath = datapath.borrow_mut();
        datapath.reset();
        let [(path, flow), _] = ends(datagram.path, numbers);
        datapath.set_flows([(&path.key(), &flow)]);
        let segment = datapath.run(Program::Egress, &datagram.packet.bytes(), Skb::default());
        let sent = datapath.counted();
        prop_assert_eq!(
            sent.get(Outcome::TxDisguised.name()),
            Some(&1),
            "{:?}",
            sent
        );

        let packet = &segment.packet[14..];
        let transport = packet.len() - datagram.payload_len - 20;
        let family = path.family();
        let least = 8;
        let len = transport + least + quoted.index(packet.len() - transport - least + 1);
        let (router, host) = (family.stranger(), path.local.ip());
        // A datagram that fits is not too big; IPv6 has no MTU below 1280.
        let (kind, code) = match family {
            Family::V4 => (3, 4),
            Family::V6 => (1, 0),
        };
        let mtu = if family == Family::V4 {
            mtu % packet.len() as u32
        } else {
            0
        };
        let message = |rest, body| Message {
            kind,
            code,
            rest,
            body,
        };
        let arrived = message(mtu, packet[..len].to_vec());
        let arrived = arrived.packet(router, host).bytes();
        let ran = datapath.run(Program::Ingress, &arrived, Skb::default());

        let quote = datagram.plain.without_checksum().quote(8);
        let expected = message(mtu.saturating_sub(12), quote);
        prop_assert_eq!(ran.packet, expected.packet(router, host).bytes());
        prop_assert_eq!(ran.verdict, u32::MAX);
        let counted = datapath.counted();
        prop_assert_eq!(
            counted.get(Outcome::RxIcmp.name()),
            Some(&1),
            "{:?}",
            counted
        );
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
