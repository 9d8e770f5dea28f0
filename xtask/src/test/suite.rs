//! Running one suite, and adding up.

use std::io::{BufRead, BufReader, IsTerminal, stdout};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use xdptun_lab::command::run;
use xdptun_lab::extent::{EXTENT, LONG};

use crate::shell::{Supervised, cargo};

/// Makes the harness print the names of tests, and run none.
const LIST: &str = "--list";

/// Makes the harness print what passed tests have printed.
const SHOW_OUTPUT: &str = "--show-output";

/// What a line begins with that compares two speeds.
const RATIO: &str = "ratio: ";

/// Makes the harness take words for whole names.
const EXACT: &str = "--exact";

/// A test program, or a module of one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Suite {
    /// What it is called in the output and by the filter.
    pub title: String,
    /// The folder of its package, where cargo would run it.
    pub folder: PathBuf,
    /// What to run.
    pub program: Program,
    /// Whether it bears that others run at the same time.
    pub beside_others: bool,
    /// Whether what passed tests print is shown.
    pub show_output: bool,
    /// Whether its tests take their time.
    pub long: bool,
}

/// What runs a suite's tests.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Program {
    /// A program with Rust's test harness.
    Executable {
        /// Where it is.
        path: PathBuf,
        /// The module whose tests are run; all if there is none.
        module: Option<String>,
    },
    /// The examples in a package's documentation, through cargo.
    Documentation {
        /// The package.
        package: String,
    },
}

impl Suite {
    /// Runs it, hands every line of its output to `show`, and counts.
    pub fn run(&self, harness: &[String], mut show: impl FnMut(&str)) -> Result<Outcome> {
        show(&format!("\n== {}", self.title));
        let started = Instant::now();
        let mut command = self.command();
        if let Some(names) = self.names(harness)? {
            if names.is_empty() {
                show("no test has that name");
                return Ok(Outcome {
                    title: self.title.clone(),
                    ..Outcome::default()
                });
            }
            command.args(names);
            // With it, a word of the harness selects nothing in another module.
            if !harness.iter().any(|word| word == EXACT) {
                command.arg(EXACT);
            }
        }
        // One test at a time: they share cores, and timing means something.
        command.arg("--test-threads=1");
        if stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb") {
            command.arg("--color=always");
        }
        if self.show_output {
            command.arg(SHOW_OUTPUT);
        }
        command.args(harness).stdout(Stdio::piped());
        let mut program = Supervised::spawn(&mut command)?;
        let output = program.child().stdout.take().context("no output")?;
        let mut reader = Reader::default();
        for line in BufReader::new(output).lines() {
            let line = line.with_context(|| format!("output of {}", self.title))?;
            reader.add(&line);
            show(&line);
        }
        let status = program.wait()?;
        let failed = reader.outcome.failed;
        Ok(Outcome {
            title: self.title.clone(),
            crashed: !status.success() && failed == 0,
            seconds: started.elapsed().as_secs(),
            ..reader.outcome
        })
    }

    /// The tests that the harness selects in the module that the suite is, if it is one.
    fn names(&self, harness: &[String]) -> Result<Option<Vec<String>>> {
        let Program::Executable {
            module: Some(module),
            ..
        } = &self.program
        else {
            return Ok(None);
        };
        let mut command = self.command();
        let words = harness.iter().filter(|word| *word != LIST);
        let list = run(command.arg(LIST).args(words))?;
        Ok(Some(names_of(module, &list)))
    }

    fn command(&self) -> Command {
        match &self.program {
            Program::Executable { path, .. } => {
                let mut command = Command::new(path);
                command
                    .current_dir(&self.folder)
                    .env("CARGO_MANIFEST_DIR", &self.folder)
                    .stdin(Stdio::null());
                if self.long {
                    command.env(EXTENT, LONG);
                }
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

/// The tests of a module in a list that the harness prints.
fn names_of(module: &str, list: &str) -> Vec<String> {
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    let is_inside = |name: &&str| {
        let rest = name.strip_prefix(module);
        rest.is_some_and(|rest| rest.starts_with("::"))
    };
    names.filter(is_inside).map(str::to_owned).collect()
}

/// What came of one suite.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The suite.
    pub title: String,
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that did not run.
    pub ignored: u64,
    /// The names of those that failed.
    pub failures: Vec<String>,
    /// A suite may also fail by crashing, with no test counted as failed.
    pub crashed: bool,
    /// What it said of speeds.
    pub ratios: Vec<String>,
    /// How long it took.
    pub seconds: u64,
}

impl Outcome {
    /// Whether all is well.
    pub fn is_success(&self) -> bool {
        self.failed == 0 && !self.crashed
    }
}

/// Reads what the harness prints.
#[derive(Debug, Default)]
struct Reader {
    outcome: Outcome,
    /// Within `failures:`, a list of names at the end.
    listing: bool,
}

impl Reader {
    /// Looks for `test result: ok. 27 passed; 0 failed; 1 ignored; ...`, and
    /// for the names of the tests that failed.
    fn add(&mut self, line: &str) {
        self.name(line);
        self.outcome
            .ratios
            .extend(line.strip_prefix(RATIO).map(str::to_owned));
        let Some((_, numbers)) = line.split_once("test result: ") else {
            return;
        };
        for part in numbers.split([';', '.']) {
            let mut words = part.split_whitespace();
            let Some(number) = words.next().and_then(|word| word.parse::<u64>().ok()) else {
                continue;
            };
            match words.next() {
                Some("passed") => self.outcome.passed += number,
                Some("failed") => self.outcome.failed += number,
                Some("ignored") => self.outcome.ignored += number,
                _ => {}
            }
        }
    }

    fn name(&mut self, line: &str) {
        match line.strip_prefix("    ") {
            Some(name) if self.listing => self.outcome.failures.push(name.to_owned()),
            _ => self.listing = line == "failures:",
        }
    }
}

/// All suites so far.
#[derive(Debug, Serialize, Deserialize)]
pub struct Totals {
    started: SystemTime,
    outcomes: Vec<Outcome>,
    /// Suites that did not run, each with the command that runs it.
    left_out: Vec<String>,
}

impl Totals {
    /// Nothing yet.
    pub fn new(started: SystemTime) -> Self {
        Self {
            started,
            outcomes: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// Remembers suites that do not run, and what would run them, to say so.
    pub fn leave_out(&mut self, titles: Vec<String>, command: &str) {
        let lines = titles
            .into_iter()
            .map(|title| format!("{title}: {command}"));
        self.left_out.extend(lines);
    }

    /// Adds what came of a suite.
    pub fn add(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }

    /// What came of every suite.
    pub fn into_outcomes(self) -> Vec<Outcome> {
        self.outcomes
    }

    /// A table of the speeds that suites compared, if there are any.
    fn ratios(&self) -> Vec<String> {
        let rows = self.outcomes.iter().flat_map(|outcome| &outcome.ratios);
        // A suite writes the cells apart by commas.
        let rows: Vec<Vec<&str>> = rows.map(|row| row.split(", ").collect()).collect();
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.len()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<&str>| {
            let cells = row.iter().zip(&widths);
            let padded = cells.map(|(cell, width)| format!("{cell:<width$}"));
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        rows.iter().map(line).collect()
    }

    /// Prints the total line; an error unless something ran and all passed.
    pub fn conclude(&self) -> Result<()> {
        let sum = |number: fn(&Outcome) -> u64| self.outcomes.iter().map(number).sum::<u64>();
        let passed = sum(|outcome| outcome.passed);
        let ratios = self.ratios();
        if !ratios.is_empty() {
            println!("\n{}", ratios.join("\n"));
        }
        println!(
            "\ntotal: {passed} passed, {} failed, {} skipped in {} suites, {:.0} s",
            sum(|outcome| outcome.failed),
            sum(|outcome| outcome.ignored),
            self.outcomes.len(),
            self.started.elapsed().unwrap_or_default().as_secs_f64()
        );
        for line in &self.left_out {
            println!("not run: {line}");
        }
        let failed: Vec<&str> = self
            .outcomes
            .iter()
            .filter(|outcome| !outcome.is_success())
            .map(|outcome| outcome.title.as_str())
            .collect();
        if !failed.is_empty() {
            bail!("failed: {}", failed.join(", "));
        }
        ensure!(passed > 0, "no test ran: none has that name");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_results_and_names_from_the_harness() {
        let mut reader = Reader::default();
        let output = "test a::b ... ok\n\
            test result: ok. 27 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out\n\
            failures:\n\n---- a::c stdout ----\n    not a name\n\n\
            failures:\n    a::c\n\n\
            test result: \u{1b}[31mFAILED\u{1b}[m. 2 passed; 1 failed; 0 ignored";
        output.lines().for_each(|line| reader.add(line));
        let expected = Outcome {
            passed: 29,
            failed: 1,
            ignored: 1,
            failures: vec!["a::c".into()],
            ..Outcome::default()
        };
        assert_eq!(reader.outcome, expected);
    }

    #[test]
    fn ratios_become_a_table() {
        let mut reader = Reader::default();
        for line in [
            "ratio: long name, up, 9",
            "ratio: name, down, 10",
            "no ratio: 1",
        ] {
            reader.add(line);
        }
        let mut totals = Totals::new(SystemTime::now());
        totals.add(reader.outcome);
        assert_eq!(
            totals.ratios(),
            ["long name  up    9", "name       down  10"]
        );
    }

    #[test]
    fn a_module_holds_the_tests_below_it() {
        let list = "look::a: test\nlook::deep::b: test\noutlook::c: test\nlooks::d: test\n\
            look::e: benchmark\n\n4 tests, 1 benchmark\n";
        assert_eq!(names_of("look", list), ["look::a", "look::deep::b"]);
    }

    #[test]
    fn a_crash_without_a_failed_test_is_a_failure() {
        let mut totals = Totals::new(SystemTime::now());
        let passed = Outcome {
            title: "a suite".into(),
            passed: 1,
            ..Outcome::default()
        };
        totals.add(passed.clone());
        totals.conclude().unwrap();
        totals.add(Outcome {
            crashed: true,
            ..passed
        });
        assert_eq!(
            totals.conclude().unwrap_err().to_string(),
            "failed: a suite"
        );
    }

    #[test]
    fn running_nothing_is_no_success() {
        let mut totals = Totals::new(SystemTime::now());
        totals.add(Outcome::default());
        assert!(totals.conclude().is_err());
    }
}
