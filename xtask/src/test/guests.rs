//! Suites in guests: emulated machines with other kernels.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use super::suite::{Outcome, Suite, Totals};
use super::worker::{self, Report};
use crate::debian::Arch;
use crate::guest::{Ended, Guest, Hypervisor, Job, USER_MODE};

/// The suite that `cargo xtask test` runs in guests.
pub const QUICK_SUITE: &str = "quick";

/// The suite that takes two guests.
pub const PAIR_SUITE: &str = "nic";

/// The command that runs [`PAIR_SUITE`].
pub const RUNS_PAIR: &str = "cargo xtask vm --nic MODEL";

/// The suite that takes Jool in the guest's kernel.
pub const JOOL_SUITE: &str = "jool";

/// The command that runs [`JOOL_SUITE`].
pub const RUNS_JOOL: &str = "cargo xtask vm --jool";

/// The command that runs the other suites of `test/vm`.
pub const RUNS_ALL: &str = "cargo xtask vm -- test";

/// The kernels of the guests that run [`QUICK_SUITE`]: one without TCX, one with it, one without BTF
/// and without a JIT.
const QUICK_KERNELS: [&str; 3] = ["6.1", "6.12", USER_MODE];

/// A test of [`QUICK_SUITE`] that [`USER_MODE`] cannot run: that kernel has no WireGuard.
const NEEDS_WIREGUARD: &str = "wireguard_in_the_kernel";

/// A guest that is still not done after this hangs: three share the cores.
const QUICK_LIMIT: Duration = Duration::from_secs(600);

/// What came of the suites in one guest.
#[derive(Debug)]
pub struct Run {
    /// `uname -r`.
    pub release: String,
    /// From the start of the emulator to the start of the tests.
    pub boot: Duration,
    /// What it reports.
    pub report: Report,
}

/// Runs the quick suites under each of the quick kernels, at the same time: a guest keeps
/// one core busy for most of its time.
pub fn run_quick(suites: &[Suite], harness: &[String], totals: &mut Totals) -> Result<()> {
    if suites.is_empty() {
        return Ok(());
    }
    let hypervisor = Hypervisor::new(Arch::X86_64);
    let job = |kernel| worker::Job {
        suites: suites.to_vec(),
        harness: harness_in(kernel, harness),
        totals: Totals::new(std::time::SystemTime::now()),
    };
    // Before the first one boots, whose time is limited.
    for kernel in QUICK_KERNELS {
        hypervisor.fetch(kernel)?;
    }
    let runs: Vec<Result<Run>> = thread::scope(|scope| {
        let in_one = |kernel: &'static str| {
            let name = if kernel == USER_MODE { "uml" } else { kernel };
            let show = move |line: &str| println!("{name:>5} | {line}");
            in_guest(&hypervisor, kernel, &job(kernel), QUICK_LIMIT, show)
        };
        let runs = QUICK_KERNELS.map(|kernel| scope.spawn(move || in_one(kernel)));
        let join = |run: thread::ScopedJoinHandle<'_, Result<Run>>| {
            run.join()
                .unwrap_or_else(|_| Err(anyhow!("a thread panicked")))
        };
        runs.into_iter().map(join).collect()
    });
    for (run, kernel) in runs.into_iter().zip(QUICK_KERNELS) {
        for outcome in run?.report.outcomes {
            totals.add(Outcome {
                title: format!("{} (Linux {kernel})", outcome.title),
                ..outcome
            });
        }
    }
    Ok(())
}

/// The arguments of the tests under a kernel.
pub fn harness_in(kernel: &str, harness: &[String]) -> Vec<String> {
    let mut harness = harness.to_vec();
    if kernel == USER_MODE {
        harness.extend(["--skip", NEEDS_WIREGUARD].map(str::to_owned));
    }
    harness
}

/// What the guest leaves in its shared folder.
const REPORT: &str = "report.json";

/// The suites as the job of a guest.
pub fn suites_job(arch: Arch, job: &worker::Job) -> Result<Job> {
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
pub fn report(guest: &Guest, ended: Ended) -> Result<Report> {
    ensure!(
        ended.status == 0,
        "the suites did not run to their end in the guest: exit status {}",
        ended.status
    );
    let report = guest.read(REPORT)?;
    serde_json::from_str(&report).context("the report of the guest")
}

/// Boots a kernel, runs the suites, and reads what the guest reports.
pub fn in_guest(
    hypervisor: &Hypervisor,
    kernel: &str,
    job: &worker::Job,
    limit: Duration,
    show: impl Fn(&str) + Send + 'static,
) -> Result<Run> {
    let mut guest = hypervisor.boot(kernel, &suites_job(hypervisor.arch(), job)?, &[])?;
    let ended = guest.run(limit, show)?;
    Ok(Run {
        release: guest.release().to_owned(),
        boot: ended.boot,
        report: report(&guest, ended)?,
    })
}
