//! Signals, as something to wait for.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Catches a signal from now on.
///
/// # Errors
///
/// If there can be no handler.
pub fn catch(kind: SignalKind) -> Result<Signal> {
    signal(kind).with_context(|| format!("cannot catch signal {}", kind.as_raw_value()))
}

/// What asks a process to end: Ctrl-C and SIGTERM.
#[derive(Debug)]
pub struct Termination {
    interrupt: Signal,
    terminate: Signal,
}

impl Termination {
    /// Caught from the moment it is made.
    ///
    /// # Errors
    ///
    /// As [`catch`].
    pub fn catch() -> Result<Self> {
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
        })
    }

    /// Waits for it.
    pub async fn requested(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
