//! xdptun where it forwards the tunnel's port to the server.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Host, Served, xdptun};

use crate::TUNNEL_PORT;
use crate::gateway::Gateway;

/// Loading passes the verifier, which takes its time on a slow machine.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// How the tunnel's datagrams cross a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As UDP.
    Plain,
    /// As TCP: xdptun has the tunnel's port at both ends.
    Disguised,
}

/// What the server sees as the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The client.
    Keep,
    /// The gateway.
    Masquerade,
}

impl Source {
    /// Its name in options and files.
    fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Masquerade => "masquerade",
        }
    }
}

/// How a person starts xdptun on the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// `xdptun attach` if a wire is disguised, and `xdptun forward`.
    Commands,
    /// `xdptun run`, with all of that in one file.
    File,
}

/// What xdptun does on the gateway, and on the hosts at disguised wires.
#[derive(Debug, Clone, Copy)]
pub struct Forwarding {
    /// The wire to the client, the wire to the server.
    pub wires: [Form; 2],
    /// What the server sees.
    pub source: Source,
    /// How it is started on the gateway.
    pub start: Start,
    /// Seconds without a datagram after which the gateway closes a flow.
    pub idle_timeout: u32,
}

/// It runs.
#[derive(Debug)]
pub struct Running(Vec<Attached>);

impl Forwarding {
    /// From wire to wire by commands, all else as it is by default.
    pub fn new(wires: [Form; 2]) -> Self {
        Self {
            wires,
            source: Source::Keep,
            start: Start::Commands,
            idle_timeout: 600,
        }
    }

    /// Starts it on the hosts and on the gateway; returns when all is ready.
    pub fn start(&self, gateway: &Gateway) -> Result<Running> {
        let mut running = match self.start {
            Start::Commands => self.run_commands(gateway)?,
            Start::File => vec![self.run_file(gateway)?],
        };
        for host in self.disguised(gateway.hosts()) {
            let port = TUNNEL_PORT.to_string();
            let attached = Attached::start(&host.netns, Host::DEV, &["--port", &port])?;
            running.push(attached);
        }
        Ok(Running(running))
    }

    /// The tunnel first.
    fn run_commands(&self, gateway: &Gateway) -> Result<Vec<Attached>> {
        let (netns, port) = (gateway.netns(), TUNNEL_PORT.to_string());
        let mut running = Vec::new();
        let devs = self.disguised(Gateway::DEVS);
        if !devs.is_empty() {
            let idle = self.idle_timeout.to_string();
            // A capture of a wire would show twice what passes GRO.
            let args = ["--port", &port, "--idle-timeout", &idle, "--gro", "off"];
            running.push(Attached::start_group(netns, &devs, &args)?);
        }
        let (listen, to) = (format!("{port}/udp"), gateway.back_end().to_string());
        let source = self.source.name();
        let rule = ["--listen", &listen, "--to", &to, "--source", source];
        running.push(Attached::forward(netns, Served::WAN, &rule)?);
        Ok(running)
    }

    fn run_file(&self, gateway: &Gateway) -> Result<Attached> {
        let scratch = Scratch::new()?;
        let path = scratch.path().join("config.toml");
        fs::write(&path, self.file(gateway))
            .with_context(|| format!("{}: cannot write", path.display()))?;
        let mut command = gateway.netns().command(xdptun::binary()?);
        command.arg("run").arg("--config").arg(&path);
        let service = Attached::forwarding(gateway.netns(), Served::WAN, &mut command)?;
        let devs = self.disguised(Gateway::DEVS).into_iter();
        let carries = devs.map(|dev| format!("ready: {dev} carries "));
        for ready in carries.chain([format!("ready: {} forwards ", Served::WAN)]) {
            service.process().wait_for_line(&ready, READY_LIMIT)?;
        }
        Ok(service)
    }

    /// The file of `xdptun run` that says what the commands say.
    fn file(&self, gateway: &Gateway) -> String {
        let mut text = String::new();
        for dev in self.disguised(Gateway::DEVS) {
            let idle = self.idle_timeout;
            text += &format!("[interface.{dev}]\nports = [{TUNNEL_PORT}]\nidle-timeout = {idle}\n");
            text += "gro = \"off\"\n";
        }
        let (to, source) = (gateway.back_end(), self.source.name());
        text + &format!("[[interface.{}.forward]]\n", Served::WAN)
            + &format!("listen = \"{TUNNEL_PORT}/udp\"\nto = \"{to}\"\nsource = \"{source}\"\n")
    }

    /// Of two things, one for each wire, those whose wire is disguised.
    fn disguised<T>(&self, of_wires: [T; 2]) -> Vec<T> {
        let both = of_wires.into_iter().zip(self.wires);
        let disguised = both.filter(|(_, wire)| *wire == Form::Disguised);
        disguised.map(|(of_wire, _)| of_wire).collect()
    }
}

impl Running {
    /// Ends it as Ctrl-C does: on the gateway first, which closes the flows with both hosts.
    pub fn stop(self) -> Result<()> {
        self.0.into_iter().try_for_each(Attached::stop)
    }
}
