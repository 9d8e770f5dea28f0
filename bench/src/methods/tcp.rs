//! Code shared by the methods that measure TCP connections.

use std::env::current_exe;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use xdptun_lab::Netns;
use xdptun_lab::crowd::Program;

use crate::harness::Extent;
use crate::load::pin::{End, pin};

/// Megabytes a second of one connection.
pub const BULK: &str = "MB/s";

/// How fast many connections are opened.
pub const RATE: &str = "connections/s";

/// Where connections begin and end.
#[derive(Debug, Clone, Copy)]
pub struct Ends<'a> {
    /// The host that calls.
    pub client: &'a Netns,
    /// The address that it calls.
    pub entry: SocketAddr,
    /// The host that is called.
    pub server: &'a Netns,
    /// The address on which the server listens.
    pub service: SocketAddr,
}

impl Ends<'_> {
    /// A connection of the client.
    pub fn connect(&self) -> Result<TcpStream> {
        let to = self.entry;
        let stream = self.client.enter(|| TcpStream::connect(to))?;
        let stream = stream.with_context(|| format!("cannot connect to {to}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(stream)
    }

    /// A socket of the server that takes connections.
    pub fn listen(&self) -> Result<TcpListener> {
        let at = self.service;
        let listener = self.server.enter(|| TcpListener::bind(at))?;
        listener.with_context(|| format!("cannot listen on {at}"))
    }

    /// Megabytes a second of one connection to a server that only reads.
    pub fn bulk(&self, extent: Extent) -> Result<f64> {
        let [near, far] = self.connected()?;
        carry(near, far, extent)
    }

    /// The same from the server to a client that only reads.
    pub fn bulk_back(&self, extent: Extent) -> Result<f64> {
        let [near, far] = self.connected()?;
        carry(far, near, extent)
    }

    /// Both ends of a connection.
    fn connected(&self) -> Result<[TcpStream; 2]> {
        let listener = self.listen()?;
        let near = self.connect()?;
        let (far, _) = listener.accept().context("cannot accept")?;
        Ok([near, far])
    }
}

/// Megabytes a second from one end of a connection to the other.
fn carry(mut from: TcpStream, mut to: TcpStream, extent: Extent) -> Result<f64> {
    let time = Duration::from_millis(extent.pick(1500, 100));
    let reader = thread::spawn(move || -> Result<(u64, Duration)> {
        let mut buffer = vec![0; 1 << 18];
        let (began, mut received) = (Instant::now(), 0);
        loop {
            match to.read(&mut buffer)? {
                0 => return Ok((received, began.elapsed())),
                length => received += length as u64,
            }
        }
    });
    let payload = vec![7; 1 << 17];
    let began = Instant::now();
    while began.elapsed() < time {
        from.write_all(&payload)?;
    }
    drop(from);
    let read = reader.join();
    let (received, took) = read.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    Ok(received as f64 / 1e6 / took.as_secs_f64())
}

/// The program for the processes of a crowd: this one.
pub fn workers() -> Result<Program> {
    Ok(Program {
        path: current_exe()?,
        arguments: vec!["crowd".to_owned()],
    })
}

/// Runs client and server of a measurement on one CPU: how long a sleeping one takes to wake is
/// many times what a path costs, and differs from one moment to the next.
pub fn on_one_cpu<T: Send>(measure: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let measured = scope.spawn(|| {
            pin(End::Sender)?;
            measure()
        });
        let measured = measured.join();
        measured.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
