//! The directories of pins: `/sys/fs/bpf/xdptun/<netns cookie>/<ifindex>/`.
//!
//! All network namespaces share bpffs, and it refuses dots, which names of interfaces may
//! have. Hence the numbers.

use std::ffi::{CString, OsStr, c_int};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, fchown, lchown};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open, openat};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::Mode;
use nix::sys::statfs::{BPF_FS_MAGIC, fstatfs, statfs};
use nix::unistd::geteuid;
use tracing::debug;

use super::bpf::bpf;
use super::programs::TcProgram;
use crate::error::{Context as _, Result};
use crate::host::netns;

const BPFFS: &str = "/sys/fs/bpf";
/// The directory above all pins. Its owner may be the user that the service runs as.
const TOP: &str = "/sys/fs/bpf/xdptun";
const LINK_PREFIX: &str = "link_";

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

/// The directory of this network namespace.
fn namespace_directory() -> Result<PathBuf> {
    let netns = netns::cookie()?.to_string();
    Ok(Path::new(TOP).join(netns))
}

/// The directory of an interface.
///
/// # Errors
///
/// If the network namespace cannot be identified.
pub fn directory(ifindex: u32) -> Result<PathBuf> {
    Ok(namespace_directory()?.join(ifindex.to_string()))
}

/// The interfaces of this network namespace that have pins, in order.
///
/// # Errors
///
/// If the directory exists and cannot be read.
pub fn interfaces() -> Result<Vec<u32>> {
    let directory = namespace_directory()?;
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(error).with_context(|| {
                format!(
                    "cannot read {}; run it as root, for example with sudo",
                    directory.display()
                )
            });
        }
    };
    let mut interfaces = Vec::new();
    for entry in entries {
        if let Some(ifindex) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        {
            interfaces.push(ifindex);
        }
    }
    interfaces.sort_unstable();
    Ok(interfaces)
}

/// A directory of pins, held open. Another user may own it, and could put a symbolic link
/// there for root to follow, or move it away. So the path is resolved once, without
/// links, and all changes go through the descriptor.
struct OpenDirectory(File);

impl OpenDirectory {
    /// Opens it step by step. openat2(2) could forbid links at once, but the service's
    /// sandbox refuses it (systemd's `RestrictSUIDSGID=` cannot inspect its arguments).
    fn open(directory: &Path) -> io::Result<Self> {
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
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// A pin in it.
    fn pin(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path().join(name.as_ref())
    }

    /// Takes the program of a pinned link off its hook, and removes the pin.
    ///
    /// If only the pin is removed, the kernel releases the link after a grace period
    /// (`bpf_free_inode`), and the next step meets a program that still runs.
    fn remove_link(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
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

/// The name under which the link of a program is pinned.
#[must_use]
pub fn link_name(program: &str) -> String {
    format!("{LINK_PREFIX}{program}")
}

/// Detaches the programs of all links, also those of another version, and removes the pins of
/// the links. Egress goes last: without ingress, answers to a SYN are merely lost; without
/// egress, datagrams would leave undisguised while flows are open.
///
/// # Errors
///
/// If a pin exists and cannot be removed.
pub fn remove_links(directory: &Path) -> io::Result<()> {
    let directory = OpenDirectory::open(directory)?;
    let egress = link_name(TcProgram::Egress.name());
    let (mut last, mut links) = (None, Vec::new());
    for entry in fs::read_dir(directory.path())? {
        let name = entry?.file_name();
        if name == *egress {
            last = Some(name);
        } else if name.to_string_lossy().starts_with(LINK_PREFIX) {
            links.push(name);
        }
    }
    let mut all = links.into_iter().chain(last);
    all.try_for_each(|name| directory.remove_link(name))
}

/// Renames the pins of one interface to those of another. The lock goes along.
///
/// # Errors
///
/// If there are none, or the other has some.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to)
        .with_context(|| format!("cannot rename {} to {}", from.display(), to.display()))
}

/// Removes all pins of an interface.
///
/// # Errors
///
/// If a pin exists and cannot be removed.
pub fn remove(directory: &Path) -> io::Result<()> {
    let directory = OpenDirectory::open(directory)?;
    for entry in fs::read_dir(directory.path())? {
        fs::remove_file(directory.pin(entry?.file_name()))?;
    }
    Ok(())
}

/// Gives the pins of an interface to the owner of `TOP`. The service's user could not
/// read, change or remove pins of root.
///
/// # Errors
///
/// If they cannot be given away.
pub fn share(directory: &Path) -> Result<()> {
    let owner = fs::metadata(TOP).with_context(|| format!("cannot look at {TOP}"))?;
    if owner.uid() == geteuid().as_raw() {
        return Ok(());
    }
    let (uid, gid) = (Some(owner.uid()), Some(owner.gid()));
    let give_all = || {
        let opened = OpenDirectory::open(directory)?;
        for entry in fs::read_dir(opened.path())? {
            lchown(opened.pin(entry?.file_name()), uid, gid)?;
        }
        fchown(&opened.0, uid, gid)?;
        match directory.parent() {
            Some(namespace) => fchown(OpenDirectory::open(namespace)?.0, uid, gid),
            None => Ok(()),
        }
    };
    give_all().with_context(|| {
        format!(
            "cannot give {} to user {}, whose {TOP} is",
            directory.display(),
            owner.uid()
        )
    })
}

/// Removes the empty directory of an interface, and the directories above it if they are
/// empty then. `TOP` stays if it was made for the service: a running service would not
/// see a new one.
///
/// # Errors
///
/// If it is there and cannot be removed.
pub fn remove_directory(directory: &Path) -> io::Result<()> {
    match fs::remove_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    if let Some(namespace) = directory.parent()
        && fs::remove_dir(namespace).is_ok()
        && fs::metadata(TOP).is_ok_and(|top| top.uid() == 0)
    {
        let _in_use = fs::remove_dir(TOP);
    }
    Ok(())
}
