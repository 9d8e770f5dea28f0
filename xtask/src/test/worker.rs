//! The suites that need root.

use std::fs::{self, File};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};
use xdptun_lab::timestamps;

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
    /// Runs the suites that bear it beside each other, then the rest one after the
    /// other, and prints the total.
    pub(super) fn run(mut self) -> Result<()> {
        timestamps::enable()?;
        let bears = |suite: &mut Suite| suite.beside_others;
        let together: Vec<Suite> = self.suites.extract_if(.., bears).collect();
        for outcome in run_together(&together, &self.harness)? {
            self.totals.add(outcome);
        }
        self.run_suites()?;
        self.totals.conclude()
    }

    fn run_suites(&mut self) -> Result<()> {
        timestamps::enable()?;
        for suite in &self.suites {
            let outcome = suite.run(&self.harness, |line| println!("{line}"))?;
            self.totals.add(outcome);
        }
        Ok(())
    }
}

/// Runs as many suites at once as there are cores. The output of each is shown as a
/// whole when it ends. One that cannot be run counts as crashed, and the others go on.
///
/// Most of their time passes in the kernel, on one core: it verifies the programs of each
/// xdptun that starts.
fn run_together(suites: &[Suite], harness: &[String]) -> Result<Vec<Outcome>> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let next = AtomicUsize::new(0);
    let run_some = || {
        let mut outcomes = Vec::new();
        while let Some(suite) = suites.get(next.fetch_add(1, Ordering::Relaxed)) {
            println!("\nbegins beside others: {}", suite.title);
            let mut output = String::new();
            let outcome = suite.run(harness, |line| {
                output += line;
                output.push('\n');
            });
            print!("{output}");
            outcomes.push(outcome.unwrap_or_else(|error| {
                println!("{}: {error:#}", suite.title);
                Outcome {
                    title: suite.title.clone(),
                    crashed: true,
                    ..Outcome::default()
                }
            }));
        }
        outcomes
    };
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..cores).map(|_| scope.spawn(run_some)).collect();
        let mut outcomes = Vec::new();
        for lane in lanes {
            outcomes.extend(lane.join().map_err(|_| anyhow!("a thread panicked"))?);
        }
        Ok(outcomes)
    })
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
