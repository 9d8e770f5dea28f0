//! Signals as futures.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{Context as _, Result};

/// Catches a signal from now on.
///
/// # Errors
///
/// If the handler cannot be installed.
pub fn catch(kind: SignalKind) -> Result<Signal> {
    signal(kind).with_context(|| format!("cannot catch signal {}", kind.as_raw_value()))
}

/// The signals that ask a process to end: SIGINT (Ctrl-C) and SIGTERM.
#[derive(Debug)]
pub struct Termination {
    interrupt: Signal,
    terminate: Signal,
}

impl Termination {
    /// Catches them from now on.
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

    /// Waits for the next one.
    pub async fn requested(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
