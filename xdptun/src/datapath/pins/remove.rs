//! Pins are removed.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::open::OpenDirectory;
use super::{TOP, is_link, is_of_old_version, link_name, member, number_of};
use crate::datapath::programs::Programs;

/// Detaches the programs of all links of an interface, also those of another version, and
/// removes the pins of the links. Egress goes last: without ingress, answers to a SYN are
/// merely lost; without egress, datagrams would leave undisguised while flows are open.
///
/// # Errors
///
/// If a pin exists and cannot be removed.
pub fn remove_links(programs: &Programs, member: &Path) -> io::Result<()> {
    let directory = match OpenDirectory::open(member) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        directory => directory?,
    };
    let egress = link_name(programs.egress);
    let (mut last, mut links) = (None, Vec::new());
    for entry in fs::read_dir(directory.path())? {
        let name = entry?.file_name();
        if name == *egress {
            last = Some(name);
        } else if is_link(&name) {
            links.push(name);
        }
    }
    let mut all = links.into_iter().chain(last);
    all.try_for_each(|name| directory.remove_link(name))
}

/// Removes the directory of an interface, whose links are gone.
///
/// # Errors
///
/// If it is there and cannot be removed.
pub fn remove_member(group: &Path, ifindex: u32) -> io::Result<()> {
    if is_of_old_version(group) {
        return Ok(());
    }
    match fs::remove_dir(member(group, ifindex)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes the maps of a group.
///
/// # Errors
///
/// If a pin exists and cannot be removed.
pub fn remove_maps(group: &Path) -> io::Result<()> {
    let directory = OpenDirectory::open(group)?;
    for entry in fs::read_dir(directory.path())? {
        let name = entry?.file_name();
        if number_of(Path::new(&name)).is_none() {
            fs::remove_file(directory.pin(name))?;
        }
    }
    Ok(())
}

/// Removes the empty directory of a group, and the directories above it if they are empty
/// then. `TOP` stays if it was made for the service: a running service would not see a new
/// one.
///
/// # Errors
///
/// If it is there and cannot be removed.
pub fn remove_directory(group: &Path) -> io::Result<()> {
    match fs::remove_dir(group) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let top = Path::new(TOP);
    let above = group.ancestors().skip(1).take_while(|one| *one != top);
    let mut above = above.map(fs::remove_dir);
    if above.all(|removed| removed.is_ok()) && fs::metadata(top).is_ok_and(|top| top.uid() == 0) {
        let _in_use = fs::remove_dir(top);
    }
    Ok(())
}
