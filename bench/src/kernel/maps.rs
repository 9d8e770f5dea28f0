//! The memory of a process's maps.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use nix::unistd::Pid;

use super::fdinfo::{descriptors, value};

/// Memory of all maps that a process has open, in bytes, each counted once.
pub fn map_memory(process: Pid) -> Result<u64> {
    let mut maps = BTreeMap::new();
    for text in descriptors(process)? {
        if let (Some(id), Some(memory)) = (value(&text, "map_id"), value(&text, "memlock")) {
            maps.insert(id, memory);
        }
    }
    ensure!(!maps.is_empty(), "process {process} has no map open");
    Ok(maps.values().sum())
}
