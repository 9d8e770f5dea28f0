//! Ending a thread that waits for a file descriptor.

use std::io::{PipeReader, PipeWriter, pipe};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Held by the owner of a thread; dropping it ends the thread's waits.
#[derive(Debug)]
pub struct Stop {
    _writer: PipeWriter,
}

/// Held by the thread.
#[derive(Debug)]
pub struct Stopped(PipeReader);

/// The reason that a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// The descriptor is readable (it may be stopped as well: read first).
    Readable,
    /// The owner dropped its [`Stop`] and nothing is left to read.
    Stopped,
}

/// A connected pair for one thread.
pub fn channel() -> Result<(Stop, Stopped)> {
    let (reader, writer) = pipe().context("cannot make a pipe")?;
    Ok((Stop { _writer: writer }, Stopped(reader)))
}

impl Stopped {
    /// Whether the owner wants the thread to end, within `limit` from now.
    pub fn within(&self, limit: Duration) -> Result<bool> {
        let mut waits = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::try_from(limit).context("too long to poll")?;
        match poll(&mut waits, limit) {
            Ok(events) => Ok(events > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error).context("cannot poll"),
        }
    }

    /// Blocks until `fd` is readable or the owner wants the thread to end.
    pub fn wait_readable(&self, fd: impl AsFd) -> Result<Woken> {
        let mut waits = [
            PollFd::new(fd.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.0.as_fd(), PollFlags::POLLIN),
        ];
        loop {
            match poll(&mut waits, PollTimeout::NONE) {
                Ok(_) => break,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error).context("cannot poll"),
            }
        }
        // An error state of the socket counts as readable: the read reports it.
        let ready = waits[0].any().unwrap_or(true);
        Ok(if ready {
            Woken::Readable
        } else {
            Woken::Stopped
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn dropping_the_owner_stops() {
        let (stop, stopped) = channel().unwrap();
        assert!(!stopped.within(Duration::ZERO).unwrap());
        drop(stop);
        assert!(stopped.within(Duration::ZERO).unwrap());
    }

    #[test]
    fn pending_data_comes_before_the_stop() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (stop, stopped) = channel().unwrap();
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        drop(stop);
        assert_eq!(stopped.wait_readable(&socket).unwrap(), Woken::Readable);
        socket.recv(&mut [0; 4]).unwrap();
        assert_eq!(stopped.wait_readable(&socket).unwrap(), Woken::Stopped);
    }
}
