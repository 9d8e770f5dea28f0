//! One daemon for each interface.
//!
//! The lock is on the directory of the interface's pins: only root can open it,
//! it exists only while something is attached, and the kernel releases it
//! when the process ends, even if it is killed.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{major, minor};
use nix::unistd::Pid;

/// Held by the daemon of an interface as long as it lives.
#[derive(Debug)]
pub struct InterfaceLock {
    _directory: Flock<File>,
}

/// How often to look at a lock that another process holds.
const POLL: Duration = Duration::from_millis(20);

impl InterfaceLock {
    /// Makes the directory if it is not there, and takes the lock; `None` if a
    /// daemon holds it.
    ///
    /// # Errors
    ///
    /// If the directory cannot be made or opened.
    pub fn take(directory: &Path) -> io::Result<Option<Self>> {
        loop {
            let file = match make(directory).and_then(|()| File::open(directory)) {
                // A process of another network namespace may remove directories above, which
                // are empty between two of these steps.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file?,
            };
            let inode = file.metadata()?.ino();
            let locked = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(locked) => locked,
                Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
                Err((_, error)) => return Err(error.into()),
            };
            // A daemon that just ended may have removed the directory meanwhile.
            if fs::metadata(directory).is_ok_and(|metadata| metadata.ino() == inode) {
                return Ok(Some(Self { _directory: locked }));
            }
        }
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
        Ok(holder_of(&file, &fs::read_to_string("/proc/locks")?))
    }

    /// Waits until no process holds the lock; returns whether that came in time.
    ///
    /// # Errors
    ///
    /// As [`InterfaceLock::is_held`].
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

/// Makes the directory of an interface, and those above it.
fn make(directory: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn one_holder_at_a_time() {
        let parent = std::env::temp_dir().join(format!("xdptun-lock-{}", std::process::id()));
        let directory = parent.join("1");
        assert!(!InterfaceLock::is_held(&directory).unwrap());
        let first = InterfaceLock::take(&directory).unwrap();
        assert!(first.is_some() && InterfaceLock::is_held(&directory).unwrap());
        let holder = InterfaceLock::holder(&directory).unwrap();
        assert_eq!(holder, Some(Pid::this()));
        assert!(InterfaceLock::take(&directory).unwrap().is_none());
        assert!(!InterfaceLock::wait_released(&directory, POLL).unwrap());
        drop(first);
        assert_eq!(InterfaceLock::holder(&directory).unwrap(), None);
        assert!(InterfaceLock::wait_released(&directory, POLL).unwrap());
        assert!(InterfaceLock::take(&directory).unwrap().is_some());
        fs::remove_dir_all(&parent).unwrap();
    }
}
