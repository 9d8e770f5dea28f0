//! Payloads that look like patterns at every byte.

use xdptun_common::policy::rule::Action;
use xdptun_common::policy::table::{MAX_PATTERN, MAX_PATTERNS};
use xdptun_test_datapath::Family;
use xdptun_test_datapath::case::Verdict;
use xdptun_test_datapath::policy::{Ended, Policy, rule};

use crate::datagram;

/// Patterns that differ from a run of one byte in the last one: each byte of the payload may be
/// the start of all.
fn near_matches() -> Vec<Vec<u8>> {
    let pattern = |last: u8| [vec![b'a'; MAX_PATTERN - 1], vec![last]].concat();
    (0..MAX_PATTERNS as u8).map(pattern).collect()
}

/// The search ends after so many steps. What drops takes it for a match, what counts does not.
#[test]
fn a_search_of_near_matches_is_cut() {
    let patterns = near_matches();
    let patterns: Vec<&[u8]> = patterns.iter().map(Vec::as_slice).collect();
    for (action, dry_run, verdict, outcome, hits) in [
        (Action::Count, 0, Verdict::Pass, "in_searched", 0),
        (Action::Log, 0, Verdict::Pass, "in_searched", 0),
        (Action::Drop, 0, Verdict::Drop, "in_drop_matched", 1),
        (Action::Reset, 0, Verdict::Drop, "in_drop_reset", 1),
        (Action::Drop, 1, Verdict::Pass, "in_dry_run", 1),
    ] {
        let mut one = rule(action, &patterns);
        one.dry_run = dry_run;
        let mut policy = Policy::new(&[one]);
        let packet = datagram(Family::V4, &[b'a'; 3000]);
        let expected = Ended::so(verdict, &["searches_cut", outcome]);
        assert_eq!(policy.comes_in(packet), expected);
        assert_eq!(policy.hits(1), [hits]);
        // The next packet has all steps again.
        let packet = datagram(Family::V4, &[b'b'; 3000]);
        let expected = Ended::so(Verdict::Pass, &["in_searched"]);
        assert_eq!(policy.comes_in(packet), expected);
    }
}

/// Each rule has its own steps.
#[test]
fn a_rule_that_was_cut_takes_nothing_from_the_next() {
    let patterns = near_matches();
    let patterns: Vec<&[u8]> = patterns.iter().map(Vec::as_slice).collect();
    let mut policy = Policy::new(&[
        rule(Action::Count, &patterns),
        rule(Action::Drop, &[b"STEPH"]),
    ]);
    let payload = [&[b'a'; 3000][..], b"STEPH"].concat();
    let expected = Ended::so(Verdict::Drop, &["searches_cut", "in_drop_matched"]);
    assert_eq!(policy.comes_in(datagram(Family::V4, &payload)), expected);
}
