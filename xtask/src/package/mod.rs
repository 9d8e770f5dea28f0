//! `cargo xtask package`: Debian packages and archives of the static binary.
//!
//! The same binary gives the same bytes: times are the commit's, owners are root,
//! the order is that of the names.

mod archive;
mod contents;
mod deb;
mod licences;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use xdptun_lab::command::run as output_of;
use xdptun_lab::workspace;

use crate::debian::Arch;
use crate::shell::{cargo, run_visible};
use crate::{build, setup};
use contents::Contents;

/// Options of `cargo xtask package`.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// Only for this machine; may be repeated [default: all]
    #[arg(long, value_name = "TRIPLE", value_parser = target)]
    target: Vec<Arch>,
    /// Where to put them [default: target/package]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Only static programs are packaged.
fn target(triple: &str) -> Result<Arch, String> {
    Arch::of_triple(triple).ok_or_else(|| {
        let triples = Arch::value_variants().iter().map(|arch| arch.triple());
        let triples: Vec<&str> = triples.collect();
        format!(
            "no packages are made for it; choose {}",
            triples.join(" or ")
        )
    })
}

/// Builds all packages and says where they are.
pub fn run(args: &Args) -> Result<()> {
    setup::ensure_build()?;
    let targets = match &args.target[..] {
        [] => Arch::value_variants(),
        chosen => chosen,
    };
    let out = match &args.out {
        Some(out) => out.clone(),
        None => workspace::target_dir().join("package"),
    };
    fs::create_dir_all(&out).with_context(|| format!("{}: cannot make", out.display()))?;
    let triples: Vec<&str> = targets.iter().map(|target| target.triple()).collect();
    let binaries = build::shipped(&triples)?;
    let manual = manual()?;
    let sources = workspace::root().join("xdptun/package");
    let docs = workspace::root().join("docs");
    let version = version(&sources.join("debian/changelog"))?;
    let time = time()?;
    for (target, binary) in targets.iter().zip(binaries) {
        let (triple, machine) = (target.triple(), target.debian());
        let notices = licences::notices(triple)?;
        let contents = Contents::collect(&sources, &docs, &binary, manual.path(), &notices)?;
        let name = format!("xdptun-{}-{triple}", env!("CARGO_PKG_VERSION"));
        let archive = archive::tar_gz(&contents.entries(), &format!("{name}/"), time)?;
        write(&out.join(format!("{name}.tar.gz")), &archive)?;
        let package = deb::build(&contents, &sources.join("debian"), &version, machine, time)?;
        let name = format!("xdptun_{version}_{machine}.deb");
        write(&out.join(name), &package)?;
    }
    Ok(())
}

fn write(path: &Path, data: &[u8]) -> Result<()> {
    fs::write(path, data).with_context(|| format!("{}: cannot write", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

/// The man pages and completions, in a folder that vanishes with the value.
fn manual() -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir().context("cannot make a temporary directory")?;
    let mut command = cargo();
    command.args(["build", "--quiet", "--locked", "--example", "manual"]);
    // Of what the unit tests are built of, too.
    run_visible(command.arg(build::ALL_PACKAGES))?;
    let program = workspace::target_dir().join("debug/examples/manual");
    run_visible(Command::new(program).arg(folder.path()))?;
    Ok(folder)
}

/// The version of the newest entry of the Debian changelog.
fn version(changelog: &Path) -> Result<String> {
    let name = changelog.display();
    let text = fs::read_to_string(changelog).with_context(|| format!("{name}: cannot read"))?;
    let version = newest(&text).with_context(|| format!("{name}: no version in its first line"))?;
    let program = env!("CARGO_PKG_VERSION");
    ensure!(
        version.split('-').next() == Some(program),
        "{name}: its newest entry is of {version}, and the program is {program}; add an entry"
    );
    Ok(version.to_owned())
}

fn newest(changelog: &str) -> Option<&str> {
    let (_, rest) = changelog.lines().next()?.split_once('(')?;
    Some(rest.split_once(')')?.0)
}

/// The time that everything in a package carries, in seconds since 1970:
/// `SOURCE_DATE_EPOCH`, or that of the commit.
fn time() -> Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => output_of(Command::new("git").current_dir(workspace::root()).args([
            "log",
            "-1",
            "--format=%ct",
        ]))
        .context("this is no clone: set SOURCE_DATE_EPOCH to the time of the release")?,
    };
    let text = text.trim();
    text.parse()
        .with_context(|| format!("{text:?} is not a number of seconds since 1970"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_entry_comes_first() {
        let text = "xdptun (0.2.0-1) stable; urgency=medium\n\nxdptun (0.1.0-1) stable\n";
        assert_eq!(newest(text), Some("0.2.0-1"));
        assert_eq!(newest(""), None);
    }

    #[test]
    fn a_target_is_named_as_cargo_names_it() {
        for arch in Arch::value_variants() {
            assert_eq!(target(arch.triple()), Ok(*arch));
        }
        let error = target("x86_64-unknown-linux-gnu").unwrap_err();
        assert!(error.contains("aarch64-unknown-linux-musl"), "{error}");
    }
}
