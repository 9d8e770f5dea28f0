//! The directories of pins: `/sys/fs/bpf/xdptun/<netns cookie>/<function>/<group>/` for maps,
//! and in it `<ifindex>/` for the links of each interface.
//!
//! All network namespaces share bpffs, and it refuses dots, which names of interfaces may
//! have. Hence the numbers.

use std::ffi::{CString, OsStr, c_int};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, fchown, lchown};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open, openat};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::Mode;
use nix::sys::statfs::{BPF_FS_MAGIC, fstatfs, statfs};
use nix::unistd::geteuid;
use tracing::debug;
use xdptun_bpf::bpf;

use super::programs::Programs;
use crate::error::{Context as _, Error, Result};
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
