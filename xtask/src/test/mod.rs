//! `cargo xtask test`: every test of the workspace.
//!
//! Suites on the host run as the user. Suites that make network namespaces or
//! load eBPF programs are built as the user and run as root, optimized, because
//! they capture and verify traffic while it competes for the same cores.

mod compile;
mod plan;
mod suite;
pub mod worker;

use std::os::unix::process::CommandExt;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use xdptun_lab::command::line_of;

use crate::{build, setup, shell};
use plan::Plan;
use suite::Totals;

/// Options of `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run only suites whose name contains one of these words: wg, unit, ...
    suites: Vec<String>,
    /// The same as an option
    #[arg(long = "suite", value_name = "WORD")]
    more_suites: Vec<String>,
    /// Show the suites and run nothing
    #[arg(long)]
    list: bool,
    /// What each suite gets: the name of a test, --nocapture, ...
    #[arg(last = true)]
    harness: Vec<String>,
}

/// Builds the suites, runs those of the host, then those of root.
pub fn run(args: &Args) -> Result<()> {
    let words: Vec<&str> = args
        .suites
        .iter()
        .chain(&args.more_suites)
        .map(String::as_str)
        .collect();
    let plan = Plan::discover(&words)?;
    ensure!(
        !plan.is_empty(),
        "no suite's name contains {}; `cargo xtask test --list` shows them",
        words.join(" or ")
    );
    if args.list {
        print!("{plan}");
        return Ok(());
    }
    let mut totals = Totals::new(SystemTime::now());
    if plan.needs_root() {
        setup::ensure()?;
        build::for_worker()?;
    } else {
        setup::ensure_build()?;
    }
    let (host, root) = plan.build()?;
    for suite in &host {
        suite.run(&args.harness, &mut totals)?;
    }
    if root.is_empty() {
        return totals.conclude();
    }
    let job = worker::Job {
        suites: root,
        harness: args.harness.clone(),
        totals,
    };
    if shell::is_root() {
        return job.run();
    }
    let mut command = crate::worker::command("suites")?;
    command.arg(serde_json::to_string(&job)?);
    // Returns only when it fails.
    let error = command.exec();
    Err(error).with_context(|| format!("cannot start `{}`", line_of(&command)))
}
