//! Payloads that are searched for the patterns of rules.

mod policy;
mod policy_bulk;
mod policy_rules;

use xdptun_lab::{Netns, wait};
use xdptun_test_net::LIMIT;
use xdptun_test_net::status::{expected, policy_counters};

/// Waits until exactly these packets have been counted on the interface of a host.
#[track_caller]
pub fn wait_counted(netns: &Netns, counters: &[(&str, u64)]) {
    let expected = expected(counters);
    let mut found = expected.clone();
    let waited = wait::until(LIMIT, "the counters of the policy", || {
        found = policy_counters(netns).unwrap();
        found == expected
    });
    waited.unwrap_or_else(|error| panic!("{error:#}: {found:?} instead of {expected:?}"));
}
