//! Debian's programs for a guest that cannot run the host's.
//!
//! They lie over the host's file system in the guest, so that all the rest is
//! where it is on the host.

use std::path::PathBuf;

use anyhow::Result;

use super::kernel::store;
use crate::debian::Apt;
use crate::setup;

/// The packages of the programs that `guest.sh` runs, and that the kernel runs to load
/// a module.
const SYSTEM: [&str; 6] = [
    "coreutils",
    "dash",
    "kmod",
    "mount",
    "util-linux",
    "xz-utils",
];

/// The folder with the programs, filled unless it is there; `None` where the
/// host's do.
pub fn get(apt: &Apt) -> Result<Option<PathBuf>> {
    if apt.arch().target().is_none() {
        return Ok(None);
    }
    let folder = store(apt).join("programs");
    if !folder.exists() {
        eprintln!("programs for {}: downloading", apt.arch().debian());
        let packages = [&SYSTEM[..], &setup::laboratory()].concat();
        let all = apt.with_dependencies(&packages)?;
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        apt.unpack(&all, &folder, |_| Ok(()))?;
    }
    Ok(Some(folder))
}
