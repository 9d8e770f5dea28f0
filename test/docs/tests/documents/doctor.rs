//! docs/doctor.md.

use std::collections::BTreeMap;
use std::fs;

use xdptun::doctor::{CHECKS, NOT_LOOKED_AT};
use xdptun_lab::workspace;

#[test]
fn every_check_has_its_row_and_no_other() {
    let page = fs::read_to_string(workspace::root().join("docs/doctor.md")).unwrap();
    let rows = page.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        Some((name, rest.strip_suffix(" |")?))
    });
    let rows: BTreeMap<&str, &str> = rows.collect();
    assert_eq!(rows, BTreeMap::from(CHECKS));
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words(&page).contains(&words(NOT_LOOKED_AT)),
        "{NOT_LOOKED_AT}"
    );
}
