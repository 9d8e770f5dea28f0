//! UDP sockets as a server or a client of QUIC wants them.

use std::net::{SocketAddr, UdpSocket};

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, Socket, Type};

/// Asked for in either direction; the kernel grants what its limits
/// (`net.core.rmem_max`, `wmem_max`) let it. The usual 208 KiB hold a few
/// milliseconds of a fast transfer.
const BUFFER: usize = 2 << 20;

/// Binds a socket; `[::]` takes both families whatever the system's default is.
pub fn bind(address: SocketAddr) -> Result<UdpSocket> {
    let open = || {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        socket.set_recv_buffer_size(BUFFER)?;
        socket.set_send_buffer_size(BUFFER)?;
        socket.bind(&address.into())?;
        Ok(socket.into())
    };
    let socket: std::io::Result<UdpSocket> = open();
    socket.with_context(|| format!("UDP {address}: cannot bind; `ss -lunp` shows who has it"))
}
