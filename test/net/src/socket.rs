//! UDP sockets that lose nothing, or that watch their path.

use std::io::IoSliceMut;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::sockopt::{RcvBufForce, UdpGroSegment};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt};
use xdptun_lab::{Family, Host, Netns, sockopt, udp, wait};

use crate::{LIMIT, PORT};

/// Far more than any suite has under way.
const ROOM: usize = 64 << 20;

/// Binds a socket with room for every burst of these suites.
pub fn roomy(netns: &Netns, address: impl Into<SocketAddr>) -> Result<UdpSocket> {
    let socket = udp::bind(netns, address)?;
    setsockopt(&socket, RcvBufForce, &ROOM).context("cannot enlarge the receive buffer")?;
    Ok(socket)
}

/// Any address of a family, and any port.
#[must_use]
pub fn anywhere(family: Family) -> SocketAddr {
    match family {
        Family::V4 => (Ipv4Addr::UNSPECIFIED, 0).into(),
        Family::V6 => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// Makes a socket never send fragments: the kernel refuses what the path does not carry.
pub fn never_fragment(socket: &UdpSocket, family: Family) -> Result<()> {
    set_discovery(socket, family, libc::IP_PMTUDISC_DO, libc::IPV6_PMTUDISC_DO)
}

/// Lets a socket send fragments, and datagrams without DF.
pub fn let_fragment(socket: &UdpSocket, family: Family) -> Result<()> {
    set_discovery(
        socket,
        family,
        libc::IP_PMTUDISC_DONT,
        libc::IPV6_PMTUDISC_DONT,
    )
}

/// Lets a socket send fragments as long as the interface takes, whatever ICMP says of the path.
pub fn ignore_path(socket: &UdpSocket, family: Family) -> Result<()> {
    set_discovery(
        socket,
        family,
        libc::IP_PMTUDISC_OMIT,
        libc::IPV6_PMTUDISC_OMIT,
    )
}

fn set_discovery(socket: &UdpSocket, family: Family, v4: i32, v6: i32) -> Result<()> {
    match family {
        Family::V4 => sockopt::set_int(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, v4),
        Family::V6 => sockopt::set_int(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, v6),
    }
}

/// Like [`never_fragment`], and makes it hear of all that ICMP says of its datagrams, as QUIC
/// stacks do.
pub fn discover_path(socket: &UdpSocket, family: Family) -> Result<()> {
    never_fragment(socket, family)?;
    let (level, hear) = match family {
        Family::V4 => (libc::IPPROTO_IP, libc::IP_RECVERR),
        Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    };
    sockopt::set_int(socket, level, hear, 1)
}

/// The path MTU as a connected socket knows it.
pub fn path_mtu(socket: &UdpSocket, family: Family) -> Result<i32> {
    match family {
        Family::V4 => sockopt::int(socket, libc::IPPROTO_IP, libc::IP_MTU),
        Family::V6 => sockopt::int(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU),
    }
}

/// Waits until the socket has an error to tell.
pub fn wait_error(socket: &UdpSocket) -> Result<Errno> {
    wait::until_some(LIMIT, "an error on the socket", || {
        let error = socket.take_error()?;
        Ok(error.and_then(|error| Some(Errno::from_raw(error.raw_os_error()?))))
    })
}

/// Receives one datagram with what the socket was asked to tell of it: the
/// control messages of one level and kind.
pub fn receive_with(socket: &UdpSocket, level: i32, kind: i32) -> Result<(Vec<u8>, Vec<Vec<u8>>)> {
    let (payload, told) = receive_told(socket, LIMIT)?;
    let told = told.into_iter().filter_map(|control| match control {
        ControlMessageOwned::Unknown(unknown)
            if (
                unknown.cmsg_header.cmsg_level,
                unknown.cmsg_header.cmsg_type,
            ) == (level, kind) =>
        {
            Some(unknown.data_bytes)
        }
        _ => None,
    });
    Ok((payload, told.collect()))
}

/// Lets a socket take several datagrams at once (`UDP_GRO`).
pub fn take_merged(socket: &UdpSocket) -> Result<()> {
    setsockopt(socket, UdpGroSegment, &true).context("no UDP_GRO")
}

/// Receives the datagrams that the kernel hands over at once.
pub fn receive_merged(socket: &UdpSocket) -> Result<Vec<Vec<u8>>> {
    let (payload, told) = receive_told(socket, wait::stretched(LIMIT)?)?;
    let size = told.into_iter().find_map(|control| match control {
        ControlMessageOwned::UdpGroSegments(size) => usize::try_from(size).ok(),
        _ => None,
    });
    let datagrams = payload.chunks(size.unwrap_or(payload.len()).max(1));
    Ok(datagrams.map(<[u8]>::to_vec).collect())
}

/// Receives once, with all control messages.
fn receive_told(
    socket: &UdpSocket,
    limit: Duration,
) -> Result<(Vec<u8>, Vec<ControlMessageOwned>)> {
    socket.set_read_timeout(Some(limit))?;
    let mut payload = vec![0; 1 << 16];
    let mut control = vec![0; 512];
    let mut parts = [IoSliceMut::new(&mut payload)];
    let message = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut control),
        MsgFlags::empty(),
    )
    .context("no datagram")?;
    let (told, length) = (message.cmsgs()?.collect(), message.bytes);
    payload.truncate(length);
    Ok((payload, told))
}

/// A client and a server on the owned port, whose flow is open.
///
/// # Errors
///
/// If they cannot talk.
pub fn open(client: &Host, server: &Host, family: Family) -> Result<(UdpSocket, UdpSocket)> {
    let server = roomy(&server.netns, server.socket(family, PORT))?;
    let client = roomy(&client.netns, client.socket(family, 0))?;
    client.connect(server.local_addr()?)?;
    client.send(b"opens the flow")?;
    udp::receive(&server, LIMIT)?;
    Ok((client, server))
}
