//! `cargo xtask fuzz`: the long run of the fuzzer in test/datapath.
//!
//! The fuzzer is a program of its own, because it holds the kernel programs. It
//! reads its options itself.

use anyhow::Result;

use crate::{build, setup, shell};

/// Options of `cargo xtask fuzz`: those of the fuzzer.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// --packets N, --seed N, --only ITERATION, --program NAME; --help explains
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

/// Builds the fuzzer as the user, then becomes it, as root.
pub fn run(args: &Args) -> Result<()> {
    setup::ensure()?;
    shell::exec(shell::as_root(build::fuzzer()?)?.args(&args.options))
}
