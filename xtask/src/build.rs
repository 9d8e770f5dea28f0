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
    let mut folder = workspace::target_dir();
    let mut extra = Vec::new();
    if let Some(target) = &args.target {
        setup::ensure_target(target)?;
        extra = vec!["--target", target];
        folder.push(target);
    }
    release("xdptun", &extra)?;
    let binary = folder.join("release/xdptun");
    let size = fs::metadata(&binary).with_context(|| format!("{}", binary.display()))?;
    let size = HumanBytes(size.len());
    eprintln!("{size}");
    println!("{}", binary.display());
    Ok(())
}

/// Builds what demo, tests and benchmarks run as root.
///
/// xtask itself is built again with optimization: it verifies the checksum of
/// every captured segment while the download competes for the same cores.
pub fn for_worker() -> Result<()> {
    // One after the other: built together they share the features of their
    // dependencies, and the binary would not be the one of `cargo build`.
    release("xdptun", &[])?;
    release("xtask", &[])
}

/// Builds the fuzzer, and says where it is.
pub fn fuzzer() -> Result<PathBuf> {
    release("xdptun-test-datapath", &["--bin", "xdptun-fuzz"])?;
    Ok(workspace::target_dir().join("release/xdptun-fuzz"))
}

fn release(package: &str, extra: &[&str]) -> Result<()> {
    let mut command = cargo();
    command.args(["build", "--release", "--locked", "--package", package]);
    run_visible(command.args(extra))
}
