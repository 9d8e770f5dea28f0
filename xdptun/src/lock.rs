//! One daemon for each interface.
//!
//! The lock is on the directory of the interface's pins: only root can open it,
//! it exists only while something is attached, and the kernel lets go of it
//! when the process ends, however it ends.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Held by the daemon of an interface as long as it lives.
#[derive(Debug)]
pub struct InterfaceLock {
    _directory: Flock<File>,
}

/// How often a lock is looked at that someone else holds.
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
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)?;
            let file = File::open(directory)?;
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

    /// Waits until nobody holds the lock; whether that came in time.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time() {
        let parent = std::env::temp_dir().join(format!("xdptun-lock-{}", std::process::id()));
        let directory = parent.join("1");
        assert!(!InterfaceLock::is_held(&directory).unwrap());
        let first = InterfaceLock::take(&directory).unwrap();
        assert!(first.is_some() && InterfaceLock::is_held(&directory).unwrap());
        assert!(InterfaceLock::take(&directory).unwrap().is_none());
        assert!(!InterfaceLock::wait_released(&directory, POLL).unwrap());
        drop(first);
        assert!(InterfaceLock::wait_released(&directory, POLL).unwrap());
        assert!(InterfaceLock::take(&directory).unwrap().is_some());
        fs::remove_dir_all(&parent).unwrap();
    }
}
