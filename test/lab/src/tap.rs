//! Network devices whose wire is a file descriptor (tun(4)): what the kernel
//! sends on one is read there, and what is written arrives on it. All unsafe
//! code of it is here.
//!
//! A crate for this would bring asynchronous I/O and routing; two ioctls are
//! all that is needed.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;

use crate::netns::Netns;
use crate::vnet::Vnet;

/// The kind of packets that a device carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Ethernet frames.
    Tap,
    /// IP packets without a link header, as ppp and WireGuard do.
    Tun,
}

impl Kind {
    /// Both kinds, to loop over.
    pub const BOTH: [Self; 2] = [Self::Tap, Self::Tun];

    /// Bytes of the link header.
    pub fn header_len(self) -> usize {
        match self {
            Self::Tap => 14,
            Self::Tun => 0,
        }
    }
}

/// The work that the kernel leaves to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// Nothing: frames leave in single pieces with final checksums.
    None,
    /// To write checksums.
    Checksum,
    /// To cut TCP and UDP super-packets, checksums included.
    Segmentation,
}

impl Offload {
    fn bits(self) -> libc::c_uint {
        match self {
            Self::None => 0,
            Self::Checksum => libc::TUN_F_CSUM,
            Self::Segmentation => {
                libc::TUN_F_CSUM
                    | libc::TUN_F_TSO4
                    | libc::TUN_F_TSO6
                    | libc::TUN_F_USO4
                    | libc::TUN_F_USO6
            }
        }
    }
}

/// Larger than any frame.
const FRAME_ROOM: usize = 128 << 10;

/// A device; it is gone when dropped.
#[derive(Debug)]
pub struct Tap(File);

impl Tap {
    /// Makes the device in a namespace.
    pub fn open(netns: &Netns, dev: &str, kind: Kind, offload: Offload) -> Result<Self> {
        netns
            .enter(|| open(dev, kind, offload))?
            .with_context(|| format!("{}: cannot make {kind:?} {dev}", netns.name()))
    }

    /// Reads what the kernel sent, in a buffer that [`Tap::buffer`] made; `None`
    /// when nothing is waiting.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Option<(Vnet, Vec<u8>)>> {
        let length = match (&self.0).read(buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error).context("cannot read from the device"),
        };
        let (vnet, bytes) = buffer[..length]
            .split_first_chunk()
            .context("the kernel left its header out")?;
        Ok(Some((Vnet::from_bytes(*vnet), bytes.to_vec())))
    }

    /// Room for [`Tap::receive`].
    pub fn buffer() -> Vec<u8> {
        vec![0; FRAME_ROOM]
    }

    /// Lets a frame arrive on the device.
    pub fn send(&self, vnet: Vnet, bytes: &[u8]) -> Result<()> {
        let whole = [&vnet.to_bytes(), bytes].concat();
        let written = (&self.0)
            .write(&whole)
            .with_context(|| format!("the device takes no {} bytes, {vnet:?}", bytes.len()))?;
        ensure!(written == whole.len(), "only {written} bytes were taken");
        Ok(())
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn open(dev: &str, kind: Kind, offload: Offload) -> Result<Tap> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .context("/dev/net/tun")?;
    let mode = match kind {
        Kind::Tap => libc::IFF_TAP,
        Kind::Tun => libc::IFF_TUN,
    };
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { zeroed() };
    ensure!(
        dev.len() < request.ifr_name.len(),
        "{dev} is no interface name"
    );
    for (to, from) in request.ifr_name.iter_mut().zip(dev.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_flags =
        i16::try_from(mode | libc::IFF_NO_PI | libc::IFF_VNET_HDR).expect("15 bits of flags");
    // SAFETY: the request names a device, and outlives the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw const request) };
    Errno::result(result).context("TUNSETIFF")?;
    // SAFETY: this request takes its argument by value.
    let result = unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            libc::TUNSETOFFLOAD,
            libc::c_ulong::from(offload.bits()),
        )
    };
    Errno::result(result).with_context(|| format!("TUNSETOFFLOAD {offload:?}"))?;
    Ok(Tap(file))
}
