//! A directory of pins, open for changes.

use std::ffi::{CString, OsStr, c_int};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::sys::statfs::{BPF_FS_MAGIC, fstatfs};
use tracing::debug;
use xdptun_bpf::bpf;

use super::TOP;

/// A directory of pins, held open. Another user may own it, and could put a symbolic link
/// there for root to follow, or move it away. So the path is resolved once, without
/// links, and all changes go through the descriptor.
pub struct OpenDirectory(pub File);

impl OpenDirectory {
    /// Opens it step by step. openat2(2) could forbid links at once, but the service's
    /// sandbox refuses it (systemd's `RestrictSUIDSGID=` cannot inspect its arguments).
    pub fn open(directory: &Path) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let below = directory.strip_prefix(TOP).map_err(io::Error::other)?;
        let mut opened = open(TOP, flags, Mode::empty())?;
        for name in below {
            opened = openat(&opened, name, flags, Mode::empty())?;
        }
        if fstatfs(&opened)?.filesystem_type() != BPF_FS_MAGIC {
            return Err(io::Error::other("it is not in bpffs"));
        }
        Ok(Self(opened.into()))
    }

    /// A path to the open directory, even if it was moved.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// A pin in it.
    pub fn pin(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path().join(name.as_ref())
    }

    /// Takes the program of a pinned link off its hook, and removes the pin.
    ///
    /// If only the pin is removed, the kernel releases the link after a grace period
    /// (`bpf_free_inode`), and the next step meets a program that still runs.
    pub fn remove_link(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let name = name.as_ref();
        // A symbolic link is not followed.
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let pin = openat(&self.0, name, flags, Mode::empty())?;
        if let Err(error) = detach(&pin) {
            // The device is gone, or the link is of another kind: removing the pin is enough.
            debug!("{}: cannot detach it: {error}", name.display());
        }
        fs::remove_file(self.pin(name))
    }
}

/// Takes the program of a pinned link off its hook.
fn detach(pin: &impl AsRawFd) -> io::Result<()> {
    /// `BPF_OBJ_GET` and `BPF_LINK_DETACH` (kernel 5.9) of `enum bpf_cmd`.
    const OBJ_GET: c_int = 7;
    const LINK_DETACH: c_int = 34;
    #[repr(C)]
    struct ObjGet {
        pathname: u64,
        bpf_fd: u32,
        file_flags: u32,
    }
    #[repr(C)]
    struct LinkDetach {
        link_fd: u32,
    }
    let path = CString::new(format!("/proc/self/fd/{}", pin.as_raw_fd()))?;
    let mut pinned = ObjGet {
        pathname: path.as_ptr() as u64,
        bpf_fd: 0,
        file_flags: 0,
    };
    // SAFETY: the attributes are those of the command, and the path outlives the call.
    let link = unsafe { bpf(OBJ_GET, &mut pinned) }?;
    // SAFETY: the kernel has just made the descriptor, and nothing else owns it.
    let link = unsafe { OwnedFd::from_raw_fd(link) };
    let mut detached = LinkDetach {
        link_fd: link.as_raw_fd().cast_unsigned(),
    };
    // SAFETY: the attributes are those of the command; the kernel refuses objects other
    // than links.
    unsafe { bpf(LINK_DETACH, &mut detached) }?;
    Ok(())
}
