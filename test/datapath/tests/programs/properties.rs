//! Properties over random datagrams.

use std::cell::RefCell;
use std::collections::BTreeMap;

use etherparse::{SlicedPacket, TransportSlice};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use xdptun_common::counter::{Fate, Outcome};
use xdptun_common::flow::Flow;
use xdptun_test_datapath::path::{HTTPS, OWNED};
use xdptun_test_datapath::{Family, Moment, Packet, Path, Program, Skb};

use crate::{datapath, largest};

const CASES: u32 = 4000;

#[derive(Clone, Debug)]
struct Datagram {
    path: Path,
    packet: Packet,
    has_checksum: bool,
}

fn datagrams() -> impl Strategy<Value = Datagram> {
    let family = prop_oneof![Just(Family::V4), Just(Family::V6)];
    let ports = prop_oneof![
        (Just(8000u16), any::<u16>()),
        (any::<u16>(), Just(8000u16)),
        Just((8000, 443)),
    ];
    let ip = (any::<u8>(), 1u8.., any::<u16>());
    (family, ports, ip, any::<bool>())
        .prop_flat_map(|(family, (local, remote), (tos, ttl, id), has_checksum)| {
            let path = Path::new(family, local, remote);
            let payload = prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..=largest(family)),
                proptest::collection::vec(any::<u8>(), 0..=70),
                proptest::collection::vec(prop_oneof![Just(0u8), Just(0xff)], 0..=200),
            ];
            payload.prop_map(move |payload| Datagram {
                path,
                packet: path.outbound().payload(payload).tos(tos).ttl(ttl).id(id),
                has_checksum,
            })
        })
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
    (here.snd_nxt, here.rcv_nxt, here.acked) = (ours, theirs, theirs);
    (there.snd_nxt, there.rcv_nxt, there.acked) = (theirs, ours, ours);
    [(path, here), (path.reversed(), there)]
}

/// What the peer restores is what this host sent; a checksum that was not made
/// is there afterwards.
#[test]
fn what_arrives_is_what_was_sent() {
    let datapath = RefCell::new(datapath());
    let numbers = any::<(u32, u32, u64)>();
    let by_xdp = any::<bool>();
    let mut runner = TestRunner::new(Config {
        cases: CASES,
        failure_persistence: None,
        ..Config::default()
    });
    let result = runner.run(
        &(datagrams(), numbers, by_xdp),
        |(datagram, numbers, by_xdp)| {
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

            let (program, pass) = if by_xdp {
                (Program::FastIn, 2)
            } else {
                (Program::Ingress, u32::MAX)
            };
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

/// A packet that may be anything near to what the programs look at.
#[derive(Clone, Debug)]
struct Odd {
    program: Program,
    path: Path,
    frame: Vec<u8>,
    state: Option<u32>,
    mark: u32,
}

fn odd_packets() -> impl Strategy<Value = Odd> {
    let path = prop_oneof![
        Just(Path::client(Family::V4)),
        Just(Path::server(Family::V4)),
        Just(Path::client(Family::V6)),
        Just(Path::server(Family::V6)),
    ];
    let program = prop_oneof![
        Just(Program::Egress),
        Just(Program::Ingress),
        Just(Program::FastIn)
    ];
    let segment = proptest::option::weighted(0.7, (any::<u8>(), 0u32..300, 0u32..300, 0usize..=10));
    let shape = (
        0usize..=10,
        proptest::option::weighted(0.2, (0u16..3, any::<bool>())),
    );
    // Headers are where it matters.
    let damage = proptest::collection::vec((12usize..90, any::<u8>()), 0..4);
    let cut = proptest::option::weighted(0.2, 34usize..120);
    let mark = prop_oneof![4 => Just(0u32), 1 => 0x7864_7000u32..0x7864_7005];
    let state = proptest::option::weighted(0.8, 0u32..6);
    (
        program,
        path,
        0usize..120,
        segment,
        shape,
        damage,
        cut,
        state,
        mark,
    )
        .prop_map(
            |(program, path, len, segment, (words, fragment), damage, cut, state, mark)| {
                let mut packet = if program == Program::Egress && mark != 0x7864_7000 {
                    path.outbound()
                } else {
                    path.inbound()
                };
                packet = packet.payload(vec![0x5a; len]);
                if words > 6 {
                    packet = packet.ip_options(words).extension(60.into(), words as u8);
                }
                if let Some((offset, more)) = fragment {
                    packet = packet.fragment(offset, more);
                }
                if let Some((flags, sequence, acknowledgment, options)) = segment {
                    let base = path.established(Moment::now());
                    packet = packet
                        .segment(
                            flags,
                            base.rcv_nxt.wrapping_add(sequence).wrapping_sub(150),
                            base.snd_nxt.wrapping_add(acknowledgment).wrapping_sub(150),
                        )
                        .options(&vec![1; options * 4]);
                }
                let mut frame = packet.bytes();
                for (at, value) in damage {
                    if let Some(byte) = frame.get_mut(at) {
                        *byte = value;
                    }
                }
                if let Some(cut) = cut {
                    // The kernel runs nothing on less than an IP header.
                    frame.truncate(cut.max(14 + path.family().header_len()));
                }
                Odd {
                    program,
                    path,
                    frame,
                    state,
                    mark,
                }
            },
        )
}

/// The ports of a frame that a strict parser takes for a datagram.
fn datagram_ports(frame: &[u8]) -> Option<[u16; 2]> {
    match SlicedPacket::from_ethernet(frame).ok()?.transport? {
        TransportSlice::Udp(udp) => Some([udp.source_port(), udp.destination_port()]),
        _ => None,
    }
}

fn fates() -> BTreeMap<&'static str, Fate> {
    let outcomes = Outcome::ALL.iter();
    outcomes
        .map(|outcome| (outcome.name(), outcome.fate()))
        .collect()
}

/// Whatever comes: one outcome at most, and without one nothing is touched; a
/// datagram of an owned port never leaves; what is called restored is a datagram.
#[test]
fn odd_packets_have_one_outcome() {
    let datapath = RefCell::new(datapath());
    let fates = fates();
    let mut runner = TestRunner::new(Config {
        cases: 3 * CASES,
        failure_persistence: None,
        ..Config::default()
    });
    let result = runner.run(&odd_packets(), |odd| {
        let mut datapath = datapath.borrow_mut();
        datapath.reset();
        let key = odd.path.key();
        if let Some(state) = odd.state {
            let mut flow = odd.path.established(Moment::now());
            flow.state = state;
            datapath.set_flows([(&key, &flow)]);
        }
        let before = format!("{:?}", datapath.flows());
        let skb = Skb {
            mark: odd.mark,
            ..Skb::default()
        };
        let ran = datapath.run(odd.program, &odd.frame, skb);
        let counted = datapath.counted();
        let after = format!("{:?}", datapath.flows());
        let xdp = odd.program == Program::FastIn;
        let (pass, drop, redirect) = if xdp { (2, 1, 4) } else { (u32::MAX, 2, 7) };
        let passes = ran.verdict == pass;

        let outcomes: Vec<_> = counted
            .iter()
            .filter(|(name, _)| fates.contains_key(*name))
            .collect();
        match outcomes[..] {
            [] => {
                prop_assert!(passes, "verdict {}", ran.verdict);
                prop_assert!(counted.is_empty(), "{counted:?}");
                prop_assert_eq!(&ran.packet, &odd.frame);
                prop_assert_eq!(before, after);
                prop_assert!(datapath.reported().is_empty());
            }
            [(name, 1)] => {
                let answered = ran.verdict == redirect && counted.len() == 2;
                match fates[name] {
                    Fate::Pass => prop_assert!(passes, "{name}: {}", ran.verdict),
                    Fate::Take | Fate::Split => prop_assert_eq!(ran.verdict, redirect),
                    Fate::Drop => {
                        prop_assert!(ran.verdict == drop || answered, "{name}: {}", ran.verdict);
                    }
                }
                if *name == Outcome::RxRestored.name() {
                    prop_assert!(restored_lengths_agree(&ran.packet, odd.path.family()));
                }
            }
            _ => prop_assert!(false, "{counted:?}"),
        }
        if odd.program == Program::Egress
            && passes
            && let Some(ports) = datagram_ports(&ran.packet)
        {
            prop_assert!(
                !ports.iter().any(|port| [OWNED, HTTPS].contains(port)),
                "a datagram of ports {ports:?} leaves"
            );
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// IP and UDP name the same length, and the protocol is UDP.
fn restored_lengths_agree(packet: &[u8], family: Family) -> bool {
    let number = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    let (protocol, payload) = match family {
        Family::V4 => (packet[23], number(16) - 20),
        Family::V6 => (packet[20], number(18)),
    };
    protocol == 17 && number(14 + family.header_len() + 4) == payload
}
