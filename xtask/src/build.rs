//! `cargo xtask build`: the one binary a user wants.

use std::fs;
use std::io::read_to_string;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use indicatif::HumanBytes;
use serde_json::Value;
use xdptun_lab::workspace;

use crate::setup;
use crate::shell::{Supervised, cargo, run_visible};

/// Options of `cargo xtask build`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Build for another machine, e.g. aarch64-unknown-linux-musl
    #[arg(long)]
    target: Option<String>,
}

/// Builds the library that User-Mode Linux takes ([`ANY_ALIGNMENT`]).
pub fn any_alignment() -> Result<()> {
    let package = "xdptun-test-any-alignment";
    run_visible(cargo().args(["build", "--release", "--locked", "--package", package]))
}

/// The library of `test/vm/any_alignment`, in the target directory.
pub const ANY_ALIGNMENT: &str = "release/libxdptun_test_any_alignment.so";

/// Builds and says where the binary is.
pub fn run(args: &Args) -> Result<()> {
    setup::ensure_build()?;
    let target = args.target.as_deref();
    build_binaries(Profile::Dist, target.as_slice())?;
    let binary = Profile::Dist.binary(target);
    let size = fs::metadata(&binary).with_context(|| format!("{}", binary.display()))?;
    let size = HumanBytes(size.len());
    eprintln!("{size}");
    println!("{}", binary.display());
    Ok(())
}

/// Builds the binary for the tests, for another machine if one is named, and says where it is.
pub fn binary(target: Option<&str>) -> Result<PathBuf> {
    build_binaries(Profile::Release, target.as_slice())?;
    Ok(Profile::Release.binary(target))
}

/// Builds the binary that is shipped for other machines, all at once, and says where each is.
pub fn shipped(targets: &[&str]) -> Result<Vec<PathBuf>> {
    build_binaries(Profile::Dist, targets)?;
    let binaries = targets
        .iter()
        .map(|target| Profile::Dist.binary(Some(target)));
    Ok(binaries.collect())
}

/// How the binary is built.
#[derive(Clone, Copy)]
enum Profile {
    /// As quickly as an optimized one can be.
    Release,
    /// As small as it can be, which takes minutes: what is shipped.
    Dist,
}

impl Profile {
    /// Its name in `Cargo.toml`, and of cargo's folder.
    const fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Dist => "dist",
        }
    }

    /// Where cargo leaves the binary.
    fn binary(self, target: Option<&str>) -> PathBuf {
        let mut folder = workspace::target_dir();
        folder.extend(target);
        folder.join(self.name()).join("xdptun")
    }
}

fn build_binaries(profile: Profile, targets: &[&str]) -> Result<()> {
    let mut command = cargo();
    command.args(["build", "--profile", profile.name(), "--locked"]);
    command.args(["--package", "xdptun"]);
    if matches!(profile, Profile::Dist) {
        let script = workspace::root().join("xdptun/package/aborts.ld");
        let script = script.to_str().context("the path is not UTF-8")?;
        let flags = [
            "-Cforce-unwind-tables=no",
            &format!("-Clink-arg=-T{script}"),
        ];
        command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    }
    for target in targets {
        setup::ensure_target(target)?;
        command.args(for_target(Some(target)));
    }
    run_visible(&mut command)
}

/// Builds what demo and soak run as root.
pub fn for_worker() -> Result<()> {
    binary(None)?;
    with_tests(&[WORKER])
}

/// The part of a verb that runs as root.
///
/// xtask itself is built again with optimization: it verifies the checksum of
/// every captured segment while the download competes for the same cores.
pub const WORKER: &str = "xtask";

/// Builds the kernel side of each function as a file, for another machine if one is named.
pub fn object(target: Option<&str>) -> Result<()> {
    let mut folder = workspace::target_dir();
    if let Some(target) = target {
        setup::ensure_target(target)?;
        folder.push(target);
    }
    let mut command = cargo();
    command
        .args(["build", "--release", "--locked", "--package", OBJECT])
        .arg("--message-format=json-render-diagnostics")
        .args(for_target(target))
        .stdout(Stdio::piped());
    let mut cargo = Supervised::spawn(&mut command)?;
    let output = cargo.child().stdout.take().context("no output of cargo")?;
    let messages = read_to_string(output)?;
    let status = cargo.wait()?;
    ensure!(status.success(), "the kernel side does not compile");
    let made = objects_of(&messages).context("cargo did not say where the objects are")?;
    for function in FUNCTIONS {
        let (made, object) = (
            made.join(function),
            folder.join(format!("release/{function}.o")),
        );
        fs::copy(&made, &object)
            .with_context(|| format!("{}: cannot copy to {}", made.display(), object.display()))?;
    }
    Ok(())
}

/// The package whose build script makes the objects.
const OBJECT: &str = "xdptun-object";

/// The functions whose objects tests load as files.
const FUNCTIONS: [&str; 4] = ["tunnel", "policy", "gateway", "nat64"];

/// Where cargo's messages say that the build script left the objects.
fn objects_of(messages: &str) -> Option<PathBuf> {
    let messages = messages.lines().map(serde_json::from_str::<Value>);
    messages.map_while(Result::ok).find_map(|message| {
        let is_made = message["reason"] == "build-script-executed"
            && message["package_id"].as_str()?.contains(OBJECT);
        is_made.then_some(PathBuf::from(message["out_dir"].as_str()?))
    })
}

/// Builds the fuzzer, and says where it is.
pub fn fuzzer() -> Result<PathBuf> {
    object(None)?;
    with_tests(&["xdptun-fuzz"])?;
    Ok(workspace::target_dir().join("release/xdptun-fuzz"))
}

/// Builds the programs that `bench` measures, and the program that measures them.
pub fn for_bench() -> Result<()> {
    binary(None)?;
    with_tests(&["server", "client", "make-cert", "xdptun-bench"])
}

/// Selects from all packages.
///
/// What is selected so has the same dependencies with the same features as what else is, so
/// that cargo builds each dependency once. The command alone is built by itself: it has to be
/// the one of a plain `cargo build`.
pub const ALL_PACKAGES: &str = "--workspace";

/// Builds programs that are no tests with what the tests are built of.
fn with_tests(programs: &[&str]) -> Result<()> {
    let mut command = cargo();
    command
        .args(["build", "--release", "--locked"])
        .arg(ALL_PACKAGES);
    for program in programs {
        command.args(["--bin", program]);
    }
    // With a test among them, the dependencies of tests count for the features.
    run_visible(command.args(["--test", "lab"]))
}

/// The program that measures.
pub fn bench_program() -> PathBuf {
    workspace::target_dir().join("release/xdptun-bench")
}

/// The options of cargo to build for another machine, if there is one.
pub fn for_target(target: Option<&str>) -> Vec<&str> {
    target.map_or(Vec::new(), |target| vec!["--target", target])
}
