//! Data from `/proc` about the descriptors of a process.

use std::fs;

use anyhow::{Context, Result};
use nix::unistd::Pid;

/// The lines about each descriptor.
pub fn descriptors(process: Pid) -> Result<Vec<String>> {
    let directory = format!("/proc/{process}/fdinfo");
    let entries = fs::read_dir(&directory).context(directory)?;
    // A descriptor may be closed meanwhile.
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    Ok(texts.collect())
}

/// A number by its name.
pub fn value(fdinfo: &str, name: &str) -> Option<u64> {
    let mut lines = fdinfo.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(key, _)| *key == name)?;
    value.trim().parse().ok()
}
