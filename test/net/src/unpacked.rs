//! Programs that `cargo xtask setup` unpacks, unless the machine has them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xdptun_lab::{Netns, workspace};

/// Where a package is unpacked; `/` if it is not.
#[must_use]
pub fn folder(package: &str) -> PathBuf {
    let folder = workspace::root().join(".tools").join(package);
    if folder.is_dir() { folder } else { "/".into() }
}

/// A program of a package by its path, such as `usr/sbin/sshd`, with the libraries beside it.
///
/// # Panics
///
/// If a library has a path with a colon.
#[must_use]
pub fn program(netns: &Netns, package: &str, path: &str) -> Command {
    let folder = folder(package);
    let mut command = netns.command(folder.join(path));
    if folder != Path::new("/") {
        // Some packages of Debian 12 have theirs in the old place.
        let places = ["usr/lib", "lib"].map(|place| fs::read_dir(folder.join(place)));
        let libraries = places.into_iter().flatten().flatten().flatten();
        let libraries = libraries.map(|entry| entry.path());
        let libraries = std::env::join_paths(libraries).expect("no colon in Debian's paths");
        command.env("LD_LIBRARY_PATH", libraries);
    }
    command
}
