//! There and back, one datagram at a time.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::pin::{End, pin};

/// How long an answer may take before its datagram counts as lost.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long the first datagram of a flow may take before it counts as lost.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);

/// Sends a datagram to an echo and waits for it, `count` times; how long each
/// took.
///
/// Each end has a CPU of its own and asks for datagrams without rest: how long a
/// sleeping CPU takes to wake is many times what a program costs, and differs
/// from one moment to the next.
pub fn round_trips(
    client: &UdpSocket,
    server: &UdpSocket,
    length: usize,
    count: usize,
) -> Result<Vec<Duration>> {
    client.set_nonblocking(true)?;
    server.set_nonblocking(true)?;
    let asking = AtomicBool::new(true);
    thread::scope(|scope| {
        let echo = scope.spawn(|| echo(server, &asking));
        let asker = scope.spawn(|| ask(client, length, count));
        let trips = asker.join().unwrap_or_else(|panic| resume_unwind(panic));
        asking.store(false, Ordering::Relaxed);
        echo.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        client.set_nonblocking(false)?;
        server.set_nonblocking(false)?;
        trips
    })
}

fn ask(socket: &UdpSocket, length: usize, count: usize) -> Result<Vec<Duration>> {
    pin(End::Sender)?;
    let (payload, mut answer) = (vec![0x5a; length], vec![0; length + 1]);
    // The first opens the flow, and counts nowhere.
    (0..=count)
        .map(|number| {
            let start = Instant::now();
            socket.send(&payload).context("cannot send")?;
            loop {
                match socket.recv(&mut answer) {
                    Ok(_) => return Ok(start.elapsed()),
                    Err(error) if is_none_there(&error) && start.elapsed() < PATIENCE => {}
                    Err(error) => {
                        return Err(error)
                            .with_context(|| format!("no answer to datagram {number}"));
                    }
                }
            }
        })
        .skip(1)
        .collect()
}

fn echo(socket: &UdpSocket, asking: &AtomicBool) -> Result<()> {
    pin(End::Receiver)?;
    let mut buffer = [0; 2048];
    while asking.load(Ordering::Relaxed) {
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) => {
                socket
                    .send_to(&buffer[..length], from)
                    .context("cannot answer")?;
            }
            Err(error) if is_none_there(&error) => {}
            Err(error) => return Err(error).context("cannot receive"),
        }
    }
    Ok(())
}

/// How long the first datagram of a new flow takes to arrive; `None` if it is
/// lost.
pub fn first_delivery(sender: &UdpSocket, receiver: &UdpSocket) -> Result<Option<Duration>> {
    receiver.set_read_timeout(Some(FIRST_PATIENCE))?;
    let port = sender.local_addr()?.port();
    let payload = [b"first from ".as_slice(), &port.to_be_bytes()].concat();
    let start = Instant::now();
    sender.send(&payload).context("cannot send")?;
    let mut buffer = [0; 2048];
    loop {
        match receiver.recv(&mut buffer) {
            Ok(length) if buffer[..length] == payload => return Ok(Some(start.elapsed())),
            // One that was late.
            Ok(_) => {}
            Err(error) if is_none_there(&error) => return Ok(None),
            Err(error) => return Err(error).context("cannot receive"),
        }
    }
}

fn is_none_there(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        (client, server)
    }

    #[test]
    fn every_exchange_has_its_time() {
        let (client, server) = pair();
        let trips = round_trips(&client, &server, 64, 20).unwrap();
        assert_eq!(trips.len(), 20);
        assert!(trips.iter().all(|trip| !trip.is_zero()));
    }

    #[test]
    fn a_first_datagram_is_told_from_older_ones() {
        let (client, server) = pair();
        client.send(b"older").unwrap();
        assert!(first_delivery(&client, &server).unwrap().is_some());
    }
}
