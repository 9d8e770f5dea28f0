//! The memory of the kernel that a process has by its maps.

use std::fs;

use anyhow::{Context, Result, bail};
use nix::unistd::Pid;

/// A hash map, told by the lengths of its keys and values in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Hash {
    /// Of a key.
    pub key: u64,
    /// Of a value.
    pub value: u64,
}

/// How many bytes a hash map that a process has open takes, as far as the kernel tells.
pub fn map_memory(process: Pid, map: Hash) -> Result<u64> {
    /// `BPF_MAP_TYPE_HASH`.
    const HASH: u64 = 1;
    let wanted = [
        ("map_type", HASH),
        ("key_size", map.key),
        ("value_size", map.value),
    ];
    for entry in fs::read_dir(format!("/proc/{process}/fdinfo"))? {
        // A descriptor may be closed meanwhile.
        let Ok(text) = fs::read_to_string(entry?.path()) else {
            continue;
        };
        let value = |name: &str| -> Option<u64> {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            let (_, value) = lines.find(|(key, _)| *key == name)?;
            value.trim().parse().ok()
        };
        if wanted.iter().all(|(name, is)| value(name) == Some(*is)) {
            return value("memlock").context("no memlock");
        }
    }
    bail!("process {process} has no such map open: {map:?}")
}
