//! The Debian system that packages are tried on.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use xdptun_lab::workspace;

use super::Part;
use crate::shell::{as_root, run_visible};
use crate::vm::apt::mirror;

/// The release that Raspberry Pi OS is made of, and the oldest with a kernel that
/// xdptun runs on.
const RELEASE: &str = "bookworm";

pub(super) fn parts() -> Vec<Part> {
    let folder = workspace::root().join(".tools/debian").join(RELEASE);
    vec![Part {
        name: format!("a Debian system ({RELEASE}) to try packages on"),
        present: folder.is_dir(),
        install: Box::new(move || {
            // Made beside it and then moved: it is there whole or not at all.
            let partial = folder.with_extension("partial");
            if partial.exists() {
                run_visible(as_root("rm")?.arg("-r").arg(&partial))?;
            }
            let parent = folder.parent().context("a folder without a parent")?;
            fs::create_dir_all(parent)
                .with_context(|| format!("{}: cannot make", parent.display()))?;
            make(&partial)?;
            fs::rename(&partial, &folder)
                .with_context(|| format!("{}: cannot move there", folder.display()))
        }),
    }]
}

fn make(folder: &Path) -> Result<()> {
    let mirror = mirror()?;
    let mut command = as_root("/usr/sbin/debootstrap")?;
    command.args(["--variant=minbase", "--include=systemd", RELEASE]);
    run_visible(command.arg(folder).arg(mirror))
}
