//! `cargo xtask`: set up a machine, build, check, show, test and measure xdptun.
//!
//! Everything runs as the user; only the parts that make network namespaces run as
//! root, through [`worker`]. A verb has a room of its own (a file or a
//! folder), and rooms that several verbs need come first. A room uses only rooms
//! above it in this table; `cargo xtask test 'docs architecture'` checks it.
//!
//! | room | what it knows |
//! |---|---|
//! | [`progress`] | what happens right now, on standard error |
//! | [`shell`] | running programs: as the user, as root, in place of this process |
//! | [`debian`] | Debian: its names for processors, its packages, a system made of them |
//! | [`setup`] | what building, showing and testing need, and how it is installed |
//! | [`build`] | the binaries, for this machine or another |
//! | [`worker`] | the step from the user to root |
//! | [`guest`] | an emulated machine with another kernel, which runs one job |
//! | [`check`] | formatting, lints, documentation |
//! | [`package`] | Debian packages and archives |
//! | [`fuzz`] | the fuzzer of the kernel programs |
//! | [`bench`] | measurements |
//! | [`demo`] | WireGuard over xdptun, a forwarded port, and a translated host, to be seen |
//! | [`soak`] | traffic with random disturbances |
//! | [`test`] | the suites: which there are, running them here and in guests |
//! | [`vm`] | commands and suites under other kernels |

mod bench;
mod build;
mod check;
mod debian;
mod demo;
mod fuzz;
mod guest;
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
use xdptun_lab::privilege::require_root;

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
    /// Build the binary that is shipped, target/dist/xdptun
    Build(build::Args),
    /// Check formatting, lints and documentation, as CI does
    Check(check::Args),
    /// Build packages, archives and images for PCs and ARM
    Package(package::Args),
    /// Show WireGuard over xdptun, a forwarded port or translated hosts, between hosts of a laboratory
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
    #[command(hide = true, subcommand)]
    Worker(Job),
}

/// The jobs that a verb starts through [`worker`].
#[derive(Debug, Subcommand)]
enum Job {
    Demo(demo::Args),
    Suites(test::worker::Args),
    Soak(soak::Args),
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
        Verb::Worker(job) => work(job),
    }
}

/// Does a job as root.
fn work(job: Job) -> Result<()> {
    require_root()?;
    match job {
        Job::Demo(args) => demo::show(&args),
        Job::Suites(args) => test::worker::run(&args),
        Job::Soak(args) => soak::work(&args),
    }
}
