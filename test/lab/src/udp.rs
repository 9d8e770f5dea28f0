//! UDP sockets, echo servers and sinks inside namespaces.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use socket2::SockRef;

use crate::netns::Netns;
use crate::sockopt;
use crate::stop::{self, Stop, Stopped, Woken};
use crate::wait;

/// The largest UDP payload.
const DATAGRAM_ROOM: usize = 65_535;

/// Room for bursts at a receiver, so that the socket is not what loses them.
const RECEIVE_BUFFER: usize = 16 << 20;

/// Binds a socket in a namespace; port 0 takes a free one.
pub fn bind(netns: &Netns, address: impl Into<SocketAddr>) -> Result<UdpSocket> {
    let address = address.into();
    netns
        .enter(|| UdpSocket::bind(address))?
        .with_context(|| format!("{}: cannot bind UDP {address}", netns.name()))
}

/// Makes a socket send with UDP checksum 0, which IPv4 allows (RFC 768).
pub fn without_checksum(socket: &UdpSocket) -> Result<()> {
    sockopt::set_int(socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1)
}

/// Receives one datagram with its sender.
pub fn receive(socket: &UdpSocket, limit: Duration) -> Result<(Vec<u8>, SocketAddr)> {
    let limit = wait::stretched(limit)?;
    let mut buffer = vec![0; DATAGRAM_ROOM];
    socket.set_read_timeout(Some(limit))?;
    match socket.recv_from(&mut buffer) {
        Ok((length, sender)) => {
            buffer.truncate(length);
            Ok((buffer, sender))
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            bail!("{}: no datagram within {limit:?}", socket.local_addr()?)
        }
        Err(error) => Err(error).context("cannot receive"),
    }
}

/// Sends `payload` to an echo server and checks that the same bytes come back
/// from there.
pub fn exchange(
    socket: &UdpSocket,
    to: SocketAddr,
    payload: &[u8],
    limit: Duration,
) -> Result<Duration> {
    let start = Instant::now();
    socket
        .send_to(payload, to)
        .with_context(|| format!("cannot send {} bytes to {to}", payload.len()))?;
    let (answer, sender) = receive(socket, limit)
        .with_context(|| format!("no echo of {} bytes from {to}", payload.len()))?;
    ensure!(
        sender == to,
        "the answer came from {sender} instead of {to}"
    );
    ensure!(
        answer == payload,
        "{to} echoed {} bytes that differ from the {} sent",
        answer.len(),
        payload.len()
    );
    Ok(start.elapsed())
}

/// A payload that differs with `seed` and in every position.
pub fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|index| {
            let [low, high, ..] = index.to_le_bytes();
            low.wrapping_mul(31).wrapping_add(high).wrapping_add(seed)
        })
        .collect()
}

/// A server thread; it ends when dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    counts: Arc<Counts>,
    stop: Option<Stop>,
    thread: Option<JoinHandle<Result<()>>>,
}

/// Counts of the datagrams that a server received.
#[derive(Debug, Default)]
struct Counts {
    datagrams: AtomicU64,
    bytes: AtomicU64,
}

impl Server {
    /// Sends every datagram back to where it came from.
    pub fn echo(netns: &Netns, address: impl Into<SocketAddr>) -> Result<Self> {
        Self::start(netns, address.into(), |socket, datagram, sender| {
            socket
                .send_to(datagram, sender)
                .with_context(|| format!("cannot echo {} bytes to {sender}", datagram.len()))?;
            Ok(())
        })
    }

    /// Only counts what arrives.
    pub fn sink(netns: &Netns, address: impl Into<SocketAddr>) -> Result<Self> {
        Self::start(netns, address.into(), |_, _, _| Ok(()))
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Datagrams received so far.
    pub fn datagrams(&self) -> u64 {
        self.counts.datagrams.load(Ordering::Relaxed)
    }

    /// Payload bytes received so far.
    pub fn bytes(&self) -> u64 {
        self.counts.bytes.load(Ordering::Relaxed)
    }

    /// Ends the server; reports what went wrong in its thread.
    pub fn stop(mut self) -> Result<()> {
        self.finish()
    }

    fn start(
        netns: &Netns,
        address: SocketAddr,
        answer: fn(&UdpSocket, &[u8], SocketAddr) -> Result<()>,
    ) -> Result<Self> {
        let socket = bind(netns, address)?;
        SockRef::from(&socket)
            .set_recv_buffer_size(RECEIVE_BUFFER)
            .context("cannot enlarge the receive buffer")?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let counts = Arc::new(Counts::default());
        let (stop, stopped) = stop::channel()?;
        let thread = {
            let counts = Arc::clone(&counts);
            thread::spawn(move || serve(&socket, &stopped, &counts, answer))
        };
        Ok(Self {
            address,
            counts,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    fn finish(&mut self) -> Result<()> {
        drop(self.stop.take());
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            eprintln!("UDP server on {}: {error:#}", self.address);
        }
    }
}

fn serve(
    socket: &UdpSocket,
    stopped: &Stopped,
    counts: &Counts,
    answer: fn(&UdpSocket, &[u8], SocketAddr) -> Result<()>,
) -> Result<()> {
    let mut buffer = vec![0; DATAGRAM_ROOM];
    while stopped.wait_readable(socket)? == Woken::Readable {
        let (length, sender) = match socket.recv_from(&mut buffer) {
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            // An ICMP error about an earlier answer; the peer is gone.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
            Err(error) => return Err(error).context("cannot receive"),
        };
        counts.datagrams.fetch_add(1, Ordering::Relaxed);
        counts.bytes.fetch_add(length as u64, Ordering::Relaxed);
        answer(socket, &buffer[..length], sender)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_differ_by_seed_and_position() {
        assert_ne!(pattern(64, 1), pattern(64, 2));
        let long = pattern(1400, 0);
        assert_ne!(long[..256], long[256..512]);
    }
}
