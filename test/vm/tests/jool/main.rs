//! `xdptun nat64` beside Jool, a NAT64 in a kernel module: the same packets, and what either makes
//! of each.
//!
//! `cargo xtask vm --jool` builds the module for the guest's kernel and runs this.

mod described;
mod ends;
mod errors;
mod fragments;
mod gateway;
mod headers;
mod messages;
mod names;
mod refused;
mod rows;
mod table;
mod transport;

use std::fs;

use crate::gateway::{Gateway, Translator};
use crate::rows::Group;

/// The environment variable that names the file for the table.
const TABLE: &str = "XDPTUN_TABLE";

/// What becomes of the packets of each row.
fn answers(translator: Translator, groups: &[Group]) -> Vec<Vec<String>> {
    let mut gateway = Gateway::new(translator).unwrap();
    let mut number = 0;
    let mut answers = Vec::new();
    for group in groups {
        let mut of_group = Vec::new();
        for row in &group.rows {
            number += 1;
            let answer = row.run(&mut gateway, number);
            of_group.push(answer.unwrap_or_else(|error| panic!("{}: {error:#}", row.sent)));
        }
        answers.push(of_group);
    }
    gateway.stop().unwrap();
    answers
}

/// Every difference has a reason, and every reason a difference.
#[test]
fn differences_are_explained() {
    let groups = rows::all();
    let jool = answers(Translator::Jool, &groups);
    let xdptun = answers(Translator::Xdptun, &groups);
    let table = table::markdown(&groups, &jool, &xdptun);
    if let Some(file) = std::env::var_os(TABLE) {
        fs::write(&file, &table).unwrap();
    }
    let unexplained = table::unexplained(&groups, &jool, &xdptun);
    assert!(unexplained.is_empty(), "\n{}", unexplained.join("\n"));
}
