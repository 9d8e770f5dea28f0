//! What a guest does.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xdptun_lab::workspace;

use super::kernel::Kernel;
use crate::build::ANY_ALIGNMENT;
use crate::debian::Arch;

/// Variables of the user's environment that a guest keeps.
const KEPT: [&str; 3] = ["XDPTUN_BIN", "RUST_BACKTRACE", "PROPTEST_CASES"];

/// A command, run as root in the folder of the workspace.
#[derive(Debug, Clone)]
pub struct Job {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Further environment variables.
    pub environment: Vec<(&'static str, String)>,
    /// Whether a person types at it.
    pub terminal: bool,
}

impl Job {
    /// Where a guest finds the folder that it alone shares with its host.
    pub const SHARE: &str = "/run/job";

    /// A command whose output is read.
    pub fn new(command: Vec<String>) -> Self {
        Self {
            command,
            environment: Vec::new(),
            terminal: false,
        }
    }

    /// Writes the files that `guest.sh` reads.
    ///
    /// User-Mode Linux says of its processor that it cannot load words from every address, although
    /// it is this machine's. `any_alignment` asks its verifier not to mind.
    pub(super) fn write(&self, share: &Path, arch: Arch, kernel: &Kernel) -> Result<()> {
        let write = |name: &str, text: &str| {
            let path: PathBuf = share.join(name);
            fs::write(&path, text).with_context(|| format!("{}: cannot write", path.display()))
        };
        write("modules", &kernel.modules().display().to_string())?;
        let mut job = self.clone();
        if kernel.is_user_mode {
            let library = arch.target_dir().join(ANY_ALIGNMENT);
            job.environment
                .push(("LD_PRELOAD", library.display().to_string()));
        }
        write("run", &job.script(arch)?)?;
        if self.terminal {
            write("terminal", "")?;
        }
        Ok(())
    }

    fn script(&self, arch: Arch) -> Result<String> {
        let root = workspace::root().display().to_string();
        let kept = KEPT.iter().filter_map(|name| {
            let value = std::env::var(name).ok()?;
            Some(format!("{name}={value}"))
        });
        let mut words = vec!["exec".to_owned(), "env".to_owned()];
        words.extend(kept);
        words.push(format!("CARGO_TARGET_DIR={}", arch.target_dir().display()));
        let factor = arch.time_factor();
        words.push(format!("{}={factor}", xdptun_lab::wait::FACTOR));
        words.push(format!("{}=kernel", xdptun_test_wg::tunnel::CHOICE));
        let terminal = std::env::var("TERM").ok().filter(|_| self.terminal);
        words.push(format!("TERM={}", terminal.as_deref().unwrap_or("dumb")));
        let more = self.environment.iter();
        words.extend(more.map(|(name, value)| format!("{name}={value}")));
        words.extend(self.command.iter().cloned());
        let quote = |words: &[&str]| shlex::try_join(words.iter().copied());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let describe = "a NUL byte cannot be part of a command";
        let (cd, exec) = (quote(&["cd", &root]), quote(&words));
        Ok(format!(
            "{}\n{}\n",
            cd.context(describe)?,
            exec.context(describe)?
        ))
    }
}
