//! The suites under one kernel after the other, and a table of it.

use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use xdptun_lab::document::write_between_markers;
use xdptun_lab::machine::Machine;

use crate::debian::Arch;
use crate::guest::Hypervisor;
use crate::setup;
use crate::test::guests::{Run, in_guest};
use crate::test::suite::{Outcome, Suite, Totals};
use crate::test::{self, worker};

/// A kernel, and the only suites that make sense there, if not all.
struct Entry {
    kernel: &'static str,
    only: Option<&'static str>,
}

const fn all(kernel: &'static str) -> Entry {
    Entry { kernel, only: None }
}

/// Every series that Debian's releases carry today, the newest of the ones in
/// between, and one that is too old.
const KERNELS: [Entry; 5] = [
    Entry {
        kernel: "5.10",
        only: Some("xdptun-test-vm kernel"),
    },
    all("6.1"),
    all("6.12"),
    all("6.18"),
    all("7.2"),
];

/// Runs the selected suites under every kernel and prints the table, which can
/// also be written into docs/kernels.md.
///
/// A kernel that does not get through is a row of its own, so that one hang does
/// not cost the results of the others.
pub fn run(selection: &test::Args, limit: Duration, write: bool) -> Result<()> {
    setup::ensure_vm()?;
    let Some(job) = test::build_for_guest(selection, Arch::X86_64.target())? else {
        return Ok(());
    };
    let hypervisor = Hypervisor::new(Arch::X86_64);
    let mut table = Table::default();
    for entry in KERNELS {
        let fits = |suite: &&Suite| entry.only.is_none_or(|only| suite.title == only);
        let job = worker::Job {
            suites: job.suites.iter().filter(fits).cloned().collect(),
            harness: job.harness.clone(),
            totals: Totals::new(SystemTime::now()),
        };
        if job.suites.is_empty() {
            continue;
        }
        let show = |line: &str| println!("{line}");
        match in_guest(&hypervisor, entry.kernel, &job, limit, show) {
            Ok(run) => table.add(&run),
            Err(error) => {
                eprintln!("error: {error:#}");
                table.broken.push(entry.kernel);
            }
        }
    }
    let text = table.markdown(&Machine::this()?);
    println!("\n{text}");
    if write {
        write_between_markers("docs/kernels.md", "kernels", &text)?;
    }
    ensure!(table.is_clean(), "some tests failed");
    Ok(())
}

/// The results under each kernel.
#[derive(Debug, Default)]
struct Table {
    rows: Vec<Row>,
    /// Tests that failed, with their kernel.
    failures: Vec<String>,
    /// Kernels whose guest did not get through.
    broken: Vec<&'static str>,
}

/// The suites of one package under one kernel.
#[derive(Debug)]
struct Row {
    release: String,
    boot: Duration,
    tcx: bool,
    package: String,
    passed: u64,
    failed: u64,
    ignored: u64,
    seconds: u64,
}

impl Table {
    fn add(&mut self, run: &Run) {
        let first = self.rows.len();
        for outcome in &run.report.outcomes {
            let (package, suite) = outcome
                .title
                .split_once(' ')
                .unwrap_or((&outcome.title, ""));
            let names = outcome.failures.iter().map(String::as_str);
            let names = names.chain(outcome.crashed.then_some("(crashed)"));
            self.failures
                .extend(names.map(|name| format!("{}: {package} {suite} {name}", run.release)));
            let rows = &mut self.rows[first..];
            match rows.iter_mut().find(|row| row.package == package) {
                Some(row) => row.count(outcome),
                None => {
                    let mut row = Row {
                        release: run.release.clone(),
                        boot: run.boot,
                        tcx: run.report.tcx,
                        package: package.to_owned(),
                        passed: 0,
                        failed: 0,
                        ignored: 0,
                        seconds: 0,
                    };
                    row.count(outcome);
                    self.rows.push(row);
                }
            }
        }
    }

    fn is_clean(&self) -> bool {
        self.failures.is_empty() && self.broken.is_empty()
    }

    fn markdown(&self, machine: &Machine) -> String {
        let mut text = String::from(
            "| kernel | tc hook | suites | passed | failed | skipped | seconds | boot, seconds |\n\
             |---|---|---|---:|---:|---:|---:|---:|\n",
        );
        for row in &self.rows {
            let hook = if row.tcx { "TCX" } else { "clsact" };
            let boot = row.boot.as_secs_f64();
            text += &format!(
                "| {} | {hook} | {} | {} | {} | {} | {} | {boot:.0} |\n",
                row.release, row.package, row.passed, row.failed, row.ignored, row.seconds
            );
        }
        for kernel in &self.broken {
            text += &format!("| {kernel} | | the guest did not get through | | | | | |\n");
        }
        if !self.failures.is_empty() {
            text += "\nFailed:\n\n";
            for failure in &self.failures {
                text += &format!("* {failure}\n");
            }
        }
        let Machine {
            cpu,
            cores,
            commit,
            date,
            ..
        } = machine;
        text += &format!("\nEmulated on {cores} cores of {cpu}, commit {commit}, {date}.\n");
        text
    }
}

impl Row {
    fn count(&mut self, outcome: &Outcome) {
        self.passed += outcome.passed;
        self.failed += outcome.failed;
        self.ignored += outcome.ignored;
        self.seconds += outcome.seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::worker::Report;

    #[test]
    fn a_row_holds_the_suites_of_a_package() {
        let outcome = |title: &str, failures: &[&str]| Outcome {
            title: title.into(),
            passed: 3,
            failed: failures.len() as u64,
            failures: failures.iter().map(|name| (*name).to_owned()).collect(),
            seconds: 5,
            ..Outcome::default()
        };
        let run = Run {
            release: "6.1.0".into(),
            boot: Duration::from_secs(7),
            report: Report {
                outcomes: vec![outcome("net echo", &[]), outcome("net cli", &["a::b"])],
                tcx: false,
            },
        };
        let mut table = Table::default();
        table.add(&run);
        assert!(!table.is_clean());
        let text = table.markdown(&Machine::this().unwrap());
        assert!(
            text.contains("| 6.1.0 | clsact | net | 6 | 1 | 0 | 10 | 7 |"),
            "{text}"
        );
        assert!(text.contains("* 6.1.0: net cli a::b"), "{text}");
    }
}
