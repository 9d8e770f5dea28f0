//! The suites that need root.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::suite::{Suite, Totals};

/// The job as JSON, handed over by the user's part.
#[derive(Debug, clap::Args)]
pub struct Args {
    job: String,
}

/// What is left to run, and what ran already.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) suites: Vec<Suite>,
    pub(super) harness: Vec<String>,
    pub(super) totals: Totals,
}

impl Job {
    /// Runs the suites one after the other and prints the total.
    pub(super) fn run(mut self) -> Result<()> {
        for suite in &self.suites {
            suite.run(&self.harness, &mut self.totals)?;
        }
        self.totals.conclude()
    }
}

/// Runs a job as root.
pub fn run(args: &Args) -> Result<()> {
    let job: Job = serde_json::from_str(&args.job).context("the job is not what it should be")?;
    job.run()
}
