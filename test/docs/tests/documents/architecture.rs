//! The names in docs/architecture.md are those of the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use xdptun::datapath::engine_maps;
use xdptun::flow::State;
use xdptun::tunnel::maps::{PINNED, PROOFS};
use xdptun::{gateway, nat64, policy};
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

/// The names after a word of a source text, up to a sign.
fn defined(text: &str, word: &str, sign: char) -> BTreeSet<String> {
    let names = text.split(word).skip(1);
    names
        .map(|rest| rest.split(sign).next().unwrap().to_owned())
        .collect()
}

/// The source files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let sources = entries.flat_map(|entry| match entry.file_type().unwrap().is_dir() {
        true => sources(&entry.path()),
        false => vec![entry.path()],
    });
    sources
        .filter(|path| path.extension().is_some_and(|kind| kind == "rs"))
        .collect()
}

#[test]
fn maps() {
    let maps = rows("Maps");
    let names: BTreeSet<String> = maps.iter().map(|row| row[0].clone()).collect();
    let mut found = BTreeSet::new();
    for path in sources(&workspace::root().join("xdptun-ebpf/src")) {
        let text = fs::read_to_string(path).unwrap();
        found.append(&mut defined(&text, "#[map]\npub static ", ':'));
    }
    assert_eq!(names, found);
    for row in &maps {
        let name = row[0].as_str();
        let pinned = match name {
            _ if PINNED.contains(&name) || engine_maps::NAMES.contains(&name) => "yes",
            _ if gateway::maps::pinned().any(|pinned| pinned == name) => "yes",
            _ if policy::maps::PINNED.contains(&name) => "yes",
            _ if nat64::maps::PINNED.contains(&name) => "yes",
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
    let programs = rows("The path of a packet");
    let names: BTreeSet<String> = programs.iter().map(|row| row[0].clone()).collect();
    let mut found = BTreeSet::new();
    for function in ["tunnel", "policy", "gateway", "nat64"] {
        let text = read(&format!("xdptun-ebpf/src/bin/{function}.rs"));
        found.append(&mut defined(&text, "]\npub fn ", '('));
    }
    assert_eq!(names, found);
}

/// Which of these rooms a source text names after `crate::`, alone or in braces.
fn rooms_used<'a>(text: &str, rooms: &'a [String]) -> Vec<&'a String> {
    let paths = text.split("crate::").skip(1);
    let names: BTreeSet<&str> = paths
        .flat_map(|rest| match rest.strip_prefix('{') {
            Some(group) => group.split('}').next().unwrap().split(',').collect(),
            None => vec![rest],
        })
        .map(|path| {
            path.trim()
                .split(|sign: char| !(sign.is_alphanumeric() || sign == '_'))
        })
        .map(|mut words| words.next().unwrap())
        .collect();
    let is_used = |room: &&String| names.contains(room.as_str());
    rooms.iter().filter(is_used).collect()
}

/// In the order of the page.
#[test]
fn a_room_uses_only_rooms_above_it() {
    let mut crates: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    for path in rows("Crates").iter().map(|row| Path::new(&row[0])) {
        if path.parent().is_some_and(|folder| folder.ends_with("src")) {
            let room = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let folder = workspace::root().join(path.parent().unwrap());
            crates.entry(folder).or_default().push(room);
        }
    }
    assert_ne!(crates.len(), 0);
    for (folder, rooms) in crates {
        let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap());
        let found = entries.map(|entry| entry.path().with_extension(""));
        let found: BTreeSet<String> = found
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .filter(|name| !["lib", "main"].contains(&name.as_str()))
            .collect();
        assert_eq!(found, rooms.iter().cloned().collect());
        let mut edges = 0;
        for (own, room) in rooms.iter().enumerate() {
            let path = folder.join(room);
            let paths = match path.is_dir() {
                true => sources(&path),
                false => vec![path.with_extension("rs")],
            };
            for path in paths {
                let text = fs::read_to_string(&path).unwrap();
                for used in rooms_used(&text, &rooms) {
                    let place = rooms.iter().position(|room| room == used).unwrap();
                    assert!(place <= own, "{}: uses {used}", path.display());
                    edges += usize::from(place < own);
                }
            }
        }
        assert_ne!(edges, 0, "{}", folder.display());
    }
}

/// `xtask/src/main.rs` lists its rooms in the same order.
#[test]
fn xtask_and_the_page_agree_about_rooms() {
    let in_page: Vec<String> = rows("Crates")
        .iter()
        .filter_map(|row| row[0].strip_prefix("xtask/src/").map(str::to_owned))
        .map(|room| room.trim_end_matches(".rs").to_owned())
        .collect();
    let text = read("xtask/src/main.rs");
    let rows = text
        .lines()
        .filter_map(|line| line.strip_prefix("//! | [`"));
    let in_code: Vec<&str> = rows.map(|row| row.split('`').next().unwrap()).collect();
    assert_eq!(in_page, in_code);
}

#[test]
fn paths() {
    let names = inline_code(PAGE).unwrap();
    let paths = names
        .iter()
        .filter(|name| {
            ["xdptun", "xtask"]
                .iter()
                .any(|root| name.starts_with(root))
        })
        .filter(|name| name.contains("/src/"));
    let mut count = 0;
    for path in paths {
        assert!(workspace::root().join(path).exists(), "{path}");
        count += 1;
    }
    assert_ne!(count, 0);
}
