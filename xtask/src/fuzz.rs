//! `cargo xtask fuzz`: the long run of the fuzzer in test/datapath.
//!
//! The fuzzer is a program of its own, because it brings the kernel programs
//! along, and knows its options itself.

use std::os::unix::process::CommandExt;

use anyhow::{Context, Result};
use xdptun_lab::command::line_of;

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
    let mut command = shell::as_root(build::fuzzer()?)?;
    command
        .args(&args.options)
        .env("PATH", shell::path_with_admin_dirs());
    // Returns only when it fails.
    let error = command.exec();
    Err(error).with_context(|| format!("cannot start `{}`", line_of(&command)))
}
