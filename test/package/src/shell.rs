//! Scripts for the shell of busybox, which is that of Alpine and OpenWrt.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use xdptun_lab::command::{run, run_with_input};

/// A program by its name, and what it does after its call is written down.
#[derive(Debug, Clone, Copy)]
pub struct Stub(pub &'static str, pub &'static str);

/// Writes a script that can be run.
pub fn program(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())?;
    Ok(fs::set_permissions(path, Permissions::from_mode(0o755))?)
}

/// Parses a script and runs nothing, with busybox's shell and with this machine's.
pub fn parse(script: &str) -> Result<()> {
    run_with_input(
        Command::new("busybox").args(["ash", "-n", "/dev/stdin"]),
        script,
    )?;
    run_with_input(Command::new("sh").args(["-n", "/dev/stdin"]), script)?;
    Ok(())
}

/// Runs a script that finds these programs first, and returns their calls. `folder` is for them.
pub fn calls(folder: &Path, stubs: &[Stub], script: &str) -> Result<String> {
    let list = folder.join("calls");
    fs::write(&list, "")?;
    for Stub(name, does) in stubs {
        let text = format!(
            "#!/bin/sh\necho \"${{0##*/}} $*\" >>{}\n{does}\n",
            list.display()
        );
        program(&folder.join(name), &text)?;
    }
    let text = folder.join("script");
    fs::write(&text, script)?;
    let others = env::var("PATH").unwrap_or_default();
    let mut ash = Command::new("busybox");
    ash.args(["ash", "-e"]).arg(text);
    run(ash.env("PATH", format!("{}:{others}", folder.display())))?;
    Ok(fs::read_to_string(list)?)
}
