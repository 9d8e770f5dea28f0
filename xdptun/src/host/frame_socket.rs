//! A packet socket that puts frames on interfaces. They pass the tc hook of the way out, and
//! neither routing nor netfilter.

use std::io;

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};
use xdptun_common::wire::EtherType;

/// A packet socket that only sends.
pub struct FrameSocket(Socket);

impl FrameSocket {
    /// Opens one.
    ///
    /// # Errors
    ///
    /// If the kernel refuses (CAP_NET_RAW).
    pub fn new() -> io::Result<Self> {
        // Protocol zero: it never receives.
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
        Ok(Self(socket))
    }

    /// Opens one that does not wait for a slow interface: up to so many bytes of frames, and what
    /// the kernel needs beside them, may be on their way.
    ///
    /// # Errors
    ///
    /// As [`FrameSocket::new`].
    pub fn with_buffer(bytes: usize) -> io::Result<Self> {
        let Self(socket) = Self::new()?;
        socket.set_nonblocking(true)?;
        // The kernel doubles the number (socket(7)).
        setsockopt(&socket, sockopt::SndBufForce, &bytes)?;
        Ok(Self(socket))
    }

    /// Puts a frame of IPv4, or of IPv6, on an interface, with a mark.
    ///
    /// # Errors
    ///
    /// If the kernel does not take it; [`WouldBlock`](io::ErrorKind::WouldBlock) if its buffer is
    /// full.
    pub fn send(&self, ifindex: u32, is_ipv4: bool, mark: u32, frame: &[u8]) -> io::Result<()> {
        let ether_type = match is_ipv4 {
            true => EtherType::IPV4,
            false => EtherType::IPV6,
        };
        self.0.set_mark(mark)?;
        self.0
            .send_to(frame, &address(ifindex, ether_type))
            .map(|_| ())
    }
}

fn address(ifindex: u32, ether_type: EtherType) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: `sockaddr_ll` is one of the address types the storage is for.
    let link = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    link.sll_family = libc::AF_PACKET as u16;
    link.sll_protocol = ether_type.0.to_be();
    link.sll_ifindex = ifindex.cast_signed();
    // SAFETY: filled in above, and no longer than the storage.
    unsafe { SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as libc::socklen_t) }
}
