//! Socket options that `nix` and `socket2` have no names for.

use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context, Result};
use nix::errno::Errno;

/// Sets an option to these bytes.
pub fn set(socket: impl AsFd, level: i32, name: i32, value: &[u8]) -> Result<()> {
    let length = libc::socklen_t::try_from(value.len())?;
    // SAFETY: the pointer and length describe `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            length,
        )
    };
    Errno::result(result).with_context(|| format!("socket option {level}/{name} refused"))?;
    Ok(())
}

/// Sets an option that is an `int`.
pub fn set_int(socket: impl AsFd, level: i32, name: i32, value: libc::c_int) -> Result<()> {
    set(socket, level, name, &value.to_ne_bytes())
}

/// Reads an option that is an `int`.
pub fn int(socket: impl AsFd, level: i32, name: i32) -> Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut length = libc::socklen_t::try_from(size_of::<libc::c_int>())?;
    // SAFETY: the pointers describe `value` and `length`, which outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    Errno::result(result).with_context(|| format!("no socket option {level}/{name}"))?;
    Ok(value)
}

/// How many bytes of a TCP connection the other end has not acknowledged.
///
/// # Panics
///
/// If it is no TCP connection.
pub fn unacknowledged(socket: impl AsFd) -> libc::c_int {
    let mut bytes = 0;
    // SAFETY: `SIOCOUTQ` (tcp(7)) writes one `int`, which outlives the call.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    assert_eq!(result, 0, "the queue of a connection has a length");
    bytes
}
