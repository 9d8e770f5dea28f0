//! The identity of this network namespace.

use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixDatagram;

use crate::error::{Context as _, Result};

/// The cookie of the calling thread's network namespace (`SO_NETNS_COOKIE`, Linux 5.14). The
/// kernel never reuses it, unlike inode numbers.
///
/// # Errors
///
/// If no socket can be made.
pub fn cookie() -> Result<u64> {
    UnixDatagram::unbound()
        .and_then(|socket| cookie_of(&socket))
        .context("cannot identify the network namespace")
}

fn cookie_of(socket: &UnixDatagram) -> io::Result<u64> {
    let mut cookie = 0_u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the socket is open; the kernel writes at most `len` bytes to the number, and
    // every byte pattern is valid.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    match result {
        0 => Ok(cookie),
        _ => Err(io::Error::last_os_error()),
    }
}
