//! Datagrams that keep coming while something else happens.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};

/// Between two datagrams: more than a busy machine needs for one.
const PAUSE: Duration = Duration::from_micros(50);

/// One datagram after the other, until it is stopped or dropped.
#[derive(Debug)]
pub struct Traffic {
    stop: Arc<AtomicBool>,
    sender: Option<JoinHandle<Result<u64>>>,
}

impl Traffic {
    /// Sends datagrams of `len` bytes from a socket.
    pub fn start(socket: &UdpSocket, to: SocketAddr, len: usize) -> Result<Self> {
        let socket = socket.try_clone()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let payload = vec![7; len];
        let sender = thread::spawn(move || {
            let mut sent = 0;
            while !stopped.load(Ordering::Relaxed) {
                socket.send_to(&payload, to).context("cannot send")?;
                sent += 1;
                thread::sleep(PAUSE);
            }
            Ok(sent)
        });
        Ok(Self {
            stop,
            sender: Some(sender),
        })
    }

    /// Stops; how many there were.
    pub fn stop(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let sender = self.sender.take().context("it was stopped before")?;
        sender
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(sender) = self.sender.take() {
            let _ended = sender.join();
        }
    }
}
