//! Random packets, close to those that the programs handle.

use std::cell::RefCell;
use std::collections::BTreeMap;

use etherparse::checksum::Sum16BitWords;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use xdptun_common::report::outcome::Fate;
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_test_datapath::path::{HTTPS, OWNED};
use xdptun_test_datapath::{Family, Message, Moment, Path, Program, Skb};

use crate::datapath;

const CASES: u32 = 12_000;

/// A random packet, close to those that the programs handle.
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
        Just(Program::Xdp),
        Just(Program::XdpFrags)
    ];
    // An ICMP error about the packet, not the packet.
    let error = proptest::option::weighted(0.2, (0u8..14, 0u8..5, any::<u32>()));
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
        (state, mark, error),
    )
        .prop_map(
            |(program, path, len, segment, (words, fragment), damage, cut, other)| {
                let (state, mark, error) = other;
                let ours = error.is_some() || program == Program::Egress && mark != 0x7864_7000;
                let mut packet = if ours {
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
                    let mut next = [base.rcv_nxt, base.snd_nxt];
                    if ours {
                        next.reverse();
                    }
                    packet = packet
                        .segment(
                            flags,
                            next[0].wrapping_add(sequence).wrapping_sub(150),
                            next[1].wrapping_add(acknowledgment).wrapping_sub(150),
                        )
                        .options(&vec![1; options * 4]);
                }
                if let Some((kind, code, rest)) = error {
                    let body = packet.without_link().bytes();
                    let message = Message {
                        kind,
                        code,
                        rest,
                        body,
                    };
                    packet = message.packet(path.family().stranger(), path.local.ip());
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
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    // Nothing follows such a header (`ip6_rcv_core`); etherparse takes all that follows.
    if let Some(NetSlice::Ipv6(ip)) = &packet.net
        && ip.header().payload_length() == 0
    {
        return None;
    }
    match packet.transport? {
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
        cases: CASES,
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
        let xdp = odd.program.is_xdp();
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
                prop_assert!(datapath.fragmented().is_empty());
            }
            [(name, 1)] => {
                let answered = ran.verdict == redirect && counted.len() == 2;
                match fates[name] {
                    Fate::Pass | Fate::PassEmpty => prop_assert!(passes, "{name}: {}", ran.verdict),
                    Fate::Hold | Fate::Split | Fate::Return | Fate::ComeIn => {
                        prop_assert_eq!(ran.verdict, redirect);
                    }
                    Fate::Consume | Fate::Lose => {
                        prop_assert!(ran.verdict == drop || answered, "{name}: {}", ran.verdict);
                    }
                }
                if *name == Outcome::RxRestored.name() {
                    prop_assert!(restored_lengths_agree(&ran.packet, odd.path.family()));
                }
                if *name == Outcome::RxIcmp.name() {
                    prop_assert!(is_whole_message(&ran.packet), "{:x?}", ran.packet);
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

/// IP and UDP name the same length, and the protocol is UDP, behind options if
/// there are any.
fn restored_lengths_agree(packet: &[u8], family: Family) -> bool {
    let number = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    let (protocol, at, end) = match family {
        Family::V4 => {
            let header_len = usize::from(packet[14] & 0xf) * 4;
            (packet[23], 14 + header_len, 14 + number(16))
        }
        Family::V6 => {
            let (mut protocol, mut at) = (packet[20], 54);
            while [0, 60].contains(&protocol) {
                protocol = packet[at];
                at += (usize::from(packet[at + 1]) + 1) * 8;
            }
            (protocol, at, 54 + number(18))
        }
    };
    protocol == 17 && number(at + 4) == end - at
}

/// An ICMP message that ends with the frame, and whose checksum is right: with
/// it the sum is zero (RFC 1071).
fn is_whole_message(packet: &[u8]) -> bool {
    let Ok(SlicedPacket { net: Some(net), .. }) = SlicedPacket::from_ethernet(packet) else {
        return false;
    };
    let (sum, message) = match net {
        NetSlice::Ipv4(ip) => (Sum16BitWords::new(), ip.payload().payload),
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            let message = ip.payload().payload;
            let sum = Sum16BitWords::new()
                .add_16bytes(header.source())
                .add_16bytes(header.destination())
                .add_2bytes([0, 58])
                .add_2bytes((message.len() as u16).to_be_bytes());
            (sum, message)
        }
        NetSlice::Arp(_) => return false,
    };
    packet.ends_with(message) && sum.add_slice(message).ones_complement() == 0
}
