//! A short run with every kind of disturbance, the same ones each time: `cargo xtask soak`
//! runs longer.

use xdptun_test_soak::{Kind, Length, Pace, Plan, run};

const SEED: u64 = 3;

#[test]
fn a_short_run_finds_nothing() {
    let plan = Plan {
        length: Length::Round,
        pace: Pace::Brisk,
        seed: SEED,
        only: Vec::new(),
    };
    let report = run(plan, Box::new(|text| println!("{text}"))).unwrap();
    println!("{report}");
    let all: Vec<_> = Kind::ALL.into_iter().map(Kind::name).collect();
    assert_eq!(report.kinds(), all);
    assert!(report.delivered() > 10_000, "hardly anything was delivered");
    assert_eq!(report.findings(), 0);
}
