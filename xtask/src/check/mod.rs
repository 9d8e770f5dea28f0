//! `cargo xtask check`: formatting, lints and documentation, without a test.
//!
//! CI runs this command, so that it and a developer agree about what is clean.

mod hook;

use std::process::Command;

use anyhow::{Result, ensure};

use crate::progress::Progress;
use crate::setup;
use crate::shell::{cargo, run_visible};

const EXAMPLES: &str = "\
Examples:
  cargo xtask check                  before a commit
  cargo xtask check --install-hook   once: git then does it before each commit";

/// Options of `cargo xtask check`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Check nothing now, but make git check before each commit
    #[arg(long)]
    install_hook: bool,
}

/// Something that cargo checks.
#[derive(Debug)]
struct Step {
    /// What is checked, for the lines that report it.
    name: &'static str,
    /// The arguments of cargo.
    arguments: &'static [&'static str],
    /// A variable of cargo's environment, and its value.
    variable: Option<(&'static str, &'static str)>,
    /// Whether it builds the core library from its sources.
    needs_core: bool,
}

const STEPS: [Step; 4] = [
    Step {
        name: "formatting",
        arguments: &["fmt", "--all", "--check"],
        variable: None,
        needs_core: false,
    },
    Step {
        name: "lints",
        arguments: &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--keep-going",
            "--",
            "-D",
            "warnings",
        ],
        variable: None,
        needs_core: false,
    },
    Step {
        name: "lints of the kernel side for BPF",
        arguments: &[
            "clippy",
            "--package",
            "xdptun-ebpf",
            "--release",
            "--locked",
            "--target",
            "bpfel-unknown-none",
            "-Z",
            "build-std=core",
            "--",
            "-D",
            "warnings",
        ],
        // Stable Rust calls `-Z build-std` unstable; xdptun/object/build.rs does the same.
        variable: Some(("RUSTC_BOOTSTRAP", "1")),
        needs_core: true,
    },
    Step {
        name: "documentation",
        arguments: &[
            "doc",
            "--no-deps",
            "--locked",
            "--package",
            "xdptun",
            "--package",
            "xdptun-common",
            "--package",
            "xdptun-ebpf",
        ],
        variable: Some(("RUSTDOCFLAGS", "-D warnings")),
        needs_core: false,
    },
];

impl Step {
    fn command(&self) -> Command {
        let mut command = cargo();
        command.args(self.arguments).envs(self.variable);
        command
    }

    /// The command as a person would type it.
    fn line(&self) -> String {
        let arguments = format!("cargo {}", self.arguments.join(" "));
        match self.variable {
            Some((name, value)) => format!("{name}='{value}' {arguments}"),
            None => arguments,
        }
    }
}

/// Runs every step, or installs the hook.
pub fn run(args: &Args) -> Result<()> {
    if args.install_hook {
        return hook::install();
    }
    // Clippy runs xdptun/object/build.rs, which builds the eBPF object.
    setup::ensure_build()?;
    let progress = Progress::start();
    let has_core = setup::has_core();
    run_all(&STEPS, |step| {
        let Step { name, .. } = step;
        if step.needs_core && !has_core {
            // Debian's compiler, which has the sources, has no clippy.
            progress.say(&format!(
                "skipped: {name}: this toolchain has no rust-src; \
                 `rustup component add rust-src` gets it"
            ));
            return Ok(());
        }
        progress.say(&format!("{name}: `{}`", step.line()));
        run_visible(&mut step.command())
    })?;
    progress.say("nothing to complain about");
    Ok(())
}

/// Runs every step, also after one that fails; the error names those that failed.
fn run_all(steps: &[Step], mut run: impl FnMut(&Step) -> Result<()>) -> Result<()> {
    let mut failed = Vec::new();
    for step in steps {
        if let Err(error) = run(step) {
            eprintln!("failed: {}: {error:#}", step.name);
            failed.push(step.name);
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_does_not_keep_later_steps_from_running() {
        let mut ran = Vec::new();
        let error = run_all(&STEPS, |step| {
            ran.push(step.name);
            ensure!(!step.name.starts_with("lints"), "a warning");
            Ok(())
        })
        .unwrap_err();
        assert_eq!(ran, STEPS.map(|step| step.name));
        assert_eq!(
            error.to_string(),
            "failed: lints, lints of the kernel side for BPF"
        );
        run_all(&STEPS, |_| Ok(())).unwrap();
    }

    /// A user can copy the line into a shell.
    #[test]
    fn a_step_is_shown_as_it_runs() {
        for step in &STEPS {
            let mut words = shlex::split(&step.line()).unwrap();
            let command = step.command();
            if let Some((name, value)) = step.variable {
                assert_eq!(words.remove(0), format!("{name}={value}"));
                assert!(
                    command
                        .get_envs()
                        .any(|variable| variable == (name.as_ref(), Some(value.as_ref())))
                );
            }
            assert_eq!(words.remove(0), "cargo");
            assert!(command.get_args().eq(words.iter().map(String::as_str)));
        }
    }

    /// A warning fails, and no step changes Cargo.lock.
    #[test]
    fn every_step_is_strict() {
        for step in &STEPS {
            let line = step.line();
            let formats = step.arguments[0] == "fmt";
            assert!(line.contains("-D warnings") || formats, "{line}");
            assert!(line.contains("--locked") || formats, "{line}");
        }
    }
}
