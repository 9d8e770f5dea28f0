//! A Linux packet socket: every frame of one interface, with what the kernel
//! knows about it. All unsafe code of capturing is here; see packet(7).

use std::ffi::CString;
use std::mem::{size_of, zeroed};
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use socket2::{Domain, Socket, Type};

use crate::sockopt;

/// Room for bursts while the capturing thread does not run, in bytes. Memory
/// is taken only for frames that wait.
const RECEIVE_BUFFER: libc::c_int = 256 << 20;

/// Larger than any frame: GSO and GRO super-packets reach 64 KiB plus headers.
const FRAME_ROOM: usize = 128 << 10;

/// Control messages hold a timestamp and the auxiliary data: 60 bytes or so.
/// Of a type that becomes any other: how long they are differs between libcs.
const CONTROL_ROOM: u16 = 256;

/// One captured frame.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// The frame from the Ethernet header on, unless it is bare.
    pub bytes: Vec<u8>,
    /// Whether there is no link header (TUN, ppp): it starts with the IP header.
    pub bare: bool,
    /// Whether the interface sent it (otherwise it arrived there).
    pub outgoing: bool,
    /// The VLAN tag (TCI) that is kept beside the frame, not in it.
    pub vlan: Option<u16>,
    /// Whether checksums are final. They are not while the stack still relies
    /// on an offload to complete them (`TP_STATUS_CSUMNOTREADY`).
    pub checksum_ready: bool,
    /// When the kernel saw it, since the epoch.
    pub time: Duration,
}

/// The kernel's account of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Frames, the dropped ones included.
    pub seen: u32,
    /// Frames for which there was no room.
    pub dropped: u32,
}

/// A bound packet socket.
pub struct PacketSocket {
    socket: Socket,
    /// Read into here first: clearing room for the largest frame each time
    /// would cost more than everything else.
    buffer: Vec<u8>,
}

impl PacketSocket {
    /// Opens the socket in the namespace of the calling thread.
    pub fn open(dev: &str) -> Result<Self> {
        // Protocol 0 receives nothing until the socket is bound to its interface.
        let socket = Socket::new(Domain::PACKET, Type::RAW, None).context("no packet socket")?;
        socket.set_nonblocking(true)?;
        sockopt::set_int(
            &socket,
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            RECEIVE_BUFFER,
        )?;
        sockopt::set_int(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        sockopt::set_int(&socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
        bind(&socket, dev, libc::ETH_P_ALL)?;
        Ok(Self {
            socket,
            buffer: vec![0; FRAME_ROOM],
        })
    }

    /// Reads one frame; `false` when none is waiting.
    pub fn receive(&mut self, frame: &mut Frame) -> Result<bool> {
        let mut part = libc::iovec {
            iov_base: self.buffer.as_mut_ptr().cast(),
            iov_len: self.buffer.len(),
        };
        let mut control = ControlRoom([0; CONTROL_ROOM as usize]);
        // SAFETY: all-zero bytes are a valid `sockaddr_ll` and `msghdr`.
        let mut sender: libc::sockaddr_ll = unsafe { zeroed() };
        // SAFETY: as above.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_name = (&raw mut sender).cast();
        message.msg_namelen = socklen::<libc::sockaddr_ll>();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_ROOM.into();
        // SAFETY: every pointer in `message` describes a live local buffer.
        let result = unsafe {
            libc::recvmsg(
                self.socket.as_raw_fd(),
                &raw mut message,
                libc::MSG_DONTWAIT,
            )
        };
        let length = match Errno::result(result) {
            Ok(length) => usize::try_from(length).context("negative length")?,
            // Of an interface that went down the kernel tells once, and goes on
            // when it is up again.
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENETDOWN) => return Ok(false),
            Err(error) => return Err(error).context("cannot read a frame"),
        };
        if message.msg_flags & libc::MSG_TRUNC != 0 {
            bail!("a frame is larger than {FRAME_ROOM} bytes");
        }
        frame.bytes.clear();
        frame.bytes.extend_from_slice(&self.buffer[..length]);
        frame.bare = matches!(sender.sll_hatype, libc::ARPHRD_NONE | libc::ARPHRD_PPP);
        frame.outgoing = sender.sll_pkttype == libc::PACKET_OUTGOING;
        frame.vlan = None;
        frame.checksum_ready = true;
        frame.time = Duration::ZERO;
        read_control(&message, frame)?;
        Ok(true)
    }

    /// How many frames there were since the last call.
    pub fn statistics(&self) -> Result<Statistics> {
        let mut statistics = libc::tpacket_stats {
            tp_packets: 0,
            tp_drops: 0,
        };
        let mut length = socklen::<libc::tpacket_stats>();
        // SAFETY: the pointers describe `statistics` and `length`.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        Errno::result(result).context("cannot read the capture statistics")?;
        Ok(Statistics {
            seen: statistics.tp_packets,
            dropped: statistics.tp_drops,
        })
    }
}

/// A socket in the namespace of the calling thread that sends frames straight to
/// the driver, and receives none.
pub fn sender(dev: &str) -> Result<Socket> {
    let socket = Socket::new(Domain::PACKET, Type::RAW, None).context("no packet socket")?;
    sockopt::set_int(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
    bind(&socket, dev, 0)?;
    Ok(socket)
}

fn bind(socket: &Socket, dev: &str, protocol: libc::c_int) -> Result<()> {
    let index = nix::net::if_::if_nametoindex(CString::new(dev)?.as_c_str())
        .context("no such interface")?;
    // SAFETY: all-zero bytes are a valid `sockaddr_ll`.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET).expect("AF_PACKET is 17");
    address.sll_protocol = u16::try_from(protocol)
        .expect("protocols have 16 bits")
        .to_be();
    address.sll_ifindex = i32::try_from(index).context("interface index out of range")?;
    // SAFETY: the pointer and length describe `address`.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            socklen::<libc::sockaddr_ll>(),
        )
    };
    Errno::result(result).context("cannot bind the packet socket")?;
    Ok(())
}

/// Where they are put.
#[repr(C, align(8))]
struct ControlRoom([u8; CONTROL_ROOM as usize]);

fn read_control(message: &libc::msghdr, frame: &mut Frame) -> Result<()> {
    ensure!(
        message.msg_flags & libc::MSG_CTRUNC == 0,
        "the auxiliary data of a frame does not fit"
    );
    // SAFETY: the kernel filled the control buffer of `message`, and the
    // CMSG_* functions walk it within `msg_controllen`.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: `next` is null or points to a header inside that buffer.
    while let Some(header) = unsafe { next.as_ref() } {
        // SAFETY: the header is a valid one, its data follow it.
        let data = unsafe { libc::CMSG_DATA(header) };
        match (header.cmsg_level, header.cmsg_type) {
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                // SAFETY: this message type carries a `tpacket_auxdata`.
                let aux = unsafe { data.cast::<libc::tpacket_auxdata>().read_unaligned() };
                frame.checksum_ready = aux.tp_status & libc::TP_STATUS_CSUMNOTREADY == 0;
                if aux.tp_status & libc::TP_STATUS_VLAN_VALID != 0 {
                    frame.vlan = Some(aux.tp_vlan_tci);
                }
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: this message type carries a `timespec`.
                let time = unsafe { data.cast::<libc::timespec>().read_unaligned() };
                frame.time = Duration::new(
                    u64::try_from(time.tv_sec).context("a frame from before 1970")?,
                    u32::try_from(time.tv_nsec).context("nanoseconds out of range")?,
                );
            }
            _ => {}
        }
        // SAFETY: `header` came from this `message`.
        next = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    Ok(())
}

fn socklen<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("socket structures are small")
}
