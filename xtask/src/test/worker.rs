//! The suites that need root.

use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::suite::{Outcome, Suite, Totals};

/// The job as JSON, handed over by the user's part.
#[derive(Debug, clap::Args)]
pub struct Args {
    job: String,
    /// Also writes a report for the host of a guest, as JSON
    #[arg(long)]
    report: Option<PathBuf>,
}

/// What is left to run, and what ran already.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    /// What to run.
    pub suites: Vec<Suite>,
    /// What each suite gets.
    pub harness: Vec<String>,
    /// What ran already.
    pub totals: Totals,
}

impl Job {
    /// Runs the suites one after the other and prints the total.
    pub(super) fn run(mut self) -> Result<()> {
        self.run_suites()?;
        self.totals.conclude()
    }

    fn run_suites(&mut self) -> Result<()> {
        for suite in &self.suites {
            suite.run(&self.harness, &mut self.totals)?;
        }
        Ok(())
    }
}

/// What a guest tells its host.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// Each suite.
    pub outcomes: Vec<Outcome>,
    /// Whether the kernel has TCX links.
    pub tcx: bool,
}

/// Runs a job as root.
pub fn run(args: &Args) -> Result<()> {
    let mut job: Job =
        serde_json::from_str(&args.job).context("the job is not what it should be")?;
    let Some(report) = &args.report else {
        return job.run();
    };
    job.run_suites()?;
    let describe = || format!("{}: cannot write", report.display());
    let file = File::create(report).with_context(describe)?;
    let report = Report {
        outcomes: job.totals.into_outcomes(),
        tcx: has_tcx()?,
    };
    serde_json::to_writer(file, &report).with_context(describe)
}

/// Looks for the function that attaches such a link.
fn has_tcx() -> Result<bool> {
    let symbols = fs::read_to_string("/proc/kallsyms").context("/proc/kallsyms")?;
    Ok(symbols.contains(" tcx_link_attach\n"))
}
