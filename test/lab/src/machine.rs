//! The machine that absolute figures depend on.

use std::fs;
use std::process::Command;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::command::run;
use crate::workspace;

/// The description that goes with every measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// The processor by its own name.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The commit, with `-dirty` when the tree had changes.
    pub commit: String,
    /// The day, UTC.
    pub date: String,
}

impl Machine {
    /// Looks at this machine.
    pub fn this() -> Result<Self> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
        Ok(Self {
            cpu: cpu_name(&cpuinfo).unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism()?.get(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?
                .trim()
                .to_owned(),
            commit: commit(),
            date: run(Command::new("date").args(["-u", "+%F"]))?
                .trim()
                .to_owned(),
        })
    }
}

fn cpu_name(cpuinfo: &str) -> Option<&str> {
    // x86 says "model name"; arm64 has no name, the device tree's "Model" is
    // the best there is.
    let line = |key: &str| cpuinfo.lines().find(|line| line.starts_with(key));
    let (_, name) = line("model name")
        .or_else(|| line("Model"))?
        .split_once(':')?;
    Some(name.trim())
}

/// The commit with a mark for changes, or a word where this is no clone.
///
/// Results are rewritten by the measurement itself, so they do not count as a
/// change of the tree.
fn commit() -> String {
    let git = |args: &[&str]| {
        run(Command::new("git")
            .current_dir(workspace::root())
            .args(args))
    };
    let Ok(commit) = git(&["rev-parse", "--short=10", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let mut status = vec!["status", "--porcelain", "--"];
    status.extend([":!bench/results", ":!BENCHMARKS.md"]);
    let clean = git(&status).is_ok_and(|changes| changes.is_empty());
    let mark = if clean { "" } else { "-dirty" };
    format!("{}{mark}", commit.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_name_of_the_processor() {
        let x86 = "processor\t: 0\nmodel\t\t: 207\nmodel name\t: Some CPU @ 2 GHz\n";
        assert_eq!(cpu_name(x86), Some("Some CPU @ 2 GHz"));
        let arm = "processor\t: 0\n\nModel\t\t: Raspberry Pi 3\n";
        assert_eq!(cpu_name(arm), Some("Raspberry Pi 3"));
        assert_eq!(cpu_name(""), None);
    }
}
