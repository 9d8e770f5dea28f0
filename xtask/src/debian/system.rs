//! A small Debian system in a folder, to try packages on.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xdptun_lab::workspace;

use super::apt::mirror;
use crate::shell::{as_root, run_visible};

/// The release that Raspberry Pi OS is made of, and the oldest with a kernel that
/// xdptun runs on.
pub const RELEASE: &str = "bookworm";

/// Where the system is.
pub fn folder() -> PathBuf {
    workspace::root().join(".tools/debian").join(RELEASE)
}

/// Makes the system.
pub fn make() -> Result<()> {
    // debootstrap works beside the folder: the folder is there whole or not at all.
    let folder = folder();
    let partial = folder.with_extension("partial");
    if partial.exists() {
        run_visible(as_root("rm")?.arg("-r").arg(&partial))?;
    }
    let parent = folder.parent().context("a folder without a parent")?;
    fs::create_dir_all(parent).with_context(|| format!("{}: cannot make", parent.display()))?;
    bootstrap(&partial)?;
    fs::rename(&partial, &folder)
        .with_context(|| format!("{}: cannot move there", folder.display()))
}

fn bootstrap(folder: &Path) -> Result<()> {
    let mirror = mirror()?;
    let mut command = as_root("/usr/sbin/debootstrap")?;
    command.args(["--variant=minbase", "--include=systemd", RELEASE]);
    run_visible(command.arg(folder).arg(mirror))
}
