//! Threads that receive and send.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use xdptun_lab::stop::{self, Stop, Stopped, Woken};

use crate::journal::{Flaw, Journal};
use crate::ledger::is_of_the_network;

/// A thread that ends when dropped.
#[derive(Debug)]
pub struct Worker {
    stop: Option<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts it; the journal gets the error that ends it early.
    pub fn start(
        journal: &Arc<Journal>,
        work: impl FnOnce(&Stopped) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let (stop, stopped) = stop::channel()?;
        let journal = Arc::clone(journal);
        let thread = thread::spawn(move || {
            journal.check(Flaw::Unseen, work(&stopped));
        });
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.thread.take().is_some_and(|t| t.join().is_err()) {
            eprintln!("a thread of the traffic panicked");
        }
    }
}

/// Receives until stopped. Errors that a disturbed network explains are no error.
pub fn receive(
    socket: &UdpSocket,
    stopped: &Stopped,
    mut take: impl FnMut(&[u8], SocketAddr),
) -> Result<()> {
    socket.set_nonblocking(true)?;
    let mut buffer = vec![0; 1 << 16];
    while stopped.wait_readable(socket)? == Woken::Readable {
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) => take(&buffer[..length], from),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if is_of_the_network(&error) => {}
            Err(error) => return Err(error).context("cannot receive"),
        }
    }
    Ok(())
}
