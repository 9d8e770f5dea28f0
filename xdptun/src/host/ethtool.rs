//! Offloads of a network interface, by the ioctl of `ethtool` for single numbers.
//!
//! The constants are those of `linux/ethtool.h`.

use std::io;
use std::os::fd::AsRawFd as _;

use nix::libc;
use socket2::{Domain, Socket, Type};

/// `ETHTOOL_STXCSUM`: the device computes checksums of packets it sends; 0: the kernel does.
pub const SET_TX_CHECKSUM: u32 = 0x17;
/// `ETHTOOL_GFLAGS`: a bit for each of some offloads.
pub const GET_FLAGS: u32 = 0x25;
/// `ETH_FLAG_LRO`, the bit of large receive offload among them.
pub const FLAG_LRO: u32 = 1 << 15;
/// `ETHTOOL_GGRO`: whether the kernel merges segments on receipt.
pub const GET_GRO: u32 = 0x2b;

#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Asks for a number.
///
/// # Errors
///
/// If the interface is gone, or has no such number.
pub fn get(interface: &str, command: u32) -> io::Result<u32> {
    call(interface, Value { command, data: 0 })
}

/// Sets a number.
///
/// # Errors
///
/// As [`get`], and if this process lacks the right.
pub fn set(interface: &str, command: u32, data: u32) -> io::Result<()> {
    call(interface, Value { command, data }).map(|_| ())
}

fn call(interface: &str, mut value: Value) -> io::Result<u32> {
    let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request names the interface and points to a value that
    // outlives the call, of the layout that the commands above ask for.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(value.data)
}
