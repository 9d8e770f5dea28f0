//! `cargo xtask package`: packages, archives and images of the static binary.
//!
//! The same binary gives the same bytes: times are the commit's, owners are root,
//! the order is that of the names.

mod about;
mod archive;
mod contents;
mod deb;
mod format;
mod licences;
mod nfpm;
mod oci;
mod scripts;
mod system;

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
use about::About;
use contents::Sources;
use format::{Format, Job};

/// Options of `cargo xtask package`.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// Only for this machine; may be repeated [default: all]
    #[arg(long, value_name = "TRIPLE", value_parser = target)]
    target: Vec<Arch>,
    /// Only this format; may be repeated [default: all]
    #[arg(long, value_name = "FORMAT")]
    format: Vec<Format>,
    /// The person to ask about the packages [default: as Cargo.toml says]
    #[arg(long, value_name = "NAME <ADDRESS>")]
    maintainer: Option<String>,
    /// Where the project is on the web [default: as Cargo.toml says]
    #[arg(long, value_name = "URL")]
    homepage: Option<String>,
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
    let formats = all_or(&args.format);
    refuse_unmade(&args.target, formats)?;
    let mut targets = all_or(&args.target).to_vec();
    targets.retain(|target| !made_of(formats, *target).is_empty());
    if formats.iter().any(|format| format.needs_nfpm()) {
        setup::ensure_nfpm().context("only `--format` deb, tar and oci do without nfpm")?;
    }
    let out = match &args.out {
        Some(out) => out.clone(),
        None => workspace::target_dir().join("package"),
    };
    fs::create_dir_all(&out).with_context(|| format!("{}: cannot make", out.display()))?;
    let triples: Vec<&str> = targets.iter().map(|target| target.triple()).collect();
    let binaries = build::shipped(&triples)?;
    let manual = manual()?;
    let root = workspace::root();
    let changelog = root.join("xdptun/package/debian/changelog");
    let about = About::new(&changelog, args.maintainer.clone(), args.homepage.clone())?;
    let time = time()?;
    for (&target, binary) in targets.iter().zip(&binaries) {
        let sources = Sources {
            root: &root,
            manual: manual.path(),
            binary,
            notices: &licences::notices(target.triple())?,
        };
        let job = Job {
            sources,
            about: &about,
            target,
            time,
        };
        for format in made_of(formats, target) {
            write(&out.join(job.file_name(format)), &job.build(format)?)?;
        }
    }
    Ok(())
}

/// What was chosen, or everything.
fn all_or<T: ValueEnum>(chosen: &[T]) -> &[T] {
    match chosen {
        [] => T::value_variants(),
        chosen => chosen,
    }
}

/// Requires something to make for each target that was chosen.
fn refuse_unmade(targets: &[Arch], formats: &[Format]) -> Result<()> {
    for &target in targets {
        let all = made_of(Format::value_variants(), target);
        let names = all.iter().filter_map(ValueEnum::to_possible_value);
        let names: Vec<_> = names.map(|name| name.get_name().to_owned()).collect();
        ensure!(
            !made_of(formats, target).is_empty(),
            "{}: only these formats are made for it: {}",
            target.triple(),
            names.join(", ")
        );
    }
    Ok(())
}

/// Those of some formats that are made for a processor.
fn made_of(formats: &[Format], target: Arch) -> Vec<Format> {
    let formats = formats.iter().copied();
    formats.filter(|format| format.is_for(target)).collect()
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
    fn a_target_is_named_as_cargo_names_it() {
        for arch in Arch::value_variants() {
            assert_eq!(target(arch.triple()), Ok(*arch));
        }
        let error = target("x86_64-unknown-linux-gnu").unwrap_err();
        assert!(error.contains("aarch64-unknown-linux-musl"), "{error}");
    }

    #[test]
    fn what_is_not_made_is_refused_with_what_is() {
        let error = refuse_unmade(&[Arch::Armv7], &[Format::Rpm]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "armv7-unknown-linux-musleabihf: only these formats are made for it: \
             deb, tar, openwrt-ipk, openwrt-apk"
        );
        for target in Arch::value_variants() {
            refuse_unmade(&[*target], Format::value_variants()).unwrap();
        }
    }
}
