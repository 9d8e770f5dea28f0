//! `cargo xtask demo`: the main jobs, to be seen.

mod forward;
mod nat;
mod nat64;
mod policy;
mod report;
mod tunnel;
mod web;

use anyhow::Result;
use clap::ValueEnum;

use crate::{build, setup, worker};

/// Options of `cargo xtask demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to show
    #[arg(value_enum, default_value = "tunnel")]
    what: What,
    /// Size of the downloaded file in MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=16384))]
    size_mib: u32,
    /// Print one JSON object on standard output and nothing else there
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// WireGuard over xdptun between two hosts and a strict router
    Tunnel,
    /// A port that is forwarded to a web server behind it
    Forward,
    /// Two inside hosts that share an outside address
    Nat,
    /// An IPv6-only client of an IPv4-only web server
    Nat64,
    /// A word that resets connections
    Policy,
}

/// Prepares everything as the user, then becomes the worker.
pub fn run(args: &Args) -> Result<()> {
    setup::ensure()?;
    build::for_worker()?;
    let what = args.what.to_possible_value();
    let what = what.map_or_else(String::new, |value| value.get_name().to_owned());
    let mut options = vec![what, "--size-mib".to_owned(), args.size_mib.to_string()];
    if args.json {
        options.push("--json".to_owned());
    }
    worker::become_root("demo", &options)
}

/// The demonstration itself, as root.
pub fn show(args: &Args) -> Result<()> {
    match args.what {
        What::Tunnel => tunnel::show(args),
        What::Forward => forward::show(args),
        What::Nat => nat::show(args),
        What::Nat64 => nat64::show(args),
        What::Policy => policy::show(args),
    }
}
