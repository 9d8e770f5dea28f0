//! What docs/architecture.md names is what there is.

use std::collections::BTreeSet;
use std::fs;

use xdptun::datapath::maps::{PINNED, PROOFS};
use xdptun::flow::State;
use xdptun_lab::workspace;
use xdptun_test_docs::page::inline_code;

const PAGE: &str = "docs/architecture.md";

fn read(path: &str) -> String {
    fs::read_to_string(workspace::root().join(path)).unwrap()
}

/// The rows of a section's table: the cells of each, of which the first is code.
fn rows(section: &str) -> Vec<Vec<String>> {
    let page = read(PAGE);
    let (_, section) = page.split_once(&format!("## {section}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells = row.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().replace('`', "")).collect()
    })
    .collect()
}

/// The names after a word of a source file, up to a sign.
fn defined(path: &str, word: &str, sign: char) -> BTreeSet<String> {
    let text = read(path);
    let names = text.split(word).skip(1);
    names
        .map(|rest| rest.split(sign).next().unwrap().to_owned())
        .collect()
}

#[test]
fn maps() {
    let maps = rows("Maps");
    let names: BTreeSet<String> = maps.iter().map(|row| row[0].clone()).collect();
    assert_eq!(
        names,
        defined("xdptun-ebpf/src/maps.rs", "#[map]\npub static ", ':')
    );
    for row in &maps {
        let name = row[0].as_str();
        let pinned = match name {
            _ if PINNED.contains(&name) => "yes",
            _ if PROOFS.contains(&name) => "with a secret",
            _ => "no",
        };
        assert_eq!(row[3], pinned, "{name}");
    }
}

#[test]
fn states() {
    let names: Vec<String> = rows("States of a flow")
        .iter()
        .map(|row| row[0].clone())
        .collect();
    assert_eq!(names, State::ALL.map(State::name));
}

#[test]
fn programs() {
    let programs = rows("The way of a packet");
    let names: BTreeSet<String> = programs.iter().map(|row| row[0].clone()).collect();
    let found = defined("xdptun-ebpf/src/main.rs", "]\npub fn ", '(');
    assert_eq!(names, found);
}

#[test]
fn paths() {
    let names = inline_code(PAGE).unwrap();
    let paths = names
        .iter()
        .filter(|name| name.starts_with("xdptun") && name.contains("/src/"));
    let mut count = 0;
    for path in paths {
        assert!(workspace::root().join(path).exists(), "{path}");
        count += 1;
    }
    assert_ne!(count, 0);
}
