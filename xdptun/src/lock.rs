//! One daemon for each interface.
//!
//! The lock is an abstract UNIX socket: its name lives in the network namespace
//! like the interface does, it needs no file, and the kernel lets go of it when
//! the process ends, however it ends.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Pid;

/// Held by the daemon of an interface as long as it lives.
#[derive(Debug)]
pub struct InterfaceLock {
    _listener: UnixListener,
}

fn address(ifindex: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("xdptun/{ifindex}"))
}

impl InterfaceLock {
    /// Takes the lock; `None` if a daemon holds it.
    ///
    /// # Errors
    ///
    /// If the socket cannot be made for another reason.
    pub fn take(ifindex: u32) -> io::Result<Option<Self>> {
        match UnixListener::bind_addr(&address(ifindex)?) {
            Ok(listener) => Ok(Some(Self {
                _listener: listener,
            })),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The process that holds the lock, if one does and it can be seen from
    /// this process's PID namespace.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell.
    pub fn holder(ifindex: u32) -> io::Result<Option<Pid>> {
        let stream = match UnixStream::connect_addr(&address(ifindex)?) {
            Ok(stream) => stream,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
            Err(error) => return Err(error),
        };
        let credentials = getsockopt(&stream, PeerCredentials)?;
        Ok((credentials.pid() > 0).then(|| Pid::from_raw(credentials.pid())))
    }

    /// Waits until whoever holds the lock lets go of it.
    ///
    /// # Errors
    ///
    /// If the connection to it cannot be made or watched.
    pub fn wait_released(ifindex: u32) -> io::Result<()> {
        let stream = match UnixStream::connect_addr(&address(ifindex)?) {
            Ok(stream) => stream,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(()),
            Err(error) => return Err(error),
        };
        // Nobody writes on it; the end of the listener ends the connection too.
        match io::Read::read(&mut &stream, &mut [0]) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
            Err(error) => Err(error),
        }
    }
}
