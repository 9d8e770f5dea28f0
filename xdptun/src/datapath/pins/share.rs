//! Pins are given to the user that the service runs as.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, fchown, lchown};
use std::path::Path;

use nix::unistd::geteuid;

use super::open::OpenDirectory;
use super::{TOP, member, members};
use crate::error::{Context as _, Error, Result};

/// Gives the pins of a group to the owner of `TOP`. The service's user could not read, change
/// or remove pins of root.
///
/// # Errors
///
/// If they cannot be given away.
pub fn share(group: &Path) -> Result<()> {
    let owner = fs::metadata(TOP).with_context(|| format!("cannot look at {TOP}"))?;
    if owner.uid() == geteuid().as_raw() {
        return Ok(());
    }
    let (uid, gid) = (Some(owner.uid()), Some(owner.gid()));
    let give = |directory: &Path| {
        let opened = OpenDirectory::open(directory)?;
        for entry in fs::read_dir(opened.path())? {
            lchown(opened.pin(entry?.file_name()), uid, gid)?;
        }
        fchown(&opened.0, uid, gid)
    };
    let give_all = || {
        for ifindex in members(group)? {
            give(&member(group, ifindex))?;
        }
        give(group)?;
        let above = group
            .ancestors()
            .skip(1)
            .take_while(|one| *one != Path::new(TOP));
        for directory in above {
            fchown(OpenDirectory::open(directory)?.0, uid, gid)?;
        }
        Ok::<_, Error>(())
    };
    give_all().with_context(|| {
        let group = group.display();
        format!(
            "cannot give {group} to user {}, whose {TOP} is",
            owner.uid()
        )
    })
}
