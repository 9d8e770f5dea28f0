//! What the daemon is told.

use xdptun_common::address::address_bytes;
use xdptun_common::policy::event::{FRAME, Kind};
use xdptun_common::policy::rule::{Action, Direction};
use xdptun_common::wire::Protocol;
use xdptun_test_datapath::case::Verdict;
use xdptun_test_datapath::policy::{Ended, Policy, rule};
use xdptun_test_datapath::{Family, Skb};

use crate::{PORTS, datagram, segment};

#[test]
fn a_match_is_logged_with_its_tuple_and_offset() {
    for (family, direction) in [(Family::V4, Direction::In), (Family::V6, Direction::Out)] {
        let mut one = rule(Action::Log, &[b"STEPH"]);
        one.direction = direction as u8;
        one.first = 2;
        let mut policy = Policy::new(&[one]);
        let packet = segment(family, b"....STEPH").bytes();
        policy.meets(direction, &packet, Skb::default());
        let [(kind, event, frame)] = &policy.events()[..] else {
            panic!("one event");
        };
        assert_eq!((*kind, frame.len(), event.offset), (Kind::Log, 0, 4));
        assert_eq!(event.interface, 1);
        assert_eq!(event.source, address_bytes(family.peer()));
        assert_eq!(event.destination, address_bytes(family.host()));
        let ports = [event.source_port, event.destination_port].map(u16::from_be_bytes);
        assert_eq!(ports, [PORTS.0, PORTS.1]);
        assert_eq!(
            (event.protocol, event.direction),
            (Protocol::TCP.0, direction as u8)
        );
        assert_eq!(&event.rule[..5], b"name\0");
    }
}

/// Too many lines tell nobody anything; every match is counted.
#[test]
fn the_log_has_a_limit() {
    let mut policy = Policy::new(&[rule(Action::Log, &[b"STEPH"])]);
    let packet = datagram(Family::V4, b"STEPH").bytes();
    let (mut logged, mut unlogged) = (0, 0);
    for _ in 0..1000 {
        let counted = policy.comes_in(packet.clone()).counted;
        assert_eq!(counted["in_matched"], 1);
        match counted.get("matches_unlogged") {
            Some(_) => unlogged += 1,
            None => logged += 1,
        }
    }
    assert_eq!(policy.hits(1), [1000]);
    assert_eq!(policy.events().len(), logged);
    assert!(unlogged > 0 && logged >= 64, "{logged} of 1000");
}

/// The daemon gets the packet, or its first bytes, to tell both ends.
#[test]
fn the_daemon_gets_packets_that_are_reset() {
    let mut policy = Policy::new(&[rule(Action::Reset, &[b"STEPH"])]);
    for (family, padding) in [(Family::V4, 0), (Family::V6, 3000)] {
        let payload = [b"STEPH", &vec![b'.'; padding][..]].concat();
        let packet = segment(family, &payload).bytes();
        let expected = Ended::so(Verdict::Drop, &["in_drop_reset"]);
        assert_eq!(policy.comes_in(packet.clone()), expected);
        let [(kind, event, frame)] = &policy.events()[..] else {
            panic!("one event");
        };
        assert_eq!((*kind, event.offset), (Kind::Reset, 0));
        assert!(*frame == packet[..packet.len().min(FRAME)]);
    }
    // Nobody is told of a later fragment.
    let later = datagram(Family::V4, b"STEPH").fragment(100, false);
    let expected = Ended::so(Verdict::Drop, &["in_drop_reset", "resets_untold"]);
    assert_eq!(policy.comes_in(later), expected);
    assert_eq!(policy.events(), []);
}
