//! Real TCP connections, which xdptun must leave alone.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use anyhow::{Context, Result, ensure};
use xdptun_lab::{Netns, udp, wait};

use crate::LIMIT;

/// Enough for many windows and for the kernel to use large segments.
const BYTES: usize = 1 << 20;

/// Connects from one namespace to a listener in another, sends a payload each
/// way at the same time, closes, and compares every byte.
pub fn exchange(from: &Netns, local: SocketAddr, to: &Netns, remote: SocketAddr) -> Result<()> {
    let listener = to
        .enter(|| TcpListener::bind(remote))?
        .with_context(|| format!("cannot listen on {remote}"))?;
    let connect = || -> Result<TcpStream> {
        let domain = socket2::Domain::for_address(remote);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        socket.bind(&local.into())?;
        socket.connect_timeout(&remote.into(), LIMIT)?;
        Ok(socket.into())
    };
    let near = from
        .enter(connect)?
        .with_context(|| format!("cannot connect to {remote}"))?;
    // The handshake is over, so this does not block.
    let (far, _) = listener.accept()?;
    thread::scope(|scope| {
        let far = scope.spawn(|| talk(&far, 1, 2));
        talk(&near, 2, 1).with_context(|| format!("from {remote}"))?;
        far.join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .with_context(|| format!("to {remote}"))
    })
}

fn talk(stream: &TcpStream, own: u8, other: u8) -> Result<()> {
    let limit = wait::stretched(LIMIT)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    let (mut input, mut output) = (stream, stream);
    let payload = udp::pattern(BYTES, own);
    let mut received = Vec::new();
    thread::scope(|scope| {
        let writer = scope.spawn(move || -> Result<()> {
            output.write_all(&payload).context("cannot send")?;
            Ok(output.shutdown(Shutdown::Write)?)
        });
        input.read_to_end(&mut received).context("cannot receive")?;
        writer
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    ensure!(
        received == udp::pattern(BYTES, other),
        "{} bytes arrived that differ from the {BYTES} sent",
        received.len()
    );
    Ok(())
}
