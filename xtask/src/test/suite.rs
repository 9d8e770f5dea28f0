//! Running one suite, and adding up.

use std::io::{BufRead, BufReader, IsTerminal, stdout};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::shell::{Supervised, cargo};

/// One test program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Suite {
    /// What it is called in the output and by the filter.
    pub title: String,
    /// The folder of its package, where cargo would run it.
    pub folder: PathBuf,
    /// What to run.
    pub program: Program,
}

/// What runs a suite's tests.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Program {
    /// A program with Rust's test harness.
    Executable(PathBuf),
    /// The examples in a package's documentation, through cargo.
    Documentation {
        /// The package.
        package: String,
    },
}

impl Suite {
    /// Runs it with its output shown and counted.
    pub fn run(&self, harness: &[String], totals: &mut Totals) -> Result<()> {
        println!("\n== {}", self.title);
        let mut command = self.command();
        // One test at a time: they share cores, and timing means something.
        command.arg("--test-threads=1");
        if stdout().is_terminal() {
            command.arg("--color=always");
        }
        command.args(harness).stdout(Stdio::piped());
        let mut program = Supervised::spawn(&mut command)?;
        let output = program.child().stdout.take().context("no output")?;
        let mut count = Count::default();
        for line in BufReader::new(output).lines() {
            let line = line.with_context(|| format!("output of {}", self.title))?;
            count.add(&line);
            println!("{line}");
        }
        let status = program.wait()?;
        totals.add(self, &count, status.success());
        Ok(())
    }

    fn command(&self) -> Command {
        match &self.program {
            Program::Executable(path) => {
                let mut command = Command::new(path);
                command
                    .current_dir(&self.folder)
                    .env("CARGO_MANIFEST_DIR", &self.folder)
                    .stdin(Stdio::null());
                command
            }
            Program::Documentation { package } => {
                let mut command = cargo();
                command.args(["test", "--quiet", "--locked", "--doc", "--package", package]);
                command.arg("--");
                command
            }
        }
    }
}

/// Tests of one suite.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Count {
    /// Reads `test result: ok. 27 passed; 0 failed; 1 ignored; ...`.
    fn add(&mut self, line: &str) {
        let Some((_, numbers)) = line.split_once("test result: ") else {
            return;
        };
        for part in numbers.split([';', '.']) {
            let mut words = part.split_whitespace();
            let Some(number) = words.next().and_then(|word| word.parse::<u64>().ok()) else {
                continue;
            };
            match words.next() {
                Some("passed") => self.passed += number,
                Some("failed") => self.failed += number,
                Some("ignored") => self.ignored += number,
                _ => {}
            }
        }
    }
}

/// All suites so far.
#[derive(Debug, Serialize, Deserialize)]
pub struct Totals {
    started: SystemTime,
    suites: u64,
    passed: u64,
    failed: u64,
    skipped: u64,
    failed_suites: Vec<String>,
}

impl Totals {
    /// Nothing yet.
    pub fn new(started: SystemTime) -> Self {
        Self {
            started,
            suites: 0,
            passed: 0,
            failed: 0,
            skipped: 0,
            failed_suites: Vec::new(),
        }
    }

    fn add(&mut self, suite: &Suite, count: &Count, success: bool) {
        self.suites += 1;
        self.passed += count.passed;
        self.failed += count.failed;
        self.skipped += count.ignored;
        // A suite may also fail by crashing, with no test counted as failed.
        if !success || count.failed > 0 {
            self.failed_suites.push(suite.title.clone());
        }
    }

    /// Prints the total line; an error unless something ran and all passed.
    pub fn conclude(&self) -> Result<()> {
        let seconds = self.started.elapsed().unwrap_or_default().as_secs_f64();
        println!(
            "\ntotal: {} passed, {} failed, {} skipped in {} suites, {seconds:.0} s",
            self.passed, self.failed, self.skipped, self.suites
        );
        if !self.failed_suites.is_empty() {
            bail!("failed: {}", self.failed_suites.join(", "));
        }
        ensure!(self.passed > 0, "no test ran: none has that name");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite() -> Suite {
        Suite {
            title: "a suite".into(),
            folder: "/".into(),
            program: Program::Executable("/bin/true".into()),
        }
    }

    #[test]
    fn reads_the_result_line_of_the_harness() {
        let mut count = Count::default();
        count.add("test a::b ... ok");
        count.add("test result: ok. 27 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.01s");
        count.add(
            "test result: \u{1b}[31mFAILED\u{1b}[m. 2 passed; 1 failed; 0 ignored; 0 measured",
        );
        let expected = Count {
            passed: 29,
            failed: 1,
            ignored: 1,
        };
        assert_eq!(count, expected);
    }

    #[test]
    fn a_crash_without_a_failed_test_is_a_failure() {
        let mut totals = Totals::new(SystemTime::now());
        let passed = Count {
            passed: 1,
            ..Count::default()
        };
        totals.add(&suite(), &passed, true);
        totals.conclude().unwrap();
        totals.add(&suite(), &passed, false);
        assert_eq!(
            totals.conclude().unwrap_err().to_string(),
            "failed: a suite"
        );
    }

    #[test]
    fn running_nothing_is_no_success() {
        let mut totals = Totals::new(SystemTime::now());
        totals.add(&suite(), &Count::default(), true);
        assert!(totals.conclude().is_err());
    }
}
