//! The clients: each connection sends a payload and waits for its echo.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use socket2::{Domain, Socket, Type};

use super::{AT_ONCE, EVENTS, Echoed, PROCESSES, wait_for, would_block};
use crate::{udp, wait};

/// How many connections may be in their handshake at a time.
const PACE: usize = 64;

/// The first port of a client.
const FIRST_PORT: u16 = 1024;

/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(20);

fn patience() -> Result<EpollTimeout> {
    EpollTimeout::try_from(wait::stretched(PATIENCE)?).context("too long to wait")
}

/// Connections of one process.
pub(super) struct Clients {
    /// Which of the processes this is.
    process: usize,
    epoll: Epoll,
    members: Vec<TcpStream>,
}

impl Clients {
    /// No connections yet.
    pub(super) fn new(process: usize) -> Result<Self> {
        Ok(Self {
            process,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            members: Vec::new(),
        })
    }

    /// Connects until there are so many connections.
    pub(super) fn grow(&mut self, to: SocketAddr, count: usize) -> Result<()> {
        let mut events = vec![EpollEvent::empty(); EVENTS];
        let mut connected = self.members.len();
        while connected < count {
            while self.members.len() < count && self.members.len() - connected < PACE {
                let stream = begin(to, self.port(self.members.len())?)?;
                let number = self.members.len() as u64;
                let event = EpollEvent::new(EpollFlags::EPOLLOUT, number);
                self.epoll.add(&stream, event)?;
                self.members.push(stream);
            }
            let ready = wait_for(&self.epoll, &mut events, patience()?)?;
            ensure!(
                ready > 0,
                "only {connected} of {count} are connected to {to}"
            );
            for event in &events[..ready] {
                let stream = &self.members[usize::try_from(event.data())?];
                if let Some(error) = stream.take_error()? {
                    bail!("connection {} to {to}: {error}", connected + 1);
                }
                let mut reads = EpollEvent::new(EpollFlags::EPOLLIN, event.data());
                self.epoll.modify(stream, &mut reads)?;
                connected += 1;
            }
        }
        Ok(())
    }

    /// The port of a connection. Named, as the kernel looks long for one of few free ports.
    fn port(&self, number: usize) -> Result<u16> {
        let port = usize::from(FIRST_PORT) + number * PROCESSES + self.process;
        u16::try_from(port).context("more connections than ports")
    }

    /// Has each connection send payloads of a length so many times, each when the echo of the
    /// last one has come; compares every byte.
    pub(super) fn echo(&mut self, length: usize, times: u8) -> Result<Echoed> {
        let mut waiting: Vec<(u8, usize, Instant)> = Vec::with_capacity(self.members.len());
        for (number, stream) in self.members.iter().enumerate() {
            send(stream, &payload(length, number, 0))?;
            waiting.push((0, 0, Instant::now()));
        }
        let mut events = vec![EpollEvent::empty(); EVENTS];
        let mut buffer = vec![0; AT_ONCE];
        let (mut done, mut sum) = (0, Duration::ZERO);
        let all = self.members.len() * usize::from(times);
        while done < all {
            let ready = wait_for(&self.epoll, &mut events, patience()?)?;
            ensure!(ready > 0, "{} of {all} echoes are lost", all - done);
            for event in &events[..ready] {
                let number = usize::try_from(event.data())?;
                let mut stream = &self.members[number];
                let (round, received, sent) = &mut waiting[number];
                let Some(count) = would_block(stream.read(&mut buffer))? else {
                    continue;
                };
                ensure!(count > 0, "connection {number} has ended");
                let expected = payload(length, number, *round);
                let rest = expected.get(*received..*received + count);
                ensure!(
                    rest == Some(&buffer[..count]),
                    "connection {number}: other bytes came back"
                );
                *received += count;
                if *received < length {
                    continue;
                }
                sum += sent.elapsed();
                done += 1;
                *round += 1;
                if *round < times {
                    (*received, *sent) = (0, Instant::now());
                    send(stream, &payload(length, number, *round))?;
                }
            }
        }
        Ok(Echoed { count: all, sum })
    }
}

fn begin(to: SocketAddr, port: u16) -> Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_reuse_address(true)?;
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    socket.bind(&SocketAddr::new(any, port).into())?;
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => {
            Err(error).with_context(|| format!("cannot connect to {to}"))
        }
        _ => Ok(socket.into()),
    }
}

/// The payload of a connection and a round, other than that of its neighbours.
fn payload(length: usize, number: usize, round: u8) -> Vec<u8> {
    let [low, high, ..] = number.to_le_bytes();
    udp::pattern(length, low.wrapping_add(high).wrapping_add(round))
}

/// Sends a payload, for which a connection that waits for nothing has room.
fn send(mut stream: &TcpStream, payload: &[u8]) -> Result<()> {
    let sent = stream.write(payload).context("cannot send")?;
    ensure!(sent == payload.len(), "there is room for {sent} bytes only");
    Ok(())
}
