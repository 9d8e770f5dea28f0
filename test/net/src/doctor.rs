//! The findings of `xdptun doctor`, and the commands that it prints.

use std::process::Command;

use serde_json::Value;
use xdptun_lab::{Netns, xdptun};

use crate::cli::{Outcome, finish, run};

/// A line as a person would type it, in a namespace, where `xdptun` is the program under
/// test.
///
/// # Panics
///
/// If there is no such program.
pub fn shell(netns: &Netns, line: &str) -> Command {
    let binary = xdptun::binary().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let own = binary.parent().unwrap().display();
    let mut command = netns.command("sh");
    command
        .args(["-c", line])
        .env("PATH", format!("{own}:{path}"));
    command
}

/// Runs a line that must succeed.
///
/// # Panics
///
/// If it fails.
pub fn succeed(netns: &Netns, line: &str) {
    let outcome = finish(&mut shell(netns, line)).unwrap();
    assert_eq!(outcome.code, Some(0), "{line}: {outcome:#?}");
}

/// The findings of `xdptun` with these arguments, of which `doctor` is the first, after a line
/// that is run in a mount namespace of its own.
///
/// # Panics
///
/// As [`parsed`].
pub fn findings_after(netns: &Netns, line: &str, args: &[&str]) -> Vec<Value> {
    let look = format!("{line}; exec xdptun {} --json", args.join(" "));
    let line = format!("exec unshare --mount sh -c '{look}'");
    parsed(&finish(&mut shell(netns, &line)).unwrap())
}

/// The findings of `xdptun` with these arguments, of which `doctor` is the first.
///
/// # Panics
///
/// As [`parsed`].
pub fn findings(netns: &Netns, args: &[&str]) -> Vec<Value> {
    parsed(&run(netns, &[args, &["--json"]].concat()).unwrap())
}

/// The findings, and that the exit code fits them.
///
/// # Panics
///
/// If it does not, or something else was said.
pub fn parsed(outcome: &Outcome) -> Vec<Value> {
    let text = outcome.stdout.join("\n");
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{outcome:#?}"));
    let findings = report["findings"].as_array();
    let findings = findings.unwrap_or_else(|| panic!("{outcome:#?}")).clone();
    let fails = findings.iter().any(|finding| finding["level"] == "fail");
    assert_eq!(outcome.code, Some(i32::from(fails)), "{outcome:#?}");
    assert_eq!(outcome.stderr, [""; 0]);
    findings
}

/// The one finding of a check.
///
/// # Panics
///
/// If there is none, or more than one.
pub fn only<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    let found: Vec<&Value> = findings
        .iter()
        .filter(|finding| finding["check"] == check)
        .collect();
    assert_eq!(found.len(), 1, "{check}: {findings:#?}");
    found[0]
}

/// Requires one finding of a check, and returns the command that fixes it.
///
/// # Panics
///
/// If its level is another, or a word is missing.
pub fn mend_of(findings: &[Value], check: &str, level: &str, words: &[&str]) -> String {
    let found = only(findings, check);
    assert_eq!(found["level"], level, "{found:#}");
    for word in words {
        let what = found["what"].as_str().unwrap();
        assert!(what.contains(word), "no `{word}` in {found:#}");
    }
    found["mend"].as_str().unwrap_or_default().to_owned()
}
