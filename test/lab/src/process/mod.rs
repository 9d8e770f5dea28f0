//! Long-running child processes, their output captured line by line.

mod shared;

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cleanup::{Guard, guarded};
use crate::command::line_of;
use crate::wait;
use shared::Shared;
pub use shared::Stream;

/// How long an ended process may take to be reaped.
const REAP_LIMIT: Duration = Duration::from_secs(10);

/// How long a process may take to obey SIGSTOP.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A child process; killed when dropped, and when a signal ends the run.
///
/// When the owner fails (an error through [`Process::with_output`] or a
/// panicking test) everything the process said is shown.
#[derive(Debug)]
pub struct Process {
    title: String,
    pid: Pid,
    shared: Arc<Shared>,
    readers: Vec<JoinHandle<()>>,
    _guard: Guard,
}

/// A process that stands still, until this is dropped or [`Suspended::resume`]d.
#[derive(Debug)]
#[must_use = "dropping it lets the process go on"]
pub struct Suspended<'a>(&'a Process);

impl Suspended<'_> {
    /// Lets the process go on.
    pub fn resume(self) {}
}

impl Drop for Suspended<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.signal(Signal::SIGCONT) {
            eprintln!("{error:#}");
        }
    }
}

/// A handle to end a process from an undo action, without its output.
#[derive(Debug, Clone)]
pub struct Ender(Arc<Shared>);

impl Ender {
    /// Ends the process with SIGINT, or with SIGKILL when it does not obey in
    /// time. Returns how it ended, which may be long ago.
    pub fn end(&self, limit: Duration) -> Result<ExitStatus> {
        if let Some(status) = self.0.try_reap()? {
            return Ok(status);
        }
        // Not reaped, so the id still belongs to the process.
        kill(self.0.pid(), Signal::SIGINT).context("cannot send SIGINT")?;
        let obeyed = wait::until_some(limit, "SIGINT to take effect", || self.0.try_reap());
        obeyed.or_else(|_| self.0.kill_and_reap())
    }
}

impl Process {
    /// Starts a command with both output streams captured and no input.
    ///
    /// It gets its own process group, so that Ctrl-C on a terminal reaches only
    /// the owner, which then ends it in the right order.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let title = line_of(command);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let ((mut child_streams, shared), guard) = guarded(|| {
            let mut child = command.spawn().with_context(|| {
                format!("cannot start `{title}`; `cargo xtask setup` installs what is missing")
            })?;
            let streams = (child.stdout.take(), child.stderr.take());
            let shared = Arc::new(Shared::new(child));
            let undo = {
                let shared = Arc::clone(&shared);
                move || {
                    if let Err(error) = shared.kill_and_reap() {
                        eprintln!("{error:#}");
                    }
                }
            };
            Ok(((streams, shared), undo))
        })?;
        let mut readers = Vec::new();
        if let Some(stdout) = child_streams.0.take() {
            readers.push(shared.read(Stream::Out, stdout));
        }
        if let Some(stderr) = child_streams.1.take() {
            readers.push(shared.read(Stream::Err, stderr));
        }
        let pid = shared.pid();
        Ok(Self {
            title,
            pid,
            shared,
            readers,
            _guard: guard,
        })
    }

    /// The process id.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Its resident memory.
    pub fn resident_kib(&self) -> Result<u64> {
        let text = self.status("VmRSS")?;
        let number = text.split_whitespace().next().unwrap_or_default();
        number
            .parse()
            .with_context(|| format!("`{}`: VmRSS is {text:?}", self.title))
    }

    /// One field of its `/proc/PID/status`.
    fn status(&self, field: &str) -> Result<String> {
        let path = format!("/proc/{}/status", self.pid);
        let status = fs::read_to_string(&path).with_context(|| path.clone())?;
        let mut fields = status.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = fields
            .find(|(name, _)| *name == field)
            .with_context(|| format!("{path} tells no {field}"))?;
        Ok(value.trim().to_owned())
    }

    /// A handle for an undo action.
    pub fn ender(&self) -> Ender {
        Ender(Arc::clone(&self.shared))
    }

    /// All lines of both streams so far, in the order they arrived.
    pub fn output(&self) -> Vec<(Stream, String)> {
        self.shared.output().lines.clone()
    }

    /// The lines of standard output so far.
    pub fn stdout(&self) -> Vec<String> {
        self.lines(Stream::Out)
    }

    /// The lines of standard error so far.
    pub fn stderr(&self) -> Vec<String> {
        self.lines(Stream::Err)
    }

    /// Waits for a line of either stream that starts with `prefix`.
    ///
    /// Lines that came earlier count. Fails as soon as both streams ended.
    pub fn wait_for_line(&self, prefix: &str, limit: Duration) -> Result<String> {
        let deadline = Instant::now() + wait::stretched(limit)?;
        let mut output = self.shared.output();
        let mut seen = 0;
        loop {
            let fresh = &output.lines[seen..];
            if let Some((_, line)) = fresh.iter().find(|(_, line)| line.starts_with(prefix)) {
                return Ok(line.clone());
            }
            seen = output.lines.len();
            let ended = output.open_streams == 0;
            let left = deadline.saturating_duration_since(Instant::now());
            if ended || left.is_zero() {
                let reason = if ended { "it ended" } else { "time is up" };
                drop(output);
                return self.with_output(Err(anyhow!(
                    "`{}` did not print a line `{prefix}...`: {reason}",
                    self.title
                )));
            }
            output = self.shared.wait_for_output(output, left);
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        if self.shared.try_reap()?.is_some() {
            bail!("`{}` ended before {signal}", self.title);
        }
        kill(self.pid, signal).with_context(|| format!("cannot send {signal} to `{}`", self.title))
    }

    /// Stops the process with SIGSTOP and waits until it stands still. To its
    /// clocks it is as if the machine had been paused, and only for it.
    pub fn suspend(&self) -> Result<Suspended<'_>> {
        self.signal(Signal::SIGSTOP)?;
        let suspended = Suspended(self);
        wait::until_some(STOP_LIMIT, "SIGSTOP to take effect", || {
            Ok(self.status("State")?.starts_with('T').then_some(()))
        })?;
        Ok(suspended)
    }

    /// Whether the process has not ended.
    pub fn is_running(&self) -> Result<bool> {
        Ok(self.shared.try_reap()?.is_none())
    }

    /// Waits for the end of the process and of its output.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let what = format!("the end of `{}`", self.title);
        let status = wait::until_some(limit, &what, || self.shared.try_reap());
        let status = self.with_output(status)?;
        for reader in self.readers.drain(..) {
            if reader.join().is_err() {
                bail!("`{}`: the reader of its output panicked", self.title);
            }
        }
        Ok(status)
    }

    /// Waits for the end and returns standard output; anything but success is
    /// an error with the output.
    pub fn wait_success(mut self, limit: Duration) -> Result<Vec<String>> {
        let status = self.wait(limit)?;
        if status.success() {
            return Ok(self.stdout());
        }
        self.with_output(Err(anyhow!("`{}`: {status}", self.title)))
    }

    /// Kills the process, as a crash or the out-of-memory killer would.
    pub fn kill(mut self) -> Result<()> {
        self.signal(Signal::SIGKILL)?;
        let status = self.wait(REAP_LIMIT)?;
        match status.signal() {
            Some(9) => Ok(()),
            _ => bail!("`{}` ended by itself: {status}", self.title),
        }
    }

    /// Adds all output of the process to an error, after its cause.
    pub fn with_output<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| anyhow!("{error:#}\n{}", self.transcript()))
    }

    fn lines(&self, stream: Stream) -> Vec<String> {
        let output = self.shared.output();
        let lines = output.lines.iter().filter(|(from, _)| *from == stream);
        lines.map(|(_, line)| line.clone()).collect()
    }

    fn transcript(&self) -> String {
        let output = self.shared.output();
        let mut text = format!("output of `{}`:", self.title);
        if output.lines.is_empty() {
            text += " none";
        }
        for (_, line) in &output.lines {
            text += "\n    | ";
            text += line;
        }
        text
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.transcript());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        Process::spawn(Command::new("sh").args(["-c", script])).unwrap()
    }

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn finds_a_line_on_either_stream() {
        let process = shell("echo one; echo two >&2; exec sleep 60");
        assert_eq!(process.wait_for_line("tw", LIMIT).unwrap(), "two");
        assert_eq!(process.wait_for_line("on", LIMIT).unwrap(), "one");
        process.kill().unwrap();
    }

    #[test]
    fn an_early_end_is_reported_with_the_output() {
        let process = shell("echo oops");
        let error = process.wait_for_line("ready:", LIMIT).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("oops"), "{text}");
        assert!(text.contains("it ended"), "{text}");
    }

    #[test]
    fn a_failure_is_not_a_success() {
        let error = shell("exit 7").wait_success(LIMIT).unwrap_err();
        assert!(format!("{error:#}").contains("exit status: 7"));
    }

    #[test]
    fn drop_kills() {
        let process = shell("exec sleep 60");
        let pid = process.pid();
        drop(process);
        assert!(kill(pid, None).is_err(), "the process still exists");
    }

    #[test]
    fn a_signal_after_the_end_is_an_error() {
        let mut process = shell("exit 0");
        process.wait(LIMIT).unwrap();
        assert!(process.signal(Signal::SIGINT).is_err());
    }
}
