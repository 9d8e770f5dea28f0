//! Control groups that stand still.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::Pid;

use crate::cleanup::{Guard, guarded};
use crate::wait;

/// How long a group may take to stand still.
const LIMIT: Duration = Duration::from_secs(10);

/// A process in a frozen control group of its own, until this is dropped: then it goes on, in
/// the group that it came from.
#[derive(Debug)]
#[must_use = "dropping it lets the process go on"]
pub struct Frozen {
    _guard: Guard,
}

/// Freezes a process; `None` if this machine has mounted no control groups of version 2, or
/// only to read.
pub fn freeze(pid: Pid) -> Result<Option<Frozen>> {
    let mounts = read(Path::new("/proc/self/mounts"))?;
    let Some(root) = mount_point(&mounts) else {
        return Ok(None);
    };
    let groups = read(Path::new(&format!("/proc/{pid}/cgroup")))?;
    let before = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let before = root.join(before.with_context(|| format!("{groups}: no group of version 2"))?);
    let group = root.join(format!("xdptun-lab-{pid}"));
    let ((), guard) = guarded(|| {
        fs::create_dir(&group).with_context(|| format!("{}: cannot make it", group.display()))?;
        let group = group.clone();
        Ok(((), move || {
            if let Err(error) = thaw(&group, &before, pid) {
                eprintln!("{error:#}");
            }
        }))
    })?;
    let frozen = Frozen { _guard: guard };
    write(&group.join("cgroup.procs"), &pid.to_string())?;
    write(&group.join("cgroup.freeze"), "1")?;
    wait::until_some(LIMIT, "the control group to stand still", || {
        let events = read(&group.join("cgroup.events"))?;
        Ok(events.contains("frozen 1").then_some(()))
    })?;
    Ok(Some(frozen))
}

/// Moves the process back, where it goes on, and removes its own group.
fn thaw(group: &Path, before: &Path, pid: Pid) -> Result<()> {
    // It fails if the process ended; the group is empty then.
    let _ended = write(&before.join("cgroup.procs"), &pid.to_string());
    wait::until_some(LIMIT, "the control group to be removed", || {
        Ok(fs::remove_dir(group).is_ok().then_some(()))
    })
}

/// Where `/proc/self/mounts` has control groups of version 2 that can be changed.
fn mount_point(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let point = words.next()?;
        let is_one = words.next()? == "cgroup2" && words.next()?.starts_with("rw");
        is_one.then(|| point.into())
    })
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("{}: cannot write {text}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_version_2_beside_version_1() {
        let old = "cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n";
        let new = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
        let found = mount_point(&format!("{old}{new}"));
        assert_eq!(found, Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mount_point(old), None);
        assert_eq!(mount_point(&new.replace("rw,", "ro,")), None);
    }
}
