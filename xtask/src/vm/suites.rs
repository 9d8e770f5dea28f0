//! Test suites in guests.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Hypervisor;
use super::arch::Arch;
use super::guest::{Ended, Guest};
use super::job::Job;
use crate::test::suite::{Outcome, Suite, Totals};
use crate::test::worker::Report;
use crate::test::{self, worker};

/// The suite that `cargo xtask test` runs in guests.
pub const QUICK_SUITE: &str = "quick";

/// What runs the others.
pub const RUNS_ALL: &str = "cargo xtask vm -- test";

/// The kernels it does so with: one without TCX, one with it.
const QUICK_KERNELS: [&str; 2] = ["6.1", "6.12"];

/// A guest that is still not done after this hangs.
const QUICK_LIMIT: Duration = Duration::from_secs(300);

/// What came of the suites in one guest.
#[derive(Debug)]
pub(super) struct Run {
    /// `uname -r`.
    pub(super) release: String,
    /// From the start of the emulator to the start of the tests.
    pub(super) boot: Duration,
    /// What it reports.
    pub(super) report: Report,
}

/// Runs the selected suites in one guest.
pub fn run(arch: Arch, kernel: &str, selection: test::Args, limit: Duration) -> Result<()> {
    arch.ensure()?;
    let selection = selection.or_words(arch.suites());
    let Some(mut job) = test::build_for_guest(&selection, arch.target())? else {
        return Ok(());
    };
    let run = in_guest(&Hypervisor::new(arch), kernel, &job, limit)?;
    println!(
        "\nLinux {}, booted in {:.0} s",
        run.release,
        run.boot.as_secs_f64()
    );
    for outcome in run.report.outcomes {
        job.totals.add(outcome);
    }
    job.totals.conclude()
}

/// Runs the quick suites under each of the quick kernels.
pub fn run_quick(suites: &[Suite], harness: &[String], totals: &mut Totals) -> Result<()> {
    if suites.is_empty() {
        return Ok(());
    }
    let hypervisor = Hypervisor::new(Arch::X86_64);
    let job = worker::Job {
        suites: suites.to_vec(),
        harness: harness.to_vec(),
        totals: Totals::new(std::time::SystemTime::now()),
    };
    for kernel in QUICK_KERNELS {
        let run = in_guest(&hypervisor, kernel, &job, QUICK_LIMIT)?;
        for outcome in run.report.outcomes {
            totals.add(Outcome {
                title: format!("{} (Linux {kernel})", outcome.title),
                ..outcome
            });
        }
    }
    Ok(())
}

/// What the guest leaves in its shared folder.
const REPORT: &str = "report.json";

/// The suites as the job of a guest.
pub(super) fn suites_job(arch: Arch, job: &worker::Job) -> Result<Job> {
    let program = arch.target_dir().join("release/xtask");
    let report = Path::new(Job::SHARE).join(REPORT);
    let words = [
        &program.display().to_string(),
        "worker",
        "suites",
        "--report",
        &report.display().to_string(),
        &serde_json::to_string(job)?,
    ];
    Ok(Job::new(words.map(str::to_owned).into()))
}

/// What a guest reports whose suites ran to their end.
pub(super) fn report(guest: &Guest, ended: Ended) -> Result<Report> {
    ensure!(
        ended.status == 0,
        "the suites did not run to their end in the guest: exit status {}",
        ended.status
    );
    let report = guest.read(REPORT)?;
    serde_json::from_str(&report).context("the report of the guest")
}

/// Boots a kernel, runs the suites, and reads what the guest reports.
pub(super) fn in_guest(
    hypervisor: &Hypervisor,
    kernel: &str,
    job: &worker::Job,
    limit: Duration,
) -> Result<Run> {
    let mut guest = hypervisor.boot(kernel, &suites_job(hypervisor.apt.arch(), job)?, &[])?;
    let ended = guest.run(limit, |line| println!("{line}"))?;
    Ok(Run {
        release: guest.release().to_owned(),
        boot: ended.boot,
        report: report(&guest, ended)?,
    })
}
