//! Commands that documents only mention exist.

use std::fs;
use std::path::Path;
use std::process::Command;

use clap::error::ErrorKind;
use xdptun_lab::command::run;
use xdptun_lab::workspace;
use xdptun_test_docs::page::{block_commands, inline_code};

/// No test runs the commands in its blocks: CI consists of them.
const NOT_RUN: &str = "CONTRIBUTING.md";

/// Texts between backquotes of all documents, and commands that no test runs, each
/// with the document.
fn mentioned() -> Vec<(String, String)> {
    let folder = fs::read_dir(workspace::root().join("docs")).unwrap();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let documents = names.filter(|name| name.ends_with(".md"));
    let documents = documents.map(|name| format!("docs/{name}"));
    let mut all = Vec::new();
    for document in documents.chain(["README.md", NOT_RUN].map(str::to_owned)) {
        let texts = inline_code(&document).unwrap().into_iter();
        all.extend(texts.map(|text| (document.clone(), text)));
    }
    let commands = block_commands(NOT_RUN).unwrap().into_iter();
    all.extend(commands.map(|command| (NOT_RUN.to_owned(), command)));
    all
}

#[test]
fn those_of_xdptun() {
    let mut count = 0;
    for (document, text) in mentioned() {
        let command = text.strip_prefix("sudo ").unwrap_or(&text);
        if command.starts_with("xdptun ") {
            let words = shlex::split(command).unwrap_or_else(|| panic!("{document}: {text}"));
            let words = words.iter().filter(|word| *word != "...");
            match xdptun::cli::command().try_get_matches_from(words) {
                Ok(_) => {}
                // Within a sentence the rest goes without saying.
                Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => {}
                Err(error) if error.kind() == ErrorKind::DisplayHelp => {}
                Err(error) => panic!("{document}: `{command}`: {error}"),
            }
            count += 1;
        }
    }
    assert_ne!(count, 0);
}

#[test]
fn those_of_xtask() {
    let xtask = workspace::target_dir().join("release/xtask");
    let mut count = 0;
    for (document, text) in mentioned() {
        let Some(arguments) = text.strip_prefix("cargo xtask ") else {
            continue;
        };
        let words = shlex::split(arguments).unwrap_or_else(|| panic!("{document}: {text}"));
        // It ends what is understood, and keeps it from being done.
        let asked = words.iter().map(String::as_str).chain(["--help"]);
        let asked = asked.filter(|word| *word != "--");
        run(Command::new(&xtask).args(asked))
            .unwrap_or_else(|error| panic!("{document}: {error:#}"));
        count += 1;
    }
    assert_ne!(count, 0);
}

/// Whether a package below `test` has a test program of that name, or a module of one.
fn has_suite(package: &str, suite: &str) -> bool {
    let tests = workspace::root().join("test").join(package).join("tests");
    let has = |folder: &Path| {
        let file = folder.join(suite);
        [
            file.with_extension("rs"),
            file.join("main.rs"),
            file.join("mod.rs"),
        ]
        .iter()
        .any(|path| path.is_file())
    };
    let Ok(entries) = fs::read_dir(&tests) else {
        return false;
    };
    let mut programs = entries.map(|entry| entry.unwrap().path());
    has(&tests) || programs.any(|program| has(&program))
}

/// Suites are named `'net cleanup'`, of a package below `test` and a suite of it.
#[test]
fn suites() {
    let mut count = 0;
    for (document, text) in mentioned() {
        let text = text.strip_prefix("cargo xtask test ").unwrap_or(&text);
        let quoted = text
            .strip_prefix('\'')
            .and_then(|text| text.split_once('\''));
        let Some((package, suite)) = quoted.and_then(|(name, _)| name.split_once(' ')) else {
            continue;
        };
        assert!(
            has_suite(package, suite),
            "{document}: `{text}`: no such suite"
        );
        count += 1;
    }
    assert_ne!(count, 0);
}

/// Tests that docs/nat.md names: `nat44::module::function` of `net nat44`, and `module::function` of
/// `datapath gateway`.
#[test]
fn tests_of_nat() {
    assert_declared("docs/nat.md", |path| match *path {
        ["nat44", module, function] => Some(("test/net/tests/gateway/nat44", module, function)),
        [module, function] => Some(("test/datapath/tests/gateway", module, function)),
        _ => None,
    });
}

/// Tests that docs/nat64.md names: `nat64::module::function` of `net nat64`, `common::function` of
/// `xdptun-common/tests/nat64.rs`, and `module::function` of `datapath nat64`.
#[test]
fn tests_of_nat64() {
    assert_declared("docs/nat64.md", |path| match *path {
        ["nat64", module, function] => Some(("test/net/tests/gateway/nat64", module, function)),
        ["common", function] => Some(("xdptun-common/tests", "nat64", function)),
        [module, function] => Some(("test/datapath/tests/nat64", module, function)),
        _ => None,
    });
}

/// Requires that a page names tests, each of which is declared where `place` says: folder, file, name.
fn assert_declared(
    page: &str,
    place: impl for<'a> Fn(&[&'a str]) -> Option<(&'static str, &'a str, &'a str)>,
) {
    let mut count = 0;
    let names = inline_code(page).unwrap();
    for text in names.iter().filter(|text| !text.contains(' ')) {
        let path: Vec<&str> = text.split("::").collect();
        // An address of IPv6 is none.
        let is_word = |word: &&str| word.chars().all(|one| one.is_alphanumeric() || one == '_');
        if !path.iter().all(is_word) {
            continue;
        }
        let Some((folder, module, function)) = place(&path) else {
            continue;
        };
        let file = workspace::root().join(folder).join(module);
        let file = file.with_extension("rs");
        let source = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{text}: {error}"));
        let declared = format!("#[test]\nfn {function}() {{");
        assert!(source.contains(&declared), "{text}: no such test");
        count += 1;
    }
    assert_ne!(count, 0);
}
