//! The program under test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::cleanup::{Guard, guarded};
use crate::command::run;
use crate::link;
use crate::netns::Netns;
use crate::process::{Ender, Process};
use crate::{wait, workspace};

/// Loading passes the verifier, which takes its time on a slow machine.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// A clean detach closes the flows and removes programs and pins.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// The binary: `XDPTUN_BIN`, or the release build of this workspace.
pub fn binary() -> Result<PathBuf> {
    let path = match std::env::var_os("XDPTUN_BIN") {
        Some(path) => PathBuf::from(path),
        None => workspace::target_dir().join("release/xdptun"),
    };
    ensure!(
        path.is_file(),
        "{}: no such file; `cargo build --release` makes it, XDPTUN_BIN names another one",
        path.display()
    );
    Ok(path)
}

/// Starts `xdptun` with any arguments in a namespace.
pub fn spawn(netns: &Netns, args: &[&str]) -> Result<Process> {
    Process::spawn(netns.command(binary()?).args(args))
}

/// Runs `xdptun` with any arguments in a namespace to its successful end.
pub fn run_in(netns: &Netns, args: &[&str]) -> Result<String> {
    run(netns.command(binary()?).args(args))
}

/// The output of `xdptun status --json` in a namespace.
pub fn status(netns: &Netns) -> Result<Value> {
    let text = run_in(netns, &["status", "--json"])?;
    serde_json::from_str(&text).with_context(|| format!("`xdptun status --json` printed {text:?}"))
}

/// Where `attach` pins what outlives it, for all interfaces of the group that has this one;
/// gone after a clean end. In it are the links of each interface, in a directory that is called
/// as its index.
pub fn pin_dir(netns: &Netns, iface: &str) -> Result<PathBuf> {
    let index = link::index(netns, iface)?.to_string();
    let groups = groups_of(netns, "tunnel")?;
    let found = group_of(&groups, &index);
    Ok(found.unwrap_or_else(|| groups.join(index)))
}

/// Where the groups of a function are pinned.
fn groups_of(netns: &Netns, function: &str) -> Result<PathBuf> {
    let namespace = netns.cookie()?;
    Ok(PathBuf::from(format!(
        "/sys/fs/bpf/xdptun/{namespace}/{function}"
    )))
}

/// The group below this directory that has the interface of this index.
fn group_of(groups: &Path, index: &str) -> Option<PathBuf> {
    let groups = fs::read_dir(groups).ok()?;
    let mut groups = groups.filter_map(|group| Some(group.ok()?.path()));
    groups.find(|group| group.join(index).exists())
}

/// A running `xdptun attach`.
///
/// Dropped without [`Attached::stop`] it is still ended cleanly, because what
/// it attached and pinned outlives a killed process.
#[derive(Debug)]
pub struct Attached {
    netns: Netns,
    iface: String,
    /// Before `process`, so that it ends in peace before it would be killed.
    remains: Remains,
    process: Process,
}

/// The programs and pins that a killed `xdptun attach` left; dropping this detaches.
#[derive(Debug)]
pub struct Remains {
    _guard: Guard,
}

impl Attached {
    /// Attaches to `iface` and returns when it is ready.
    pub fn start(netns: &Netns, iface: &str, args: &[&str]) -> Result<Self> {
        let mut command = netns.command(binary()?);
        command.args(["attach", "--iface", iface]).args(args);
        Self::by(netns, iface, &mut command)
    }

    /// Attaches to several interfaces in one process, a group, and returns when all are ready.
    pub fn start_group(netns: &Netns, ifaces: &[&str], args: &[&str]) -> Result<Self> {
        let (first, others) = ifaces.split_first().context("a group has an interface")?;
        let others: Vec<&str> = others.iter().flat_map(|name| ["--iface", name]).collect();
        let attached = Self::start(netns, first, &[&others, args].concat())?;
        attached.wait_all_ready(ifaces)?;
        Ok(attached)
    }

    /// Waits until it has said of each of these interfaces that it is ready.
    pub fn wait_all_ready(&self, ifaces: &[&str]) -> Result<()> {
        for iface in ifaces {
            let ready = format!("ready: {iface} ");
            self.process.wait_for_line(&ready, READY_LIMIT)?;
        }
        Ok(())
    }

    /// Runs a command that attaches the tunnel to `iface`, and returns when that is ready.
    pub fn by(netns: &Netns, iface: &str, command: &mut Command) -> Result<Self> {
        Self::to_function(netns, iface, command, "tunnel")
    }

    /// Forwards packets that come in by `iface`, and returns when it is ready.
    pub fn forward(netns: &Netns, iface: &str, args: &[&str]) -> Result<Self> {
        let mut command = netns.command(binary()?);
        command.args(["forward", "--iface", iface]).args(args);
        Self::forwarding(netns, iface, &mut command)
    }

    /// Runs a command that forwards packets that come in by `iface`, or translates, and returns
    /// when it is ready.
    pub fn forwarding(netns: &Netns, iface: &str, command: &mut Command) -> Result<Self> {
        Self::to_function(netns, iface, command, "gateway")
    }

    /// Searches packets of `iface` by a rule, and returns when it is ready.
    pub fn policy(netns: &Netns, iface: &str, args: &[&str]) -> Result<Self> {
        let mut command = netns.command(binary()?);
        command.args(["policy", "--iface", iface]).args(args);
        Self::searching(netns, iface, &mut command)
    }

    /// Runs a command that searches packets of `iface`, and returns when it is ready.
    pub fn searching(netns: &Netns, iface: &str, command: &mut Command) -> Result<Self> {
        Self::to_function(netns, iface, command, "policy")
    }

    /// Translates for inside hosts what leaves by `iface`, and returns when it is ready.
    pub fn nat(netns: &Netns, iface: &str, args: &[&str]) -> Result<Self> {
        let mut command = netns.command(binary()?);
        command.args(["nat", "--iface", iface]).args(args);
        Self::forwarding(netns, iface, &mut command)
    }

    /// The device that NAT64 makes.
    pub const NAT64: &'static str = "xdptun64";

    /// Lets IPv6-only clients reach IPv4, and returns when it is ready.
    pub fn nat64(netns: &Netns, args: &[&str]) -> Result<Self> {
        let mut command = netns.command(binary()?);
        Self::translating(netns, command.arg("nat64").args(args))
    }

    /// Runs a command that lets IPv6-only clients reach IPv4, and returns when it is ready.
    pub fn translating(netns: &Netns, command: &mut Command) -> Result<Self> {
        let groups = groups_of(netns, "nat64")?;
        let is_there = move || fs::read_dir(&groups).is_ok_and(|mut all| all.next().is_some());
        Self::running(netns, Self::NAT64, command, is_there)
    }

    fn to_function(
        netns: &Netns,
        iface: &str,
        command: &mut Command,
        function: &str,
    ) -> Result<Self> {
        let index = link::index(netns, iface)?.to_string();
        let groups = groups_of(netns, function)?;
        let is_there = move || group_of(&groups, &index).is_some();
        Self::running(netns, iface, command, is_there)
    }

    /// Runs a command that works on `iface`, and returns when it is ready. As long as something
    /// `is_there`, it is detached in the end.
    fn running(
        netns: &Netns,
        iface: &str,
        command: &mut Command,
        is_there: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<Self> {
        let binary = binary()?;
        let process = Process::spawn(command)?;
        let ((), guard) = guarded(|| {
            let ender = process.ender();
            let mut detach = netns.command(&binary);
            detach.args(["detach", "--iface", iface]);
            Ok(((), move || {
                if let Err(error) = end(&ender, is_there, detach) {
                    eprintln!("cannot end xdptun: {error:#}");
                }
            }))
        })?;
        let attached = Self {
            netns: netns.clone(),
            iface: iface.to_owned(),
            remains: Remains { _guard: guard },
            process,
        };
        attached
            .process
            .wait_for_line(&format!("ready: {iface} "), READY_LIMIT)?;
        Ok(attached)
    }

    /// The process, to look at its output or send it signals.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The interface it is attached to.
    pub fn iface(&self) -> &str {
        &self.iface
    }

    /// The namespace it runs in.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// Its standard output: the summary of the attachment.
    pub fn summary(&self) -> Vec<String> {
        self.process.stdout()
    }

    /// Waits until it has said so many times that an interface is ready.
    pub fn wait_ready(&self, iface: &str, times: usize, limit: Duration) -> Result<()> {
        let ready = format!("ready: {iface} ");
        wait::until(limit, &ready, || {
            let summary = self.summary();
            summary
                .iter()
                .filter(|line| line.starts_with(&ready))
                .count()
                == times
        })
    }

    /// Adds its counters, flows and output to an error.
    pub fn explain<T>(&self, result: Result<T>) -> Result<T> {
        let result = result.map_err(|error| match status(&self.netns) {
            Ok(status) => anyhow!("{error:#}\n{status:#}"),
            Err(no_status) => anyhow!("{error:#}\n{no_status:#}"),
        });
        self.process.with_output(result)
    }

    /// Ends it as Ctrl-C does and requires that it reports success.
    pub fn stop(mut self) -> Result<()> {
        self.process.signal(Signal::SIGINT)?;
        let status = self.process.wait(STOP_LIMIT)?;
        let verdict = if status.success() {
            Ok(())
        } else {
            Err(anyhow!("xdptun ended with {status} after SIGINT"))
        };
        self.process.with_output(verdict)
    }

    /// Kills it without a chance to clean up, as a crash would.
    ///
    /// Its programs keep working until `xdptun detach`, or until the
    /// returned value is dropped.
    pub fn kill(self) -> Result<Remains> {
        let Self {
            remains, process, ..
        } = self;
        process.kill()?;
        Ok(remains)
    }
}

/// Ends the process and removes what it did not remove itself.
fn end(ender: &Ender, is_there: impl FnOnce() -> bool, mut detach: Command) -> Result<()> {
    ender.end(STOP_LIMIT)?;
    if is_there() {
        run(&mut detach)?;
    }
    Ok(())
}
