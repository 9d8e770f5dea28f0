//! Many datagrams in one system call (sendmmsg(2), recvmmsg(2)), so that the
//! generator is not what limits the rate. All unsafe code of it is here.

use std::io;
use std::mem::zeroed;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

use nix::errno::Errno;

/// Room for one `in_pktinfo` with its header.
const CONTROL_ROOM: usize = 64;

/// Buffers of one length, with all that the kernel is told about them prepared.
pub struct Batch {
    headers: Vec<libc::mmsghdr>,
    /// The targets of the pointers in `headers`; never moved.
    _parts: Vec<libc::iovec>,
    _payloads: Vec<u8>,
    controls: Vec<Control>,
}

/// Aligned as control messages have to be.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_ROOM]);

impl Batch {
    /// Datagrams of one system call.
    pub const SIZE: usize = 32;

    /// [`Batch::SIZE`] buffers of `length` bytes.
    pub fn new(length: usize) -> Self {
        Self::starting_with(&[], length)
    }

    /// The same, each with these first bytes, of which there are no more than `length`.
    pub fn starting_with(first: &[u8], length: usize) -> Self {
        // Bytes that differ: a sum over zeros would show no error.
        let mut payloads: Vec<u8> = (0..Self::SIZE * length).map(|at| at as u8).collect();
        for index in 0..Self::SIZE {
            payloads[index * length..][..first.len()].copy_from_slice(first);
        }
        let mut parts: Vec<libc::iovec> = (0..Self::SIZE)
            .map(|index| libc::iovec {
                iov_base: payloads[index * length..].as_mut_ptr().cast(),
                iov_len: length,
            })
            .collect();
        let headers = parts
            .iter_mut()
            .map(|part| {
                // SAFETY: all-zero bytes are a valid `mmsghdr`.
                let mut header: libc::mmsghdr = unsafe { zeroed() };
                header.msg_hdr.msg_iov = part;
                header.msg_hdr.msg_iovlen = 1;
                header
            })
            .collect();
        Self {
            headers,
            _parts: parts,
            _payloads: payloads,
            controls: vec![Control([0; CONTROL_ROOM]); Self::SIZE],
        }
    }

    /// Sends up to `count` datagrams on a connected socket; how many were sent.
    /// One that the interface refused counts as sent: it is lost on the way.
    pub fn send(&mut self, socket: &UdpSocket, count: usize) -> io::Result<usize> {
        let count = count.min(Self::SIZE);
        // SAFETY: the headers describe buffers that live as long as `self`, and
        // there are at least `count` of them.
        let result = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as libc::c_uint,
                0,
            )
        };
        match Errno::result(result) {
            Ok(sent) => Ok(sent.unsigned_abs() as usize),
            Err(Errno::ENOBUFS | Errno::ENOMEM | Errno::EPERM) => Ok(1),
            // An ICMP error about an earlier datagram.
            Err(Errno::ECONNREFUSED | Errno::EINTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends from these addresses of the host, one datagram each, at most
    /// [`Batch::SIZE`]; how many were sent.
    pub fn send_from(&mut self, socket: &UdpSocket, sources: &[Ipv4Addr]) -> io::Result<usize> {
        let pairs = self.headers.iter_mut().zip(&mut self.controls);
        for ((header, control), source) in pairs.zip(sources) {
            let message = &mut header.msg_hdr;
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = CONTROL_ROOM as _;
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr {
                    s_addr: u32::from(*source).to_be(),
                },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            let len = size_of::<libc::in_pktinfo>() as libc::c_uint;
            // SAFETY: the control buffer is aligned, and has room for one header
            // with its data; both macros stay within it.
            unsafe {
                let first = libc::CMSG_FIRSTHDR(message);
                (*first).cmsg_level = libc::IPPROTO_IP;
                (*first).cmsg_type = libc::IP_PKTINFO;
                (*first).cmsg_len = libc::CMSG_LEN(len) as _;
                libc::CMSG_DATA(first)
                    .cast::<libc::in_pktinfo>()
                    .write_unaligned(info);
                message.msg_controllen = libc::CMSG_SPACE(len) as _;
            }
        }
        self.send(socket, sources.len())
    }

    /// Waits for a datagram, and takes all that wait with it; `None` if
    /// none came in the socket's time.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<Option<usize>> {
        // SAFETY: as in `send`; the kernel writes into the payloads only.
        let result = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                Self::SIZE as libc::c_uint,
                libc::MSG_WAITFORONE as _,
                null_mut(),
            )
        };
        match Errno::result(result) {
            Ok(count) => Ok(Some(count.unsigned_abs() as usize)),
            Err(Errno::EAGAIN) => Ok(None),
            Err(Errno::EINTR) => Ok(Some(0)),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn sends_and_receives_many_at_once() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        assert_eq!(
            Batch::new(100).send(&sender, Batch::SIZE + 1).unwrap(),
            Batch::SIZE
        );
        let mut room = Batch::new(2000);
        assert_eq!(room.receive(&receiver).unwrap(), Some(Batch::SIZE));
        assert_eq!(room.headers[Batch::SIZE - 1].msg_len, 100);
    }

    #[test]
    fn all_datagrams_start_with_the_bytes_that_are_given() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        Batch::starting_with(&[4, 0], 3).send(&sender, 2).unwrap();
        for last in [2, 5] {
            let mut payload = [0; 3];
            receiver.recv(&mut payload).unwrap();
            assert_eq!(payload, [4, 0, last]);
        }
    }

    #[test]
    fn sends_from_the_addresses_that_are_given() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let sources = [[127, 0, 0, 5].into(), [127, 0, 0, 6].into()];
        assert_eq!(Batch::new(9).send_from(&sender, &sources).unwrap(), 2);
        for source in sources {
            let (_, from) = receiver.recv_from(&mut [0; 16]).unwrap();
            assert_eq!(from.ip(), source);
        }
    }
}
