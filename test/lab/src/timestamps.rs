//! Making the kernel stamp packets from the first one on.
//!
//! The kernel takes the time of a packet only while some socket wants it, and
//! turns that on in deferred work (`net_enable_timestamp`). Until then a packet
//! gets its time when it is read, which may be after later packets.

use std::io::IoSliceMut;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt, sockopt::ReceiveTimestampns,
};

use crate::wait;

/// The socket that wants stamps as long as the process lives.
static KEEPER: Mutex<Option<UdpSocket>> = Mutex::new(None);

const LIMIT: Duration = Duration::from_secs(10);

/// Returns when the kernel stamps packets as they pass. Call it outside the
/// namespaces of the laboratory, or one of them lives as long as the process.
///
/// What runs suites calls it as well, before the first: the kernel turns stamps off, in
/// deferred work too, when the last that wants them ends. One that begins meanwhile
/// would find them still on here, and its first packets without.
pub fn enable() -> Result<()> {
    let mut keeper = KEEPER.lock().unwrap_or_else(PoisonError::into_inner);
    if keeper.is_none() {
        let socket = UdpSocket::bind("127.0.0.1:0").context("no loopback")?;
        socket.set_read_timeout(Some(wait::stretched(LIMIT)?))?;
        setsockopt(&socket, ReceiveTimestampns, &true).context("no packet timestamps")?;
        wait::until_some(LIMIT, "the kernel to stamp packets", || {
            Ok(is_stamped_in_passing(&socket)?.then_some(()))
        })?;
        *keeper = Some(socket);
    }
    Ok(())
}

/// Whether a datagram that has arrived carries a time from before it is read.
fn is_stamped_in_passing(socket: &UdpSocket) -> Result<bool> {
    socket.send_to(b"time", socket.local_addr()?)?;
    // Returns once the datagram is in the queue.
    socket.peek(&mut [0])?;
    let reading = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let mut bytes = [0; 4];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    // The C library of 32-bit machines adds the same time with 64 bits.
    let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec, [i64; 2]);
    let message = recvmsg::<SockaddrIn>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut control),
        MsgFlags::empty(),
    )?;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmTimestampns(time) = control {
            return Ok(Duration::from(time) < reading);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_taken_once_enabled() {
        enable().unwrap();
        let keeper = KEEPER.lock().unwrap();
        for _ in 0..100 {
            assert!(is_stamped_in_passing(keeper.as_ref().unwrap()).unwrap());
        }
    }
}
