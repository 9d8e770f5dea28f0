//! bpffs, and how it is mounted.

use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use super::TOP;
use crate::error::{Context as _, Result};

const BPFFS: &str = "/sys/fs/bpf";

/// Whether bpffs is mounted, or the part of it that the service may see.
#[must_use]
pub fn has_bpffs() -> bool {
    let is_bpffs = |path| statfs(path).is_ok_and(|stat| stat.filesystem_type() == BPF_FS_MAGIC);
    is_bpffs(BPFFS) || is_bpffs(TOP)
}

/// Mounts bpffs if it is not there. systemd does so at boot; containers and
/// `ip netns exec` often lack it.
///
/// # Errors
///
/// If it is missing and cannot be mounted.
pub fn mount_bpffs() -> Result<()> {
    if has_bpffs() {
        return Ok(());
    }
    mount(
        Some("bpf"),
        BPFFS,
        Some("bpf"),
        MsFlags::empty(),
        None::<&str>,
    )
    .with_context(|| {
        format!("cannot mount bpffs; run `mount -t bpf bpf {BPFFS}` where it is allowed")
    })
}
