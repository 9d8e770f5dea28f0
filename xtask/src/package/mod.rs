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

use crate::shell::{cargo, run_visible};
use crate::{build, setup};
use contents::Contents;

/// Options of `cargo xtask package`.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// Only for this machine; may be repeated [default: all]
    #[arg(long, value_name = "TRIPLE")]
    target: Vec<Target>,
    /// Where to put them [default: target/package]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// A machine that packages are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Target {
    /// 64-bit PC.
    #[value(name = "x86_64-unknown-linux-musl")]
    Amd64,
    /// 64-bit ARM, Raspberry Pi OS among others.
    #[value(name = "aarch64-unknown-linux-musl")]
    Arm64,
}

impl Target {
    /// Rust's name for it.
    fn triple(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-musl",
            Self::Arm64 => "aarch64-unknown-linux-musl",
        }
    }

    /// Debian's name for it.
    fn debian(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

/// Builds all packages and says where they are.
pub fn run(args: &Args) -> Result<()> {
    setup::ensure_build()?;
    let targets = match &args.target[..] {
        [] => Target::value_variants(),
        chosen => chosen,
    };
    let out = match &args.out {
        Some(out) => out.clone(),
        None => workspace::target_dir().join("package"),
    };
    fs::create_dir_all(&out).with_context(|| format!("{}: cannot make", out.display()))?;
    let manual = manual()?;
    let sources = workspace::root().join("xdptun/package");
    let docs = workspace::root().join("docs");
    let version = version(&sources.join("debian/changelog"))?;
    let time = time()?;
    for target in targets {
        let binary = build::binary(Some(target.triple()))?;
        let (triple, machine) = (target.triple(), target.debian());
        let notices = licences::notices(triple)?;
        let contents = Contents::collect(&sources, &docs, &binary, manual.path(), &notices)?;
        let name = format!("xdptun-{}-{triple}", env!("CARGO_PKG_VERSION"));
        let archive = archive::tar_gz(&contents.entries(), &format!("{name}/"), time)?;
        write(&out.join(format!("{name}.tar.gz")), &archive)?;
        let package = deb::build(&contents, &sources.join("debian"), &version, machine, time)?;
        write(
            &out.join(format!("xdptun_{version}_{machine}.deb")),
            &package,
        )?;
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
    command.args(["run", "--quiet", "--locked", "--package", "xdptun"]);
    command
        .args(["--example", "manual", "--"])
        .arg(folder.path());
    run_visible(&mut command)?;
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
    fn targets_have_the_names_that_cargo_knows() {
        for target in Target::value_variants() {
            let value = target.to_possible_value().unwrap();
            assert_eq!(value.get_name(), target.triple());
        }
    }
}
