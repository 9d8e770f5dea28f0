//! Where matches lie, and what they look like.

use xdptun_common::policy::rule::{Action, NO_END};
use xdptun_common::policy::search::STEP;
use xdptun_common::policy::table::{MAX_PATTERN, MAX_PATTERNS};
use xdptun_test_datapath::case::Verdict;
use xdptun_test_datapath::policy::{Ended, Policy, folded, rule};
use xdptun_test_datapath::{Family, Packet};

use crate::{datagram, segment};

/// The longest payload that a packet of a test can have: the kernel takes one page.
const LONGEST: usize = 3400;

#[track_caller]
fn check(policy: &mut Policy, packet: &Packet, matches: bool) {
    check_frame(policy, packet.bytes(), matches);
}

#[track_caller]
fn check_frame(policy: &mut Policy, frame: Vec<u8>, matches: bool) {
    let expected = match matches {
        true => Ended::so(Verdict::Drop, &["in_drop_matched"]),
        false => Ended::so(Verdict::Pass, &["in_searched"]),
    };
    assert_eq!(policy.comes_in(frame), expected);
}

/// At the start, around the edge of a chunk, and on the last byte; one byte less is no match.
#[test]
fn a_match_is_found_wherever_it_lies() {
    for len in [1, 2, 3, 5, 8, 12, 40, MAX_PATTERN] {
        let needle: Vec<u8> = (0..len).map(|at| b'A' + (at % 23) as u8).collect();
        let mut policy = Policy::new(&[rule(Action::Drop, &[&needle])]);
        let edge = STEP - MAX_PATTERN - 9..STEP + 9;
        for at in (0..9).chain(edge).chain([LONGEST - len]) {
            let mut payload = vec![b'.'; LONGEST];
            payload[at..at + len].copy_from_slice(&needle);
            check(&mut policy, &datagram(Family::V4, &payload), true);
            payload[at + len - 1] = b'.';
            check(&mut policy, &segment(Family::V6, &payload), false);
            // It ends with the payload, and what is behind is the rest of it.
            let cut = datagram(Family::V4, &payload[..at + len - 1]);
            let frame = [cut.bytes(), needle[len - 1..].to_vec()].concat();
            let mut counted = policy.comes_in(frame).counted;
            counted.remove("in_searched");
            assert_eq!(counted, [].into(), "{len} bytes at {at}");
        }
    }
}

/// Its pieces get lengths of their own, whatever that of a super-packet says.
#[test]
fn all_of_a_super_packet_is_searched() {
    let mut policy = Policy::new(&[rule(Action::Drop, &[b"needle"])]);
    let payload = [&[b'.'; 500], &b"needle"[..]].concat();
    for family in Family::ALL {
        let mut frame = datagram(family, &payload).bytes();
        let length = frame.len() - payload.len() - 4;
        frame[length..length + 2].copy_from_slice(&8_u16.to_be_bytes());
        let passed = policy.comes_in(frame.clone());
        assert_eq!(passed, Ended::so(Verdict::Pass, &[]), "{family:?}");
        let dropped = policy.super_packet_comes_in(frame);
        let expected = Ended::so(Verdict::Drop, &["in_drop_matched"]);
        assert_eq!(dropped, expected, "{family:?}");
    }
}

/// Of sixty-four patterns each is found, and all at once in one search.
#[test]
fn each_of_many_patterns_is_found() {
    let patterns: Vec<Vec<u8>> = (0..MAX_PATTERNS)
        .map(|number| format!("pattern-{number}-{}", "x".repeat(number)).into_bytes())
        .collect();
    let all: Vec<&[u8]> = patterns.iter().map(Vec::as_slice).collect();
    let mut policy = Policy::new(&[rule(Action::Drop, &all)]);
    for pattern in &patterns {
        let payload = [b"....", &pattern[..], b"...."].concat();
        check(&mut policy, &datagram(Family::V4, &payload), true);
        check(&mut policy, &datagram(Family::V4, &payload[5..]), false);
    }
}

#[test]
fn case_is_ignored_if_the_rule_says_so() {
    for (ignore_case, matches) in [(true, true), (false, false)] {
        let mut policy = Policy::new(&[folded(Action::Drop, &[b"Host: Example"], ignore_case)]);
        let packet = segment(Family::V4, b"GET / HTTP/1.1\r\nhOST: eXAMPLE.org\r\n");
        check(&mut policy, &packet, matches);
        let exact = segment(Family::V4, b"Host: Example");
        check(&mut policy, &exact, true);
        // What differs by the same bit and is no letter.
        let other = segment(Family::V4, b"Host\x1a Example");
        check(&mut policy, &other, false);
    }
}

/// The whole match lies between the bytes that the rule names.
#[test]
fn a_match_lies_within_the_offsets() {
    let payload = b"0123STEPH9";
    for (first, end, matches) in [
        (0, NO_END, true),
        (4, 9, true),
        (4, NO_END, true),
        (0, 9, true),
        (5, NO_END, false),
        (0, 8, false),
        (4, 8, false),
        (10, 12, false),
        (4000, NO_END, false),
    ] {
        let mut one = rule(Action::Drop, &[b"STEPH"]);
        (one.first, one.end) = (first, end);
        let mut policy = Policy::new(&[one]);
        for packet in [datagram, segment].map(|make| make(Family::V4, payload)) {
            check(&mut policy, &packet, matches);
        }
    }
}

/// Receivers take no more of a datagram than its length tells, and all if it tells none.
#[test]
fn the_length_of_a_datagram_ends_its_payload() {
    const HEADER: u16 = 8;
    let mut policy = Policy::new(&[rule(Action::Drop, &[b"STEPH"])]);
    for (family, at) in [(Family::V4, 38), (Family::V6, 58)] {
        for (told, matches) in [
            (HEADER + 9, true),
            (HEADER + 8, false),
            (HEADER + 900, true),
            (0, true),
        ] {
            let mut frame = datagram(family, b"0123STEPH").bytes();
            frame[at..at + 2].copy_from_slice(&told.to_be_bytes());
            check_frame(&mut policy, frame, matches);
        }
    }
}

/// Options and extension headers stand before the payload, and are none of it.
#[test]
fn headers_are_not_searched() {
    let mut policy = Policy::new(&[rule(Action::Drop, &[&[7, 7, 7]])]);
    let options = [7, 7, 7, 7];
    check(
        &mut policy,
        &segment(Family::V4, b"data").options(&options),
        false,
    );
    let matching = segment(Family::V6, &[1, 7, 7, 7]).options(&options);
    check(&mut policy, &matching, true);
    let packet = datagram(Family::V6, b"\x01\x07\x07\x07");
    let extended = packet.extension(etherparse::IpNumber::IPV6_DESTINATION_OPTIONS, 2);
    check(&mut policy, &extended, true);
    check(
        &mut policy,
        &datagram(Family::V4, b"\x07\x07").ip_options(10),
        false,
    );
}
