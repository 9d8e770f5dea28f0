//! A host with xdptun.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use xdptun_lab::cgroup::{self, Frozen};
use xdptun_lab::process::Suspended;
use xdptun_lab::xdptun::Remains;
use xdptun_lab::{Attached, Host, wait};
use xdptun_test_net::mode::Mode;
use xdptun_test_net::status;
use xdptun_test_net::traces::Traces;

use crate::journal::{Flaw, Journal};
use crate::traffic::Gate;

/// The owned port as an argument.
const PORT: &str = "8000";

/// Offloads of a host that a disturbance switches.
pub const OFFLOADS: [&str; 2] = ["tx", "rx"];

/// Seconds after which a flow without datagrams is ended: short, so that the end
/// of a run can wait for it, and longer than any disturbance.
pub const IDLE: &str = "10";

/// How much a daemon may grow: datagrams that wait for a handshake, in the memory
/// that the allocator keeps.
const GROWTH_KIB: u64 = 32 << 10;

/// A host, and the xdptun that runs on it.
#[derive(Debug)]
pub struct Peer {
    /// Its name in the log.
    pub name: String,
    /// The host.
    pub host: Host,
    /// Every sender on the host passes it.
    pub gate: Arc<Gate>,
    journal: Arc<Journal>,
    before: Traces,
    mode: Mode,
    running: Option<Running>,
    /// Guards of daemons that are gone; each would detach what another goes on
    /// with, so they last as long as the peer.
    remains: Vec<Remains>,
    replaced: Vec<Attached>,
    /// The most that a daemon grew by.
    pub growth_kib: u64,
}

#[derive(Debug)]
struct Running {
    attached: Attached,
    /// Its memory once it worked: loading the programs takes more, which is
    /// given back.
    resident_kib: Option<u64>,
}

impl Running {
    const fn new(attached: Attached) -> Self {
        Self {
            attached,
            resident_kib: None,
        }
    }
}

/// A daemon that stands still until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it lets the daemon go on"]
pub enum Still<'a> {
    /// Its control group does.
    Frozen(Frozen),
    /// It got SIGSTOP.
    Suspended(Suspended<'a>),
}

/// How long a daemon may take to end when it is replaced, and to follow its interface.
const LIMIT: Duration = Duration::from_secs(5);

impl Peer {
    /// Attaches to a host for the first time.
    pub fn new(name: String, host: &Host, mode: Mode, journal: &Arc<Journal>) -> Result<Self> {
        let mut peer = Self {
            name,
            host: host.clone(),
            gate: Arc::default(),
            journal: Arc::clone(journal),
            before: Traces::of(host)?,
            mode,
            running: None,
            remains: Vec::new(),
            replaced: Vec::new(),
            growth_kib: 0,
        };
        peer.attach(mode)?;
        Ok(peer)
    }

    /// Attaches.
    pub fn attach(&mut self, mode: Mode) -> Result<()> {
        let attached = self.start(mode, &[])?;
        self.mode = mode;
        self.running = Some(Running::new(attached));
        Ok(())
    }

    fn start(&self, mode: Mode, more: &[&str]) -> Result<Attached> {
        let args = ["--port", PORT, "--idle-timeout", IDLE];
        mode.attach(&self.host, &[&args, more].concat())
    }

    /// Attaches again after [`Peer::kill`], to go on with what is there.
    pub fn revive(&mut self) -> Result<()> {
        self.attach(self.mode)
    }

    /// Detaches cleanly. Nothing may be sent meanwhile.
    pub fn detach(&mut self) -> Result<()> {
        self.weigh()?;
        if let Some(running) = self.running.take() {
            self.journal.check(Flaw::Program, running.attached.stop());
        }
        Ok(())
    }

    /// Kills the daemon as a crash would. What it attached goes on.
    pub fn kill(&mut self) -> Result<()> {
        self.weigh()?;
        if let Some(running) = self.running.take() {
            self.remains.push(running.attached.kill()?);
        }
        Ok(())
    }

    /// Lets a new daemon take over from the one that runs.
    pub fn replace(&mut self) -> Result<()> {
        self.weigh()?;
        let attached = self.start(self.mode, &["--take-over"])?;
        if let Some(old) = self.running.replace(Running::new(attached)) {
            let ended = || !old.attached.process().is_running().unwrap_or(true);
            let ended = wait::until(LIMIT, "the replaced daemon to end", ended);
            self.journal.check(Flaw::Program, ended);
            self.replaced.push(old.attached);
        }
        Ok(())
    }

    /// Lets the daemon stand still: by its control group, or by SIGSTOP where this machine has
    /// mounted none of version 2.
    pub fn freeze(&self) -> Result<Still<'_>> {
        let process = self.running()?.attached.process();
        if let Some(frozen) = cgroup::freeze(process.pid())? {
            return Ok(Still::Frozen(frozen));
        }
        self.journal.say("    by SIGSTOP: no cgroup2 is mounted");
        Ok(Still::Suspended(process.suspend()?))
    }

    /// How many lines with this text the daemon has said.
    pub fn said(&self, text: &str) -> Result<usize> {
        let output = self.running()?.attached.process().output();
        Ok(output
            .iter()
            .filter(|(_, line)| line.contains(text))
            .count())
    }

    /// Waits until it has said so many.
    pub fn wait_said(&self, text: &str, times: usize) {
        let said = wait::until_some(LIMIT, &format!("the daemon to say `{text}`"), || {
            Ok((self.said(text)? >= times).then_some(()))
        });
        self.journal.check(Flaw::Program, self.explain(said));
    }

    fn running(&self) -> Result<&Running> {
        let running = self.running.as_ref();
        running.with_context(|| format!("xdptun does not run on {}", self.name))
    }

    /// Adds to an error the counters and the output of xdptun there.
    pub fn explain<T>(&self, result: Result<T>) -> Result<T> {
        match &self.running {
            Some(running) => running.attached.explain(result),
            None => result.with_context(|| format!("xdptun does not run on {}", self.name)),
        }
    }

    /// The last lines that xdptun there said, and its flows.
    pub fn latest(&self, lines: usize) -> String {
        let said = match &self.running {
            Some(running) => running.attached.process().stderr(),
            None => Vec::new(),
        };
        let last = &said[said.len().saturating_sub(lines)..];
        let flows = status::flows(&self.host.netns);
        format!("{}: {flows:#?}\n{}", self.name, last.join("\n"))
    }

    /// The difference of the host from before the first attachment.
    pub fn remains(&self) -> Result<Option<String>> {
        let now = Traces::of(&self.host)?;
        let differ = now != self.before;
        Ok(differ.then(|| format!("{}: {now:#?} instead of {:#?}", self.name, self.before)))
    }

    /// Compares the daemon's memory with that of the first time.
    pub fn weigh(&mut self) -> Result<()> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        let now = running.attached.process().resident_kib()?;
        let growth = now.saturating_sub(*running.resident_kib.get_or_insert(now));
        self.growth_kib = self.growth_kib.max(growth);
        if growth > GROWTH_KIB {
            let text = format!("the daemon of {} grew by {growth} KiB to {now}", self.name);
            self.journal.find(Flaw::Memory, &text);
        }
        Ok(())
    }
}
