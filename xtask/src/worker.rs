//! The part of a verb that needs root, in a process of its own.
//!
//! An ordinary user builds as that user; only this process runs under `sudo`.

use std::process::Command;

use anyhow::Result;
use clap::Subcommand;
use xdptun_lab::privilege::require_root;
use xdptun_lab::workspace;

use crate::{demo, shell, soak, test};

/// One job.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    job: Job,
}

#[derive(Debug, Subcommand)]
enum Job {
    Demo(demo::Args),
    Suites(test::worker::Args),
    Soak(soak::Args),
}

/// Does the job, as root.
pub fn run(args: Args) -> Result<()> {
    require_root()?;
    match args.job {
        Job::Demo(args) => demo::show(&args),
        Job::Suites(args) => test::worker::run(&args),
        Job::Soak(args) => soak::work(&args),
    }
}

/// The command that does a job as root: the release build of this program.
pub fn command(job: &str) -> Result<Command> {
    let mut command = shell::as_root(workspace::target_dir().join("release/xtask"))?;
    command
        .args(["worker", job])
        .env("PATH", shell::path_with_admin_dirs());
    Ok(command)
}
