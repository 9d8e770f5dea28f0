//! `cargo xtask`: set up a machine, build, check, show, test and measure xdptun.
//!
//! One file or folder per verb. Everything runs as the user who started it;
//! only what makes network namespaces runs as root, through [`worker`].

mod bench;
mod build;
mod check;
mod demo;
mod fuzz;
mod package;
mod progress;
mod setup;
mod shell;
mod soak;
mod test;
mod vm;
mod worker;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Set up a machine, build, check, show, test and measure xdptun.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Install what is missing to build, show and test; safe to run again
    Setup,
    /// Build target/release/xdptun
    Build(build::Args),
    /// Check formatting, lints and documentation, as CI does
    Check(check::Args),
    /// Build Debian packages and archives for amd64 and arm64
    Package(package::Args),
    /// Show WireGuard over xdptun between two hosts and a strict router
    Demo(demo::Args),
    /// Run all tests, or the suites whose names contain a word
    Test(test::Args),
    /// Run a command or the tests under another kernel, in an emulated machine
    Vm(vm::Args),
    /// Run random packets through the kernel programs, against rules
    Fuzz(fuzz::Args),
    /// Run traffic with random disturbances for as long as wanted
    Soak(soak::Args),
    /// Measure; writes bench/results and BENCHMARKS.md
    Bench(bench::Args),
    /// The part of a verb that runs as root
    #[command(hide = true)]
    Worker(worker::Args),
}

fn main() -> ExitCode {
    match run(Cli::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Setup => setup::run(),
        Verb::Build(args) => build::run(&args),
        Verb::Check(args) => check::run(&args),
        Verb::Package(args) => package::run(&args),
        Verb::Demo(args) => demo::run(&args),
        Verb::Test(args) => test::run(&args),
        Verb::Vm(args) => vm::run(&args),
        Verb::Fuzz(args) => fuzz::run(&args),
        Verb::Soak(args) => soak::run(&args),
        Verb::Bench(args) => bench::run(&args),
        Verb::Worker(args) => worker::run(args),
    }
}
