//! Offloads of a network interface, by the ioctl of `ethtool` for single numbers.
//!
//! The constants are those of `linux/ethtool.h`.

use std::io;
use std::os::fd::AsRawFd as _;

use nix::libc;
use socket2::{Domain, Socket, Type};

/// `ETHTOOL_STXCSUM`: the device computes checksums of packets it sends; 0: the kernel does.
pub const SET_TX_CHECKSUM: u32 = 0x17;
/// `ETHTOOL_SSG`: whether the device takes packets in several pieces of memory.
pub const SET_SG: u32 = 0x19;
/// `ETHTOOL_STSO`: whether the device cuts large TCP packets itself.
pub const SET_TSO: u32 = 0x1f;
/// `ETHTOOL_GFLAGS`: a bit for each of some offloads.
pub const GET_FLAGS: u32 = 0x25;
/// `ETH_FLAG_LRO`, the bit of large receive offload among them.
pub const FLAG_LRO: u32 = 1 << 15;
/// `ETHTOOL_GGRO`: whether the kernel merges segments on receipt.
pub const GET_GRO: u32 = 0x2b;
/// `ETHTOOL_SGRO`: sets that.
pub const SET_GRO: u32 = 0x2c;

#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `ETHTOOL_GCHANNELS` and `ETHTOOL_SCHANNELS`.
const GET_CHANNELS: u32 = 0x3c;
const SET_CHANNELS: u32 = 0x3d;

/// How many queues a device has (`struct ethtool_channels`).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Channels {
    command: u32,
    /// The most queues to receive.
    pub max_receive: u32,
    /// The most queues to send.
    pub max_send: u32,
    max_other: u32,
    max_combined: u32,
    /// Queues to receive that are in use.
    pub receive: u32,
    /// Queues to send that are in use.
    pub send: u32,
    other: u32,
    combined: u32,
}

/// Asks how many queues an interface has.
///
/// # Errors
///
/// If the interface is gone, or its driver does not tell.
pub fn channels(interface: &str) -> io::Result<Channels> {
    let mut channels = Channels {
        command: GET_CHANNELS,
        ..Channels::default()
    };
    request(interface, &mut channels)?;
    Ok(channels)
}

/// Uses so many queues.
///
/// # Errors
///
/// As [`channels`], and if the driver or this process's rights do not allow it.
pub fn set_channels(interface: &str, channels: Channels) -> io::Result<()> {
    let mut channels = Channels {
        command: SET_CHANNELS,
        ..channels
    };
    request(interface, &mut channels)
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
    request(interface, &mut value)?;
    Ok(value.data)
}

/// `value` begins with the command, and has the layout that it asks for.
fn request<T>(interface: &str, value: &mut T) -> io::Result<()> {
    let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_data = (&raw mut *value).cast();
    // SAFETY: the request names the interface and points to a value that
    // outlives the call, of the layout that the commands above ask for.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
