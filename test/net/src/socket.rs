//! UDP sockets that lose nothing.

use std::net::{SocketAddr, UdpSocket};

use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};
use xdptun_lab::{Netns, udp};

/// Far more than any suite has under way.
const ROOM: usize = 64 << 20;

/// Binds a socket with room for every burst of these suites.
pub fn roomy(netns: &Netns, address: impl Into<SocketAddr>) -> Result<UdpSocket> {
    let socket = udp::bind(netns, address)?;
    setsockopt(&socket, RcvBufForce, &ROOM).context("cannot enlarge the receive buffer")?;
    Ok(socket)
}
