//! `cargo xtask test`: every test of the workspace.
//!
//! Suites on the host run as the user. Suites that make network namespaces or
//! load eBPF programs are built as the user and run as root, optimized, because
//! they capture and verify traffic while it competes for the same cores. Some
//! need a kernel that this machine may not have: they run in guests ([`guests`]).

mod compile;
pub mod guests;
mod metadata;
mod plan;
pub mod suite;
mod target;
pub mod worker;

use std::time::SystemTime;

use anyhow::{Context, Result, ensure};

use crate::{package, setup, shell};
use plan::Plan;
use suite::{Suite, Totals};

/// The word for all suites of `test/real` in their long form.
const ALL_REAL: &str = "all-real";

/// Options of `cargo xtask test`.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// Run only suites whose name contains one of these words: wg, unit, ...; `all-real` runs
    /// those of test/real with long transfers and a table of ratios
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

impl Args {
    /// The same, or these words where none are given.
    pub fn or_words(mut self, words: &[&str]) -> Self {
        if self.suites.is_empty() && self.more_suites.is_empty() {
            self.suites = words.iter().map(|word| (*word).to_owned()).collect();
        }
        self
    }

    /// Whether the suites that have a long form run in it.
    fn is_long(&self) -> bool {
        let mut words = self.suites.iter().chain(&self.more_suites);
        words.any(|word| word == ALL_REAL)
    }

    fn plan(&self) -> Result<Plan> {
        let words = self.suites.iter().chain(&self.more_suites);
        let words: Vec<&str> = words
            .map(|word| match word.as_str() {
                ALL_REAL => "-real ",
                word => word,
            })
            .collect();
        let plan = Plan::discover(&words)?;
        ensure!(
            !plan.is_empty(),
            "no suite's name contains {}; `cargo xtask test --list` shows them",
            words.join(" or ")
        );
        Ok(plan)
    }
}

/// Builds the suites, runs those of the host, a few in guests, then those of root.
pub fn run(args: &Args) -> Result<()> {
    let mut plan = args.plan()?;
    if args.list {
        print!("{plan}");
        return Ok(());
    }
    let mut totals = Totals::new(SystemTime::now());
    leave_out_special(&mut plan, &mut totals);
    totals.leave_out(
        plan.retain_vm(|name| name == guests::QUICK_SUITE),
        guests::RUNS_ALL,
    );
    if plan.needs_vm() {
        setup::ensure_vm()?;
    }
    if plan.needs_root() || plan.needs_vm() {
        setup::ensure()?;
        plan.build_subjects(None)?;
    } else {
        setup::ensure_build()?;
    }
    if plan.needs_real() {
        setup::ensure_real()?;
    }
    if plan.needs_packages() {
        setup::ensure_packages()?;
        package::run(&package::Args::default())?;
    }
    let mut suites = plan.build(None)?;
    for suite in &mut suites.root {
        suite.long = args.is_long();
    }
    for suite in &suites.host {
        totals.add(suite.run(&args.harness, |line| println!("{line}"))?);
    }
    guests::run_quick(&suites.vm, &args.harness, &mut totals)?;
    if suites.root.is_empty() {
        return totals.conclude();
    }
    let job = worker::Job {
        suites: suites.root,
        harness: args.harness.clone(),
        totals,
    };
    if shell::is_root() {
        return job.run();
    }
    crate::worker::become_root("suites", &[serde_json::to_string(&job)?])
}

/// Builds the suites that a guest can run, for another machine if one is named;
/// `None` if they were only to be shown.
pub fn build_for_guest(args: &Args, target: Option<&str>) -> Result<Option<worker::Job>> {
    let mut plan = args.plan()?;
    plan.keep_for_guest();
    if args.list {
        print!("{plan}");
        return Ok(None);
    }
    let mut totals = Totals::new(SystemTime::now());
    leave_out_special(&mut plan, &mut totals);
    setup::ensure()?;
    if plan.needs_real() {
        setup::ensure_real()?;
    }
    plan.build_subjects(target)?;
    let plan::Suites { mut root, vm, .. } = plan.build(target)?;
    root.extend(vm);
    Ok(Some(worker::Job {
        suites: root,
        harness: args.harness.clone(),
        totals,
    }))
}

/// Leaves out the suites that a command of their own runs.
fn leave_out_special(plan: &mut Plan, totals: &mut Totals) {
    for (suite, command) in [
        (guests::PAIR_SUITE, guests::RUNS_PAIR),
        (guests::JOOL_SUITE, guests::RUNS_JOOL),
    ] {
        totals.leave_out(plan.retain_vm(|name| name != suite), command);
    }
}

/// Builds one of these suites.
pub fn build_special_suite(name: &str) -> Result<Suite> {
    let plan = Plan::discover(&[&format!("-vm {name}")])?;
    setup::ensure()?;
    plan.build_subjects(None)?;
    let mut suites = plan.build(None)?.vm;
    let missing = || format!("test/vm has no suite {name}");
    suites.pop().with_context(missing)
}
