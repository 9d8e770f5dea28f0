//! The licences of all that is linked into the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cargo_metadata::{Metadata, MetadataCommand, Package};
use xdptun_lab::command::run as output_of;
use xdptun_lab::workspace;

use crate::shell::cargo;

/// The program, and the programs for the kernel inside it.
const LINKED: [&str; 2] = ["xdptun", "xdptun-ebpf"];

/// How the names of files with licences begin.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// The notices of all crates that the program of a target holds: each text once,
/// below the crates that have it.
pub fn notices(triple: &str) -> Result<String> {
    let linked = linked(triple)?;
    let mut notices: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut listing = String::new();
    for package in metadata()?.packages {
        let name = format!("{} v{}", package.name, package.version);
        if package.source.is_none() || !linked.contains(&name) {
            continue;
        }
        let licence = package.license.as_deref().unwrap_or("see its text below");
        writeln!(listing, "{name}: {licence}")?;
        for text in texts(&package)? {
            notices.entry(text).or_default().push(name.clone());
        }
    }
    let mut all = format!("What xdptun holds of others, and under which licences.\n\n{listing}");
    for (text, crates) in notices {
        let line = "-".repeat(72);
        write!(
            all,
            "\n{line}\n{}\n\n{}\n",
            crates.join(", "),
            text.trim_end()
        )?;
    }
    Ok(all)
}

fn metadata() -> Result<Metadata> {
    let mut command = MetadataCommand::new();
    command.current_dir(workspace::root());
    command.other_options(["--locked".to_owned()]);
    command.exec().context("cannot ask cargo for the crates")
}

/// Names and versions of the crates that end up in the program.
fn linked(triple: &str) -> Result<BTreeSet<String>> {
    let mut command = cargo();
    command.args(["tree", "--locked", "--target", triple]);
    command.args(["--edges", "normal,no-proc-macro", "--prefix", "none"]);
    for package in LINKED {
        command.args(["--package", package]);
    }
    let tree = output_of(&mut command)?;
    let crates = tree.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some(format!("{} {}", words.next()?, words.next()?))
    });
    Ok(crates.collect())
}

/// The texts that come with a crate, in the order of their names.
fn texts(package: &Package) -> Result<Vec<String>> {
    let folder = package.manifest_path.parent();
    let folder = folder.context("a manifest without a folder")?.as_std_path();
    let mut files = Vec::new();
    for file in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = file?.path();
        if path.is_file() && is_licence(&path) {
            files.push(path);
        }
    }
    files.sort();
    let read = |path: &PathBuf| {
        let text = fs::read(path).with_context(|| path.display().to_string())?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    };
    files.iter().map(read).collect()
}

fn is_licence(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.to_ascii_uppercase();
    NAMES.iter().any(|begin| name.starts_with(begin))
}
