//! The server: sends back what every connection sends.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, RawFd};

use anyhow::{Context as _, Result};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use socket2::{Domain, Socket, Type};

use super::{AT_ONCE, EVENTS, wait_for, would_block};

/// Connections that a listener has not accepted yet.
const BACKLOG: u16 = u16::MAX;

/// Listens on an address, perhaps with other processes, among which the kernel shares the
/// connections.
pub(super) fn listen(at: SocketAddr) -> Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket
        .bind(&at.into())
        .with_context(|| format!("cannot listen on {at}"))?;
    socket.listen(BACKLOG.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// A connection of the server, and what it has not taken back yet.
struct Connection {
    stream: TcpStream,
    pending: Vec<u8>,
}

/// Serves until the end of standard input.
pub(super) fn serve(listener: &TcpListener) -> Result<()> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let key = |fd: RawFd| u64::try_from(fd).context("a negative descriptor");
    let of_listener = key(listener.as_raw_fd())?;
    epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, of_listener))?;
    let stdin = std::io::stdin();
    let of_stdin = key(stdin.as_raw_fd())?;
    epoll.add(&stdin, EpollEvent::new(EpollFlags::EPOLLIN, of_stdin))?;
    let mut served: HashMap<u64, Connection> = HashMap::new();
    let mut events = vec![EpollEvent::empty(); EVENTS];
    let mut buffer = vec![0; AT_ONCE];
    loop {
        let count = wait_for(&epoll, &mut events, EpollTimeout::NONE)?;
        for event in &events[..count] {
            if event.data() == of_stdin {
                return Ok(());
            }
            if event.data() == of_listener {
                while let Some(stream) = would_block(listener.accept())? {
                    let stream = stream.0;
                    stream.set_nonblocking(true)?;
                    let key = key(stream.as_raw_fd())?;
                    epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, key))?;
                    let pending = Vec::new();
                    served.insert(key, Connection { stream, pending });
                }
                continue;
            }
            let Some(one) = served.get_mut(&event.data()) else {
                continue;
            };
            match one.step(&mut buffer) {
                Ok(true) => {
                    let writes = match one.pending.is_empty() {
                        true => EpollFlags::EPOLLIN,
                        false => EpollFlags::EPOLLOUT,
                    };
                    epoll.modify(&one.stream, &mut EpollEvent::new(writes, event.data()))?;
                }
                // Closed by the client, or reset.
                Ok(false) | Err(_) => {
                    served.remove(&event.data());
                }
            }
        }
    }
}

impl Connection {
    /// Reads and sends back; whether the connection goes on.
    fn step(&mut self, buffer: &mut [u8]) -> std::io::Result<bool> {
        if self.pending.is_empty() {
            match would_block(self.stream.read(buffer))? {
                Some(0) => return Ok(false),
                Some(length) => self.pending.extend_from_slice(&buffer[..length]),
                None => return Ok(true),
            }
        }
        if let Some(sent) = would_block(self.stream.write(&self.pending))? {
            self.pending.drain(..sent);
        }
        Ok(true)
    }
}
