//! Runs of the command line that are over at once.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use xdptun_lab::{Host, Netns, Process, xdptun};

/// The verifier takes its time before a late refusal.
const LIMIT: Duration = Duration::from_secs(30);

/// Attaches with one port and the hooks that every interface has.
pub const ATTACH: [&str; 7] = [
    "attach",
    "--iface",
    Host::DEV,
    "--port",
    "8000",
    "--ingress",
    "tc",
];

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Lines of standard output.
    pub stdout: Vec<String>,
    /// Lines of standard error.
    pub stderr: Vec<String>,
}

/// Runs `xdptun` with these arguments in a namespace to its end.
pub fn run(netns: &Netns, args: &[&str]) -> Result<Outcome> {
    finish(netns.command(xdptun::binary()?).args(args))
}

/// Runs a command to its end, however it ends.
pub fn finish(command: &mut Command) -> Result<Outcome> {
    let mut process = Process::spawn(command)?;
    let status = process.wait(LIMIT)?;
    Ok(Outcome {
        code: status.code(),
        stdout: process.stdout(),
        stderr: process.stderr(),
    })
}

impl Outcome {
    /// Requires a failure that one line tells, which holds all these words.
    ///
    /// # Panics
    ///
    /// If it succeeded, said more or less, or left a word out.
    pub fn assert_one_line(&self, words: &[&str]) {
        assert_eq!(self.code, Some(1), "{self:#?}");
        assert_eq!(self.stdout, [""; 0], "{self:#?}");
        assert_eq!(self.stderr.len(), 1, "{self:#?}");
        assert!(self.stderr[0].starts_with("xdptun: "), "{self:#?}");
        self.assert_first_line(words);
    }

    /// Requires a failure whose first line holds all these words.
    ///
    /// # Panics
    ///
    /// If it succeeded or left a word out.
    pub fn assert_first_line(&self, words: &[&str]) {
        assert!(self.code.is_some_and(|code| code != 0), "{self:#?}");
        let line = self.stderr.first().map(String::as_str).unwrap_or_default();
        for word in words {
            assert!(line.contains(word), "no `{word}` in {self:#?}");
        }
    }
}
