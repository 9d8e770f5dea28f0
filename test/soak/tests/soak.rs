//! A short run, the same disturbances each time: `cargo xtask soak` runs longer.

use std::time::Duration;

use xdptun_test_soak::{Plan, run};

/// It draws eight of the ten kinds in twenty seconds; connections that the
/// router forgets (`conntrack_flushed`, `ports_rebound`) come later.
const SEED: u64 = 3;

#[test]
fn a_short_run_finds_nothing() {
    let plan = Plan {
        length: Duration::from_secs(20),
        seed: SEED,
        only: Vec::new(),
    };
    let report = run(plan, Box::new(|text| println!("{text}"))).unwrap();
    println!("{report}");
    assert!(report.disturbances() > 0, "nothing was disturbed");
    assert!(report.delivered() > 10_000, "hardly anything was delivered");
    assert_eq!(report.findings(), 0);
}
