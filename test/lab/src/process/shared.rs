//! What the owner of a process, the readers of its output and its undo action share.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::Pid;

/// Where a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// A child and its output so far.
#[derive(Debug)]
pub struct Shared {
    child: Mutex<Child>,
    output: Mutex<Output>,
    changed: Condvar,
}

/// What a child has printed.
#[derive(Debug, Default)]
pub struct Output {
    /// Every line with its stream, in the order of arrival.
    pub lines: Vec<(Stream, String)>,
    /// How many of both streams have not ended.
    pub open_streams: usize,
}

impl Shared {
    /// A child that has printed nothing yet.
    pub fn new(child: Child) -> Self {
        Self {
            child: Mutex::new(child),
            output: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Its output so far.
    pub fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for more output, or for a stream to end, but no longer than `limit`.
    pub fn wait_for_output<'a>(
        &self,
        output: MutexGuard<'a, Output>,
        limit: Duration,
    ) -> MutexGuard<'a, Output> {
        let waited = self.changed.wait_timeout(output, limit);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process id.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child().id()).expect("Linux process ids fit 22 bits"))
    }

    /// How it ended; `None` while it runs.
    pub fn try_reap(&self) -> Result<Option<ExitStatus>> {
        self.child().try_wait().context("cannot wait for a child")
    }

    /// Kills it; a process that has been reaped before stays as it is.
    pub fn kill_and_reap(&self) -> Result<ExitStatus> {
        let mut child = self.child();
        child.kill().context("cannot kill a child")?;
        child.wait().context("cannot reap a child")
    }

    /// Reads lines until the stream ends; invalid UTF-8 is replaced, not lost.
    pub fn read(
        self: &Arc<Self>,
        stream: Stream,
        source: impl Read + Send + 'static,
    ) -> JoinHandle<()> {
        self.output().open_streams += 1;
        let shared = Arc::clone(self);
        thread::spawn(move || {
            let mut source = BufReader::new(source);
            let mut line = Vec::new();
            while let Ok(1..) = source.read_until(b'\n', &mut line) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                shared.output().lines.push((stream, text));
                shared.changed.notify_all();
                line.clear();
            }
            shared.output().open_streams -= 1;
            shared.changed.notify_all();
        })
    }
}
