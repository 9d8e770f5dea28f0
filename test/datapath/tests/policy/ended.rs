//! What becomes of packets that match, by action, direction and the packets that a rule names.

use std::net::IpAddr;

use etherparse::IpNumber;
use xdptun_common::address::address_bytes;
use xdptun_common::again::{OF_TUNNEL, OWN};
use xdptun_common::policy::rule::{Action, Direction, Network, Rule, Told};
use xdptun_common::wire::Protocol;
use xdptun_test_datapath::case::Verdict;
use xdptun_test_datapath::policy::{Ended, Policy, rule};
use xdptun_test_datapath::{Family, Skb};

use crate::{PORTS, datagram, segment};

/// What makes a rule another.
type Change = Box<dyn Fn(&mut Rule)>;

const PATTERN: &[u8] = b"STEPH";

fn passed(counters: &[&'static str]) -> Ended {
    Ended::so(Verdict::Pass, counters)
}

fn dropped(counters: &[&'static str]) -> Ended {
    Ended::so(Verdict::Drop, counters)
}

#[test]
fn each_action_ends_packets_in_its_way() {
    for (action, direction, dry_run, expected) in [
        (Action::Count, Direction::In, 0, passed(&["in_matched"])),
        (Action::Log, Direction::In, 0, passed(&["in_matched"])),
        (
            Action::Drop,
            Direction::In,
            0,
            dropped(&["in_drop_matched"]),
        ),
        (Action::Reset, Direction::In, 0, dropped(&["in_drop_reset"])),
        (Action::Drop, Direction::In, 1, passed(&["in_dry_run"])),
        (Action::Reset, Direction::In, 1, passed(&["in_dry_run"])),
        (Action::Count, Direction::Out, 0, passed(&["out_matched"])),
        (Action::Log, Direction::Out, 0, passed(&["out_matched"])),
        (
            Action::Drop,
            Direction::Out,
            0,
            dropped(&["out_drop_matched"]),
        ),
        (
            Action::Reset,
            Direction::Out,
            0,
            dropped(&["out_drop_reset"]),
        ),
        (Action::Drop, Direction::Out, 1, passed(&["out_dry_run"])),
        (Action::Reset, Direction::Out, 1, passed(&["out_dry_run"])),
    ] {
        let mut one = rule(action, &[PATTERN]);
        one.direction = direction as u8;
        one.dry_run = dry_run;
        let mut policy = Policy::new(&[one]);
        let (other, searched) = match direction {
            Direction::In => (Direction::Out, "in_searched"),
            Direction::Out => (Direction::In, "out_searched"),
        };
        let mut hits = 0;
        for family in Family::ALL {
            for packet in [datagram, segment].map(|make| make(family, b"..STEPH..").bytes()) {
                let ended = policy.meets(direction, &packet, Skb::default());
                assert_eq!(ended, expected, "{action:?} {direction:?} {family:?}");
                hits += 1;
                assert_eq!(policy.hits(1), [hits]);
                assert_eq!(policy.meets(other, &packet, Skb::default()), passed(&[]));
            }
            for packet in [datagram, segment].map(|make| make(family, b"..STEPG..").bytes()) {
                let ended = policy.meets(direction, &packet, Skb::default());
                assert_eq!(ended, passed(&[searched]));
            }
        }
        assert_eq!(policy.hits(1), [hits]);
    }
}

#[test]
fn packets_without_payload_are_not_searched() {
    let mut policy = Policy::new(&[rule(Action::Drop, &[b"x"])]);
    for family in Family::ALL {
        assert_eq!(policy.comes_in(datagram(family, b"")), passed(&[]));
        assert_eq!(policy.comes_in(segment(family, b"")), passed(&[]));
        // Padding of a short frame is no payload.
        let padded = segment(family, b"").padded_to(100).bytes();
        assert_eq!(policy.comes_in(padded), passed(&[]));
        let header = IpNumber::GRE;
        let other = xdptun_test_datapath::Packet::other(family.peer(), family.host(), header);
        assert_eq!(policy.comes_in(other.payload(*b"xxxx")), passed(&[]));
    }
}

/// A rule that names addresses, ports or a protocol searches those packets alone.
#[test]
fn rules_search_the_packets_that_they_name() {
    let host = |address: IpAddr| Network {
        address: address_bytes(address),
        mask: [0xff; 16],
    };
    for family in Family::ALL {
        let (peer, own, stranger) = (family.peer(), family.host(), family.stranger());
        let fits: Vec<Change> = vec![
            Box::new(|_| {}),
            Box::new(|rule| rule.port = PORTS.0),
            Box::new(|rule| rule.port = PORTS.1),
            Box::new(move |rule| rule.from = host(peer)),
            Box::new(move |rule| rule.to = host(own)),
        ];
        let misses: Vec<Change> = vec![
            Box::new(|rule| rule.port = 81),
            Box::new(move |rule| rule.from = host(stranger)),
            Box::new(move |rule| rule.to = host(peer)),
        ];
        let protocols = [
            (
                Protocol::TCP,
                segment(family, PATTERN),
                datagram(family, PATTERN),
            ),
            (
                Protocol::UDP,
                datagram(family, PATTERN),
                segment(family, PATTERN),
            ),
        ];
        for (protocol, packet, other) in protocols {
            for (changes, expected) in [
                (&fits, dropped(&["in_drop_matched"])),
                (&misses, passed(&[])),
            ] {
                for change in changes {
                    let mut one = rule(Action::Drop, &[PATTERN]);
                    one.protocol = protocol.0;
                    change(&mut one);
                    let mut policy = Policy::new(&[one]);
                    assert_eq!(policy.comes_in(&packet), expected);
                    assert_eq!(policy.comes_in(&other), passed(&[]));
                }
            }
        }
    }
}

/// Those that only count go on to the next rule; one that drops ends the packet.
#[test]
fn rules_apply_in_their_order() {
    let mut policy = Policy::new(&[
        rule(Action::Count, &[b"STEPH"]),
        rule(Action::Count, &[b"absent"]),
        rule(Action::Drop, &[b"PH.."]),
        rule(Action::Count, &[b"STEPH"]),
    ]);
    let family = Family::V4;
    let ended = policy.comes_in(datagram(family, b"..STEPH.."));
    assert_eq!(ended, dropped(&["in_drop_matched"]));
    assert_eq!(policy.hits(4), [1, 0, 1, 0]);
    let ended = policy.comes_in(datagram(family, b"..STEPH"));
    assert_eq!(ended, passed(&["in_matched"]));
    assert_eq!(policy.hits(4), [2, 0, 1, 1]);
    // No rule: nothing is searched.
    policy.set_rules(&[]);
    assert_eq!(policy.comes_in(datagram(family, b"..STEPH..")), passed(&[]));
}

/// Later fragments have no ports. Rules that name none search them.
#[test]
fn fragments_are_searched_one_by_one() {
    for family in Family::ALL {
        let later = datagram(family, PATTERN).fragment(100, false).bytes();
        let first = datagram(family, PATTERN).fragment(0, true).bytes();
        for (change, of_first, of_later) in [
            ((|_| {}) as fn(&mut Rule), true, true),
            (|rule| rule.protocol = Protocol::UDP.0, true, true),
            (|rule| rule.port = PORTS.1, true, false),
            (|rule| rule.end = 5, true, false),
        ] {
            let mut one = rule(Action::Drop, &[PATTERN]);
            change(&mut one);
            let mut policy = Policy::new(&[one]);
            for (packet, matches) in [(&first, of_first), (&later, of_later)] {
                let expected = match matches {
                    true => dropped(&["in_drop_matched"]),
                    false => passed(&[]),
                };
                assert_eq!(policy.comes_in(packet.clone()), expected, "{family:?}");
            }
        }
    }
}

/// Receivers of IPv6 read the protocol of a datagram from its first fragment, and from no other.
#[test]
fn later_fragments_of_ipv6_may_name_any_protocol() {
    // TCP, no next header, destination options.
    for number in [6, 59, 60] {
        let mut later = datagram(Family::V6, PATTERN).fragment(100, false).bytes();
        assert_eq!(later[54], IpNumber::UDP.0, "of the fragment header");
        later[54] = number;
        let mut one = rule(Action::Drop, &[PATTERN]);
        one.protocol = Protocol::UDP.0;
        let ended = Policy::new(&[one]).comes_in(later);
        assert_eq!(ended, dropped(&["in_drop_matched"]), "{number}");
    }
}

/// What the search does not find the payload of is taken for a match by rules that drop, whatever
/// they name, and for none by others.
#[test]
fn packets_that_hide_their_payload_are_dropped() {
    let chain = |headers: usize| {
        (0..headers).fold(datagram(Family::V6, PATTERN), |packet, _| {
            packet.extension(IpNumber::IPV6_DESTINATION_OPTIONS, 1)
        })
    };
    let tagged = |types: &[u16], id| {
        let packet = datagram(Family::V4, PATTERN);
        let packet = types
            .iter()
            .fold(packet, |packet, kind| packet.tag(*kind, id));
        packet.bytes()
    };
    let mut other = rule(Action::Drop, &[b"absent"]);
    other.port = 9;
    other.protocol = Protocol::TCP.0;
    other.direction = Direction::In as u8;
    for hidden in [
        chain(9).bytes(),
        tagged(&[0x8100], 0),
        tagged(&[0x88a8, 0x8100], 0),
    ] {
        let ended = Policy::new(&[other.clone()]).comes_in(hidden.clone());
        assert_eq!(ended, dropped(&["in_drop_matched", "searches_cut"]));
        let mut counting = Policy::new(&[rule(Action::Count, &[PATTERN])]);
        let ended = counting.comes_in(hidden);
        assert_eq!(ended, passed(&["in_searched", "searches_cut"]));
        assert_eq!(counting.hits(1), [0]);
    }
    // A chain that is followed, and the tag of a VLAN.
    for plain in [chain(8).bytes(), tagged(&[0x8100], 5)] {
        let ended = Policy::new(&[other.clone()]).comes_in(plain);
        assert_eq!(ended, passed(&[]));
    }
}

/// A fragment that waited for its first one came in before it did.
#[test]
fn held_packets_are_searched_once() {
    let mut policy = Policy::new(&[rule(Action::Drop, &[PATTERN])]);
    let packet = datagram(Family::V4, PATTERN).bytes();
    let held = Skb {
        mark: OWN,
        ..Skb::default()
    };
    assert_eq!(policy.meets(Direction::In, &packet, held), passed(&[]));
}

/// A packet that passes egress again, or that xdptun made, was counted or is none.
#[test]
fn marked_packets_are_not_searched_on_their_way_out() {
    let mut one = rule(Action::Drop, &[PATTERN]);
    one.direction = Direction::Out as u8;
    let mut policy = Policy::new(&[one]);
    let packet = datagram(Family::V4, PATTERN).bytes();
    let marked = |mark| Skb {
        mark,
        ..Skb::default()
    };
    for mark in [OWN, OF_TUNNEL + 1, Told::Out as u32] {
        let ended = policy.meets(Direction::Out, &packet, marked(mark));
        assert_eq!(ended, passed(&[]));
    }
    let ended = policy.meets(Direction::Out, &packet, marked(Told::In as u32));
    assert_eq!(ended, Ended::so(Verdict::Redirect, &[]), "it comes in");
    let ended = policy.meets(Direction::Out, &packet, marked(7));
    assert_eq!(ended, dropped(&["out_drop_matched"]));
}
