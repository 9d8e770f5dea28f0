//! One daemon for each group of interfaces, and one group of a function for each interface.
//!
//! The lock of a group is on the directory of its pins: only root can open it, it exists only
//! while something is attached, and the kernel releases it when the process ends, even if it
//! is killed. The directory of the network namespace is locked for the moment in which a
//! process looks whether an interface is free and takes it.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{major, minor};
use nix::unistd::Pid;

use super::pins;
use super::programs::Programs;
use crate::error::{Context as _, Result};
use crate::host::proc::read_list;

/// Held by the daemon of a group as long as it lives.
#[derive(Debug)]
pub struct GroupLock {
    _directory: Flock<File>,
}

/// How often to look at a lock that another process holds.
const POLL: Duration = Duration::from_millis(20);

/// How often to try what another process can disturb for a moment.
const ATTEMPTS: usize = 5;

/// How long to wait between two attempts: longer than [`GroupLock::is_held`] has the lock.
const MOMENT: Duration = Duration::from_millis(1);

impl GroupLock {
    /// Makes the directory if it is not there, and takes the lock; `None` if a
    /// daemon holds it.
    ///
    /// # Errors
    ///
    /// If the directory cannot be made or opened.
    pub fn take(directory: &Path) -> io::Result<Option<Self>> {
        for _ in 0..ATTEMPTS {
            match make_and_lock(directory, FlockArg::LockExclusiveNonblock) {
                Ok(locked) => return Ok(Some(Self { _directory: locked })),
                // A daemon has it, or a process that looks whether one has it.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(MOMENT);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Whether a daemon holds the lock.
    ///
    /// # Errors
    ///
    /// If the directory is there and cannot be opened.
    pub fn is_held(directory: &Path) -> io::Result<bool> {
        let file = match File::open(directory) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Ok(_) => Ok(false),
            Err((_, Errno::EWOULDBLOCK)) => Ok(true),
            Err((_, error)) => Err(error.into()),
        }
    }

    /// The process that holds the lock, from the kernel. The pins name it too, but another
    /// user may have written them, and the process will get a signal.
    ///
    /// # Errors
    ///
    /// If the directory or the list of locks cannot be read.
    pub fn holder(directory: &Path) -> io::Result<Option<Pid>> {
        let metadata = match fs::metadata(directory) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let (device, inode) = (metadata.dev(), metadata.ino());
        let file = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
        // Between two reads of it, a lock that comes or goes can hide another one.
        for _ in 0..ATTEMPTS {
            let holder = holder_of(&file, &read_list("/proc/locks")?);
            if holder.is_some() || !Self::is_held(directory)? {
                return Ok(holder);
            }
        }
        Ok(None)
    }

    /// Waits until no process holds the lock; returns whether that came in time.
    ///
    /// # Errors
    ///
    /// As [`GroupLock::is_held`].
    pub fn wait_released(directory: &Path, limit: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + limit;
        while Self::is_held(directory)? {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            std::thread::sleep(POLL);
        }
        Ok(true)
    }
}

/// The process that holds a lock on a file, from the list of all locks (proc_locks(5)),
/// which calls the file `file`. A process in another PID namespace has no number above
/// zero.
fn holder_of(file: &str, locks: &str) -> Option<Pid> {
    locks.lines().find_map(|line| {
        // A line with an arrow is a process that waits for the lock above.
        let mut words = line.split_whitespace().skip(1);
        let found = [words.next()?, words.next()?, words.next()?];
        let pid: i32 = words.next()?.parse().ok()?;
        (found == ["FLOCK", "ADVISORY", "WRITE"] && words.next()? == file && pid > 0)
            .then(|| Pid::from_raw(pid))
    })
}

/// Makes a group of interfaces that are in none; `None` if one of them is, by now.
///
/// # Errors
///
/// If a directory cannot be made or read.
pub fn create_group(
    programs: &Programs,
    interfaces: &[u32],
) -> Result<Option<(PathBuf, GroupLock)>> {
    let _short = lock_namespace()?;
    for interface in interfaces {
        if pins::group_of(programs, *interface)?.is_some() {
            return Ok(None);
        }
    }
    let above = pins::namespace_directory()?.join(programs.function);
    // The number of a group means nothing. The group of an interface that was made anew may
    // have the number that another interface has by now.
    let first = interfaces.iter().copied().min().unwrap_or_default();
    let mut free = (first..).map(|number| above.join(number.to_string()));
    let group = free.find(|directory| !directory.exists());
    let group = group.context("no number is left for a group")?;
    let lock = GroupLock::take(&group).with_context(|| cannot_lock(&group))?;
    for interface in interfaces {
        pins::make_member(&group, *interface).with_context(|| cannot_make(&group))?;
    }
    // The service's user looks through all groups.
    pins::share(&group)?;
    Ok(lock.map(|lock| (group, lock)))
}

/// Adds an interface to a group; `false` if it is in another one. The caller holds the
/// group's lock.
///
/// # Errors
///
/// If a directory cannot be made or read.
pub fn join(programs: &Programs, group: &Path, interface: u32) -> Result<bool> {
    let _short = lock_namespace()?;
    let present = pins::group_of(programs, interface)?;
    if present.is_some_and(|present| present != group) {
        return Ok(false);
    }
    pins::make_member(group, interface).with_context(|| cannot_make(group))?;
    pins::share(group)?;
    Ok(true)
}

/// Locks the directory of this network namespace, waiting if need be.
pub(super) fn lock_namespace() -> Result<Flock<File>> {
    let directory = pins::namespace_directory()?;
    make_and_lock(&directory, FlockArg::LockExclusive).with_context(|| cannot_lock(&directory))
}

/// Makes a directory if it is not there, and locks it.
fn make_and_lock(directory: &Path, how: FlockArg) -> io::Result<Flock<File>> {
    loop {
        let file = match make(directory).and_then(|()| File::open(directory)) {
            // A process of another network namespace may remove directories above, which are
            // empty between two of these steps.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        let inode = file.metadata()?.ino();
        let locked = Flock::lock(file, how).map_err(|(_, error)| io::Error::from(error))?;
        // The process that held the lock before may have removed the directory.
        if fs::metadata(directory).is_ok_and(|metadata| metadata.ino() == inode) {
            return Ok(locked);
        }
    }
}

fn cannot_lock(directory: &Path) -> String {
    format!("cannot lock {}", directory.display())
}

fn cannot_make(directory: &Path) -> String {
    format!("cannot make a directory in {}", directory.display())
}

/// Makes the directory of a group, and those above it.
fn make(directory: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn finds_who_holds_a_lock() {
        let locks = "\
1: POSIX  ADVISORY  WRITE 11 00:1d:7 0 EOF
2: FLOCK  ADVISORY  READ 12 00:1d:7 0 EOF
3: FLOCK  ADVISORY  WRITE 13 00:1d:77 0 EOF
3: -> FLOCK  ADVISORY  WRITE 14 00:1d:7 0 EOF
4: FLOCK  ADVISORY  WRITE 0 00:1d:8 0 EOF
5: FLOCK  ADVISORY  WRITE 15 00:1d:7 0 EOF
";
        assert_eq!(holder_of("00:1d:7", locks), Some(Pid::from_raw(15)));
        assert_eq!(holder_of("00:1d:8", locks), None);
        assert_eq!(holder_of("00:1d:9", locks), None);
    }

    /// Other locks come and go all the time on a busy host.
    #[test]
    fn other_locks_do_not_hide_the_holder() {
        const LOOKS: usize = 20_000;
        let parent = std::env::temp_dir().join(format!("xdptun-locks-{}", std::process::id()));
        let directory = parent.join("1");
        let _held = GroupLock::take(&directory).unwrap().unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 2..5 {
                let other = parent.join(number.to_string());
                let is_over = &is_over;
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        drop(GroupLock::take(&other).unwrap());
                    }
                });
            }
            let looks = (0..LOOKS).map(|_| GroupLock::holder(&directory).unwrap());
            let all = looks.filter(|found| *found == Some(Pid::this())).count();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(all, LOOKS);
        });
        fs::remove_dir_all(&parent).unwrap();
    }

    #[test]
    fn one_holder_at_a_time() {
        let parent = std::env::temp_dir().join(format!("xdptun-lock-{}", std::process::id()));
        let directory = parent.join("1");
        assert!(!GroupLock::is_held(&directory).unwrap());
        let first = GroupLock::take(&directory).unwrap();
        assert!(first.is_some() && GroupLock::is_held(&directory).unwrap());
        let holder = GroupLock::holder(&directory).unwrap();
        assert_eq!(holder, Some(Pid::this()));
        assert!(GroupLock::take(&directory).unwrap().is_none());
        assert!(!GroupLock::wait_released(&directory, POLL).unwrap());
        drop(first);
        assert_eq!(GroupLock::holder(&directory).unwrap(), None);
        assert!(GroupLock::wait_released(&directory, POLL).unwrap());
        assert!(GroupLock::take(&directory).unwrap().is_some());
        fs::remove_dir_all(&parent).unwrap();
    }
}
