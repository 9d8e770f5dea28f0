//! `cargo xtask vm`: other kernels, emulated.

mod jool;
mod matrix;
mod nic;
mod suites;

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;

use crate::debian::Arch;
use crate::guest::{Hypervisor, Job};
use crate::test;

/// Options of `cargo xtask vm`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The guest's processor; another one than this machine's takes static programs
    #[arg(long, value_enum, default_value_t = Arch::X86_64, conflicts_with_all = ["matrix", "nic", "jool"])]
    arch: Arch,
    /// Series or version of Debian's kernel: 6.1, 6.12, 6.12.95, ...; or `user-mode-linux`, which has
    /// neither BTF nor a JIT
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// Run the suites under one kernel after the other and print a table
    #[arg(long, group = "table", conflicts_with = "kernel")]
    matrix: bool,
    /// Compare NAT64 with Jool, which is built for the guest's kernel, instead of a command
    #[arg(long, group = "table", conflicts_with_all = ["kernel", "command"])]
    jool: bool,
    /// Write that table into docs/kernels.md, or docs/nat64.md
    #[arg(long, requires = "table")]
    write: bool,
    /// Two guests joined by network cards of this model, instead of a command
    #[arg(long, value_enum, conflicts_with_all = ["matrix", "jool", "command"])]
    nic: Option<nic::Model>,
    /// Minutes until a guest that does not end is ended
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// `test [WORD]...` as `cargo xtask test` takes them, `sh` for a shell, or
    /// a command with its arguments, run as root
    #[arg(last = true, required_unless_present_any = ["matrix", "nic", "jool"])]
    command: Vec<String>,
}

/// The words after `test`.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask vm -- test")]
struct TestCommand {
    #[command(flatten)]
    selection: test::Args,
}

impl Args {
    fn limit(&self) -> Duration {
        Duration::from_secs(60 * self.limit)
    }
}

/// Boots a guest and runs the command in it.
pub fn run(args: &Args) -> Result<()> {
    if let Some(model) = args.nic {
        return nic::run(model, &args.kernel, args.limit());
    }
    if args.jool {
        return jool::run(args.limit(), args.write);
    }
    match args.command.first().map(String::as_str) {
        Some("test") if args.matrix => {
            let command = TestCommand::parse_from(&args.command);
            matrix::run(&command.selection, args.limit(), args.write)
        }
        _ if args.matrix => {
            ensure!(
                args.command.is_empty(),
                "--matrix runs suites: `-- test [WORD]...`"
            );
            matrix::run(&test::Args::default(), args.limit(), args.write)
        }
        Some("test") => {
            // Prints its own help and errors.
            let command = TestCommand::parse_from(&args.command);
            suites::run(args.arch, &args.kernel, command.selection, args.limit())
        }
        _ => command(args),
    }
}

fn command(args: &Args) -> Result<()> {
    args.arch.ensure()?;
    let mut job = Job::new(args.command.clone());
    job.terminal = args.command == ["sh"];
    let mut guest = Hypervisor::new(args.arch).boot(&args.kernel, &job, &[])?;
    let ended = guest.run(args.limit(), |line| println!("{line}"))?;
    ensure!(
        ended.status == 0,
        "`{}` in the guest: exit status {}",
        args.command.join(" "),
        ended.status
    );
    Ok(())
}
