//! Real TCP connections, which xdptun must leave alone.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use anyhow::{Context, Result, ensure};
use xdptun_lab::{Netns, sockopt, udp, wait};

use crate::LIMIT;

/// Enough for many windows and for the kernel to use large segments.
const BYTES: usize = 1 << 20;

/// Connects from one namespace to a listener in another, sends a payload each
/// way at the same time, closes, and compares every byte.
pub fn exchange(from: &Netns, local: SocketAddr, to: &Netns, remote: SocketAddr) -> Result<()> {
    exchange_through(from, local, remote, to, remote)
}

/// The same by an address, `remote`, that leads to that of the listener, `service`.
pub fn exchange_through(
    from: &Netns,
    local: SocketAddr,
    remote: SocketAddr,
    to: &Netns,
    service: SocketAddr,
) -> Result<()> {
    let listener = to
        .enter(|| TcpListener::bind(service))?
        .with_context(|| format!("cannot listen on {service}"))?;
    let near = connect(from, local, remote)?;
    // The handshake is over, so this does not block.
    let (far, _) = listener.accept()?;
    exchange_over(&near, &far)
}

/// Connects from one address to another.
pub fn connect(from: &Netns, local: SocketAddr, remote: SocketAddr) -> Result<TcpStream> {
    let connect = || -> Result<TcpStream> {
        let domain = socket2::Domain::for_address(remote);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        socket.bind(&local.into())?;
        socket.connect_timeout(&remote.into(), LIMIT)?;
        Ok(socket.into())
    };
    from.enter(connect)?
        .with_context(|| format!("cannot connect to {remote}"))
}

/// Waits until the other end has acknowledged everything that these have sent: it owes no delayed
/// acknowledgement then.
pub fn wait_acknowledged(ends: &[&TcpStream]) -> Result<()> {
    wait::until(LIMIT, "the acknowledgements", || {
        ends.iter().all(|end| sockopt::unacknowledged(end) == 0)
    })
}

/// Sends a payload each way at the same time, closes, and compares every byte.
pub fn exchange_over(near: &TcpStream, far: &TcpStream) -> Result<()> {
    let remote = near.peer_addr()?;
    thread::scope(|scope| {
        let far = scope.spawn(|| talk(far, 1, 2));
        talk(near, 2, 1).with_context(|| format!("from {remote}"))?;
        far.join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .with_context(|| format!("to {remote}"))
    })
}

/// Sends bytes by one end of a connection, and compares them at the other.
pub fn send_and_receive(mut from: &TcpStream, mut to: &TcpStream, bytes: &[u8]) -> Result<()> {
    let limit = wait::stretched(LIMIT)?;
    to.set_read_timeout(Some(limit))?;
    from.write_all(bytes).context("cannot send")?;
    let mut received = vec![0; bytes.len()];
    to.read_exact(&mut received).context("cannot receive")?;
    ensure!(received == bytes, "other bytes arrived");
    Ok(())
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
