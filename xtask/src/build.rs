//! `cargo xtask build`: the one binary a user wants.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use indicatif::HumanBytes;
use xdptun_lab::workspace;

use crate::setup;
use crate::shell::{cargo, run_visible};

/// Options of `cargo xtask build`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Build for another machine, e.g. aarch64-unknown-linux-musl
    #[arg(long)]
    target: Option<String>,
}

/// Builds and says where the binary is.
pub fn run(args: &Args) -> Result<()> {
    setup::ensure_build()?;
    let binary = binary(args.target.as_deref())?;
    let size = fs::metadata(&binary).with_context(|| format!("{}", binary.display()))?;
    let size = HumanBytes(size.len());
    eprintln!("{size}");
    println!("{}", binary.display());
    Ok(())
}

/// Builds the binary, for another machine if one is named, and says where it is.
pub fn binary(target: Option<&str>) -> Result<PathBuf> {
    let mut folder = workspace::target_dir();
    if let Some(target) = target {
        setup::ensure_target(target)?;
        folder.push(target);
    }
    release("xdptun", &for_target(target))?;
    Ok(folder.join("release/xdptun"))
}

/// Builds what demo and tests run as root, for another machine if
/// one is named.
///
/// xtask itself is built again with optimization: it verifies the checksum of
/// every captured segment while the download competes for the same cores.
pub fn for_worker(target: Option<&str>) -> Result<()> {
    if let Some(target) = target {
        setup::ensure_target(target)?;
    }
    let extra = for_target(target);
    // One after the other: built together they share the features of their
    // dependencies, and the binary would not be the one of `cargo build`.
    release("xdptun", &extra)?;
    release("xtask", &extra)
}

/// Builds the fuzzer, and says where it is.
pub fn fuzzer() -> Result<PathBuf> {
    release("xdptun-test-datapath", &["--bin", "xdptun-fuzz"])?;
    Ok(workspace::target_dir().join("release/xdptun-fuzz"))
}

/// Builds what `bench` measures, and what measures it.
pub fn for_bench() -> Result<()> {
    release("xdptun", &[])?;
    release("xdptun-test-h3", &["--bins"])?;
    release("xdptun-bench", &[])
}

/// What measures.
pub fn bench_program() -> PathBuf {
    workspace::target_dir().join("release/xdptun-bench")
}

/// The options of cargo to build for another machine, if there is one.
pub fn for_target(target: Option<&str>) -> Vec<&str> {
    target.map_or(Vec::new(), |target| vec!["--target", target])
}

fn release(package: &str, extra: &[&str]) -> Result<()> {
    let mut command = cargo();
    command.args(["build", "--release", "--locked", "--package", package]);
    run_visible(command.args(extra))
}
