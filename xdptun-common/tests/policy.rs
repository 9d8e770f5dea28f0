//! The search for patterns, beside a naive one.

use proptest::collection::vec;
use proptest::prelude::*;
use xdptun_common::policy::compile::{Refusal, compile, patterns};
use xdptun_common::policy::rule::{NO_END, Network, Packet, Rule};
use xdptun_common::policy::search::{
    Chunk, Found, LEAD, MAX_CHUNKS, MAX_PAYLOAD, MAX_STEPS, STEP, WINDOW, Window, group, is_at,
    look, lowercase, sample,
};
use xdptun_common::policy::table::{MAX_PATTERN, MAX_PATTERNS, Table};
use xdptun_common::wire::Protocol;

/// A window in memory. What was not loaded is not zero.
struct Memory(Vec<u8>);

impl Memory {
    fn of(payload: &[u8], chunk: Chunk) -> Self {
        let mut bytes = vec![0xa5; WINDOW + 64];
        let first = chunk.first() as usize;
        let at = LEAD - (chunk.base as usize - first);
        let loaded = &payload[first..][..chunk.loaded() as usize];
        bytes[at..at + loaded.len()].copy_from_slice(loaded);
        Self(bytes)
    }
}

impl Window for Memory {
    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().unwrap())
    }

    fn long(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().unwrap())
    }
}

/// The search as the programs do it; also how many steps it took.
fn search(table: &Table, payload: &[u8]) -> (Found, u32) {
    let mut left = MAX_STEPS;
    for number in 0..MAX_CHUNKS {
        let Some(chunk) = Chunk::nth(number, payload.len() as u32) else {
            break;
        };
        let window = Memory::of(payload, chunk);
        let mut found = Found::Nothing;
        let mut look_at = |at, bucket| {
            let take = |steps| match left.checked_sub(steps) {
                Some(rest) => {
                    left = rest;
                    true
                }
                None => false,
            };
            let is_there = |entry: &xdptun_common::policy::table::Entry, at: u32| {
                is_at(table, &window, at as usize, entry.pattern, entry.len)
            };
            look(table, &window, chunk, (at, bucket), take, is_there)
        };
        let meets = |at| {
            found = group(table, &window, at, &mut look_at);
            found != Found::Nothing
        };
        match table.stride() {
            8 => sample::<8>(table, &window, chunk, meets),
            4 => sample::<4>(table, &window, chunk, meets),
            2 => sample::<2>(table, &window, chunk, meets),
            _ => sample::<1>(table, &window, chunk, meets),
        }
        if found != Found::Nothing {
            return (found, MAX_STEPS - left);
        }
    }
    (Found::Nothing, MAX_STEPS - left)
}

fn table(patterns: &[&[u8]], ignore_case: bool) -> Box<Table> {
    let mut table = Box::new(Table::EMPTY);
    compile(&mut table, patterns, ignore_case).unwrap();
    table
}

/// Whether a pattern is at a place.
fn is_there(payload: &[u8], at: usize, pattern: &[u8], ignore_case: bool) -> bool {
    payload[at..].get(..pattern.len()).is_some_and(|found| {
        if ignore_case {
            found.eq_ignore_ascii_case(pattern)
        } else {
            found == pattern
        }
    })
}

fn naive(payload: &[u8], patterns: &[&[u8]], ignore_case: bool) -> bool {
    (0..payload.len()).any(|at| {
        patterns
            .iter()
            .any(|pattern| is_there(payload, at, pattern, ignore_case))
    })
}

fn check(payload: &[u8], patterns: &[&[u8]], ignore_case: bool) {
    let table = table(patterns, ignore_case);
    let (found, steps) = search(&table, payload);
    let expected = naive(payload, patterns, ignore_case);
    match found {
        Found::Nothing => assert!(!expected, "missed"),
        Found::Match(start) => assert!(
            patterns
                .iter()
                .any(|pattern| is_there(payload, start as usize, pattern, ignore_case)),
            "nothing is at {start}"
        ),
        Found::Cut => panic!("cut after {steps} steps"),
    }
}

/// Bytes of a small alphabet, so that parts of patterns are everywhere.
fn letters(len: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Vec<u8>> {
    vec(prop::sample::select(b"abAB\0".to_vec()), len)
}

proptest! {
    #[test]
    fn the_search_finds_what_a_naive_one_finds(
        payload in letters(0..300),
        patterns in vec(letters(1..14), 1..12),
        ignore_case: bool,
    ) {
        let patterns: Vec<&[u8]> = patterns.iter().map(Vec::as_slice).collect();
        check(&payload, &patterns, ignore_case);
    }

    #[test]
    fn bytes_of_any_value_are_found(
        payload in vec(any::<u8>(), 0..2000),
        patterns in vec(vec(any::<u8>(), 1..4), 1..=MAX_PATTERNS),
        ignore_case: bool,
    ) {
        let patterns: Vec<&[u8]> = patterns.iter().map(Vec::as_slice).collect();
        check(&payload, &patterns, ignore_case);
    }

    /// Every part of a payload is found in it, wherever chunks end.
    #[test]
    fn a_part_of_the_payload_is_found(
        payload in vec(any::<u8>(), 3 * STEP),
        at in 0..3 * STEP - MAX_PATTERN,
        len in 1..=MAX_PATTERN,
        others in vec(vec(any::<u8>(), 1..=MAX_PATTERN), 0..MAX_PATTERNS),
    ) {
        let mut patterns: Vec<&[u8]> = others.iter().map(Vec::as_slice).collect();
        patterns.push(&payload[at..at + len]);
        check(&payload, &patterns, false);
    }

    #[test]
    fn letters_become_small_and_nothing_else_changes(bytes: [u8; 8]) {
        let expected = bytes.to_ascii_lowercase();
        prop_assert_eq!(lowercase(u64::from_le_bytes(bytes)).to_le_bytes(), &expected[..]);
    }
}

/// A needle at each place around the ends of chunks, and at the end of the longest payload.
#[test]
fn a_match_across_chunks_and_on_the_last_byte_is_found() {
    for len in [1, 2, 3, 5, 7, 9, 12, 64, MAX_PATTERN] {
        let needle: Vec<u8> = (0..len).map(|at| b'A' + (at % 23) as u8).collect();
        let table = table(&[&needle], false);
        let edges = (1..=2).flat_map(|chunk| chunk * STEP - 2 * LEAD..chunk * STEP + LEAD);
        for at in edges.chain([0, MAX_PAYLOAD - len]) {
            let end = if at == 0 {
                len
            } else {
                MAX_PAYLOAD.min(at + len)
            };
            let mut payload = vec![b'.'; end];
            payload[at..at + len].copy_from_slice(&needle);
            let (found, _) = search(&table, &payload);
            assert_eq!(found, Found::Match(at as u32), "{len} bytes at {at}");
            payload.pop();
            let (found, _) = search(&table, &payload);
            assert_eq!(found, Found::Nothing, "{len} bytes at {at}, one missing");
        }
    }
}

/// A payload of near-matches takes a bounded number of steps.
#[test]
fn hostile_payloads_are_cut() {
    let needle = [vec![b'a'; MAX_PATTERN - 1], vec![b'b']].concat();
    let table = table(&[&needle], false);
    let (found, steps) = search(&table, &vec![b'a'; MAX_PAYLOAD]);
    assert_eq!(found, Found::Cut);
    assert!(steps <= MAX_STEPS);
    // An ordinary packet full of them is searched to its end.
    let (found, _) = search(&table, &[b'a'; 1460]);
    assert_eq!(found, Found::Nothing);
}

/// Text in which no pattern is costs few steps: the filter lets little through.
#[test]
fn the_filter_lets_little_of_other_text_through() {
    let patterns: Vec<String> = (0..MAX_PATTERNS)
        .map(|number| format!("forbidden-{number:02}"))
        .collect();
    let patterns: Vec<&[u8]> = patterns.iter().map(String::as_bytes).collect();
    let table = table(&patterns, true);
    let text = "GET /index.html HTTP/1.1\r\nHost: www.example.org\r\nAccept: text/html\r\n\r\n";
    let (found, steps) = search(&table, text.repeat(100).as_bytes());
    assert_eq!(found, Found::Nothing);
    assert!(steps < 200, "{steps} steps for {} bytes", text.len() * 100);
}

#[test]
fn patterns_that_have_no_room_are_refused() {
    let mut table = Box::new(Table::EMPTY);
    let many = vec![&b"x"[..]; MAX_PATTERNS + 1];
    let long = [b'x'; MAX_PATTERN + 1];
    for (patterns, expected) in [
        (&many[..], Refusal::TooMany(MAX_PATTERNS + 1)),
        (&[], Refusal::NoPattern),
        (&[&b"x"[..], b""], Refusal::Empty),
        (&[&long[..]], Refusal::TooLong(MAX_PATTERN + 1)),
    ] {
        assert_eq!(compile(&mut table, patterns, false), Err(expected));
    }
    assert_eq!(*table, Table::EMPTY);
    assert_eq!(search(&table, b"anything").0, Found::Nothing);
}

#[test]
fn a_table_tells_its_patterns() {
    let table = table(&[b"Host: ", &[0, 0xff]], true);
    let told: Vec<Vec<u8>> = patterns(&table)
        .map(|(bytes, len)| bytes[..len].to_vec())
        .collect();
    assert_eq!(told, [b"host: ".to_vec(), vec![0, 0xff]]);
}

fn rule(first: u32, end: u32) -> Box<Rule> {
    Box::new(Rule {
        from: Network::ALL,
        to: Network::ALL,
        name: [0; 32],
        first,
        end,
        port: 0,
        protocol: 0,
        direction: 0,
        action: 0,
        dry_run: 0,
        reserved: [0; 2],
        table: Table::EMPTY,
    })
}

#[test]
fn the_part_of_a_payload_ends_with_it() {
    for (first, end, len, expected) in [
        (0, NO_END, 10, (0, 10)),
        (4, 8, 10, (4, 4)),
        (4, 80, 10, (4, 6)),
        (10, NO_END, 10, (10, 0)),
        (40, 80, 10, (40, 0)),
    ] {
        assert_eq!(rule(first, end).part(len), expected);
    }
}

/// What makes a rule another.
type Change = fn(&mut Rule);

const fn address(last: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 0, last]
}

fn host(last: u8) -> Network {
    Network {
        address: address(last),
        mask: [0xff; 16],
    }
}

#[test]
fn a_rule_concerns_the_packets_that_it_names() {
    let packet = Packet {
        source: address(1),
        destination: address(2),
        ports: Some((4000, 80)),
        protocol: Some(Protocol::TCP),
        is_hidden: false,
    };
    let later = Packet {
        ports: None,
        ..packet
    };
    let cases: [(Change, [bool; 2]); 11] = [
        (|_| {}, [true, true]),
        (|rule| rule.port = 80, [true, false]),
        (|rule| rule.port = 4000, [true, false]),
        (|rule| rule.port = 81, [false, false]),
        (|rule| rule.protocol = 6, [true, true]),
        (|rule| rule.protocol = 17, [false, false]),
        (|rule| rule.from = host(1), [true, true]),
        (|rule| rule.from = host(2), [false, false]),
        (|rule| rule.to = host(2), [true, true]),
        (|rule| rule.to = host(1), [false, false]),
        (|rule| rule.first = 4, [true, false]),
    ];
    for (number, (change, [whole, fragment])) in cases.into_iter().enumerate() {
        let mut rule = rule(0, NO_END);
        change(&mut rule);
        assert_eq!(rule.concerns(&packet), whole, "{number}");
        assert_eq!(rule.concerns(&later), fragment, "{number}");
    }
}
