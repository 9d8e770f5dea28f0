//! `cargo xtask bench`: measurements that anyone can repeat.
//!
//! A measurement writes its raw numbers to `bench/results/NAME.json` and its
//! table into BENCHMARKS.md, between the markers that carry its name.

mod cpu;
mod statistics;
pub mod wg;

use anyhow::Result;
use clap::Subcommand;

/// Which measurement.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// A download: direct, over WireGuard, over WireGuard over xdptun
    Wg(wg::Args),
}

/// Measures and writes the results.
pub fn run(args: &Args) -> Result<()> {
    match &args.what {
        What::Wg(args) => wg::run(args),
    }
}
