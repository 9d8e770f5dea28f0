//! Signals as futures.

use std::fs;
use std::future::pending;

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

/// Waits for a signal, for ever if it is not caught.
pub async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => pending().await,
    }
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

/// The signal that the terminal is gone (SIGHUP). `None` if this process ignores it since its start, as
/// under `nohup`: it goes on then.
///
/// # Errors
///
/// As [`catch`].
pub fn catch_hangup() -> Result<Option<Signal>> {
    let status =
        fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    match ignores(&status, SignalKind::hangup()) {
        true => Ok(None),
        false => catch(SignalKind::hangup()).map(Some),
    }
}

/// Whether a process of this status (proc(5)) ignores a signal: a bit for each, the first for
/// number 1.
fn ignores(status: &str, kind: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (kind.as_raw_value() - 1) & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_bits() {
        let status = "Name:\txdptun\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001002\n";
        assert!(ignores(status, SignalKind::interrupt()));
        assert!(ignores(status, SignalKind::pipe()));
        assert!(!ignores(status, SignalKind::hangup()));
        assert!(!ignores("Name:\txdptun\n", SignalKind::hangup()));
    }
}
