//! The directories of pins: `/sys/fs/bpf/xdptun/<netns cookie>/<function>/<group>/` for maps,
//! and in it `<ifindex>/` for the links of each interface.
//!
//! All network namespaces share bpffs, and it refuses dots, which names of interfaces may
//! have. Hence the numbers.

mod mount;
mod open;
mod remove;
mod share;

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::programs::Programs;
use crate::error::{Context as _, Result};
use crate::host::netns;

pub use mount::{has_bpffs, mount_bpffs};
pub use remove::{remove_directory, remove_links, remove_maps, remove_member};
pub use share::share;

/// The directory above all pins. Its owner may be the user that the service runs as.
const TOP: &str = "/sys/fs/bpf/xdptun";
const LINK_PREFIX: &str = "link_";

/// The directory of this network namespace.
///
/// # Errors
///
/// If the network namespace cannot be identified.
pub fn namespace_directory() -> Result<PathBuf> {
    let netns = netns::cookie()?.to_string();
    Ok(Path::new(TOP).join(netns))
}

/// The groups of a function in this network namespace, by the directory of their pins, in
/// order. What versions before groups pinned for an interface counts as a group.
///
/// # Errors
///
/// If a directory exists and cannot be read.
pub fn groups(programs: &Programs) -> Result<Vec<PathBuf>> {
    let namespace = namespace_directory()?;
    let mut groups = groups_in(&namespace.join(programs.function))?;
    if programs.is_older_than_groups {
        groups.extend(groups_in(&namespace)?);
    }
    Ok(groups)
}

/// The groups whose directories are in this one.
fn groups_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let numbers = numbers(directory).with_context(|| {
        let directory = directory.display();
        format!("cannot read {directory}; run it as root, for example with sudo")
    })?;
    let path = |number: u32| directory.join(number.to_string());
    Ok(numbers.into_iter().map(path).collect())
}

/// The groups of all functions but this one that an interface is in.
///
/// # Errors
///
/// If a directory exists and cannot be read.
pub fn groups_of_others(programs: &Programs, ifindex: u32) -> Result<Vec<PathBuf>> {
    let namespace = namespace_directory()?;
    let entries = match fs::read_dir(&namespace) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| cannot_read(&namespace)),
    };
    let mut groups = Vec::new();
    for entry in entries {
        let function = entry.with_context(|| cannot_read(&namespace))?.path();
        if number_of(&function).is_none() && !function.ends_with(programs.function) {
            groups.extend(groups_in(&function)?);
        }
    }
    let mut found = Vec::new();
    for group in groups {
        if members(&group)?.contains(&ifindex) {
            found.push(group);
        }
    }
    Ok(found)
}

/// The interfaces of a group, by index, in order.
///
/// # Errors
///
/// If the directory exists and cannot be read.
pub fn members(group: &Path) -> Result<Vec<u32>> {
    match number_of(group) {
        Some(number) if is_of_old_version(group) => Ok(vec![number]),
        _ => numbers(group).with_context(|| cannot_read(group)),
    }
}

/// The directory of an interface's links in its group.
#[must_use]
pub fn member(group: &Path, ifindex: u32) -> PathBuf {
    if is_of_old_version(group) {
        group.to_owned()
    } else {
        group.join(ifindex.to_string())
    }
}

/// The group that an interface is in, if there is one.
///
/// # Errors
///
/// As [`groups`].
pub fn group_of(programs: &Programs, ifindex: u32) -> Result<Option<PathBuf>> {
    for group in groups(programs)? {
        if members(&group)?.contains(&ifindex) {
            return Ok(Some(group));
        }
    }
    Ok(None)
}

/// Whether anything is pinned for a group, beside the links of its interfaces.
///
/// # Errors
///
/// If the directory exists and cannot be read.
pub fn has_maps(group: &Path) -> Result<bool> {
    let entries = match fs::read_dir(group) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error).with_context(|| cannot_read(group)),
    };
    for entry in entries {
        let entry = entry.with_context(|| cannot_read(group))?;
        if number_of(&entry.path()).is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes the directory of an interface's links.
///
/// # Errors
///
/// If it cannot be made.
pub fn make_member(group: &Path, ifindex: u32) -> io::Result<()> {
    let made = DirBuilder::new().mode(0o700).create(member(group, ifindex));
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn cannot_read(directory: &Path) -> String {
    format!("cannot read {}", directory.display())
}

/// Whether a version before groups made the directory.
fn is_of_old_version(group: &Path) -> bool {
    group.parent().and_then(Path::parent) == Some(Path::new(TOP))
}

fn number_of(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.parse().ok()
}

/// The names below a directory that are numbers, in order.
fn numbers(directory: &Path) -> io::Result<Vec<u32>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut numbers = Vec::new();
    for entry in entries {
        numbers.extend(number_of(&entry?.path()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The name under which the link of a program is pinned.
#[must_use]
pub fn link_name(program: &str) -> String {
    format!("{LINK_PREFIX}{program}")
}

/// The pins of the links of an interface.
///
/// # Errors
///
/// If the directory exists and cannot be read.
pub fn links(member: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(member) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| cannot_read(member)),
    };
    let mut links = Vec::new();
    for entry in entries {
        let entry = entry.with_context(|| cannot_read(member))?;
        if is_link(&entry.file_name()) {
            links.push(entry.path());
        }
    }
    Ok(links)
}

fn is_link(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with(LINK_PREFIX)
}
