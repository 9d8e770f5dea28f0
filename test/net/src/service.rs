//! `xdptun run` and its file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Host, Netns, Served, wait, xdptun};

use crate::cli::{Outcome, run};
use crate::{LIMIT, status};

/// A second interface.
pub const OTHER: &str = "eth1";

/// A configuration file, and the service that reads it.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    _scratch: Scratch,
}

impl File {
    /// Writes one.
    pub fn new(text: &str) -> Self {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().join("config.toml");
        let file = Self {
            path,
            _scratch: scratch,
        };
        file.write(text);
        file
    }

    /// Rewrites it.
    pub fn write(&self, text: &str) {
        fs::write(&self.path, text).unwrap();
    }

    /// Its text.
    pub fn read(&self) -> String {
        fs::read_to_string(&self.path).unwrap()
    }

    /// Its path.
    pub fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// The service, with more arguments.
    pub fn command(&self, netns: &Netns, more: &[&str]) -> Command {
        let mut command = netns.command(xdptun::binary().unwrap());
        command.args(["run", "--config", self.name()]).args(more);
        command
    }

    /// Starts the service; returns when it is ready on the first interface, and can be
    /// asked.
    pub fn run(&self, host: &Host) -> Attached {
        let mut command = self.command(&host.netns, &[]);
        let service = Attached::by(&host.netns, Host::DEV, &mut command).unwrap();
        wait_for_control(&host.netns);
        service
    }

    /// Starts the service with more arguments; returns when it forwards what comes in by
    /// [`Served::WAN`], and can be asked.
    pub fn forward(&self, netns: &Netns, more: &[&str]) -> Attached {
        self.gateway(netns, Served::WAN, more)
    }

    /// Starts the service with more arguments; returns when its gateway is ready on an interface,
    /// and can be asked.
    pub fn gateway(&self, netns: &Netns, iface: &str, more: &[&str]) -> Attached {
        let mut command = self.command(netns, more);
        let service = Attached::forwarding(netns, iface, &mut command).unwrap();
        wait_for_control(netns);
        service
    }
}

impl File {
    /// Starts the service with more arguments; returns when its policy is ready on the interface
    /// of a host, and can be asked.
    pub fn policy(&self, host: &Host, more: &[&str]) -> Attached {
        let mut command = self.command(&host.netns, more);
        let service = Attached::searching(&host.netns, Host::DEV, &mut command).unwrap();
        wait_for_control(&host.netns);
        service
    }
}

/// Waits until the service of a namespace can be asked.
///
/// # Panics
///
/// If it cannot be in time.
pub fn wait_for_control(netns: &Netns) {
    let socket = control_socket(netns);
    wait::until(LIMIT, "the control socket", || socket.exists()).unwrap();
}

/// The state of each interface, as the service reports it.
pub fn states(netns: &Netns) -> serde_json::Value {
    xdptun::status(netns).unwrap()["service"].clone()
}

/// Where the service of a namespace listens.
pub fn control_socket(netns: &Netns) -> PathBuf {
    format!("/run/xdptun/{}.sock", netns.cookie().unwrap()).into()
}

/// Makes the service read its file again.
pub fn reload(netns: &Netns) -> Outcome {
    run(netns, &["reload"]).unwrap()
}

/// Reloads, and requires that this is told.
///
/// # Panics
///
/// If it is not.
pub fn reloads(netns: &Netns, changes: &[&str]) {
    tells(&reload(netns), changes);
}

/// The same, and lets sessions of rules that are gone go on.
///
/// # Panics
///
/// If it is not.
pub fn drains(netns: &Netns, changes: &[&str]) {
    tells(&run(netns, &["reload", "--drain"]).unwrap(), changes);
}

fn tells(outcome: &Outcome, changes: &[&str]) {
    assert_eq!(outcome.code, Some(0), "{outcome:#?}");
    assert_eq!(outcome.stdout, changes, "{outcome:#?}");
}

/// Makes an interface that leads nowhere.
pub fn add(netns: &Netns, dev: &str) {
    let arguments = ["link", "add", dev, "type", "veth", "peer", "name", "far"];
    netns.run("ip", arguments).unwrap();
    netns.run("ip", ["link", "set", dev, "up"]).unwrap();
}

/// Deletes an interface.
pub fn delete(netns: &Netns, dev: &str) {
    netns.run("ip", ["link", "delete", dev]).unwrap();
}

/// The ports of an attachment.
pub fn ports(netns: &Netns, dev: &str) -> String {
    let status = status::interface(netns, dev).unwrap();
    let ports = status["ports"].as_array().unwrap();
    let ports: Vec<_> = ports.iter().map(|port| port.as_str().unwrap()).collect();
    ports.join(" ")
}

/// The names of all interfaces with an attachment.
pub fn attached(netns: &Netns) -> Vec<String> {
    let status = xdptun::status(netns).unwrap();
    let interfaces = status["interfaces"].as_array().unwrap();
    let name = |interface: &serde_json::Value| interface["name"].as_str().unwrap().to_owned();
    interfaces.iter().map(name).collect()
}

/// The same command where a file is another.
pub fn instead_of(path: &str, file: &Path, command: &Command) -> Command {
    let mut inner = Command::new("unshare");
    inner.args(["--mount", "sh", "-c"]);
    inner.arg(format!("mount --bind \"$0\" {path} && exec \"$@\""));
    inner
        .arg(file)
        .arg(command.get_program())
        .args(command.get_args());
    inner
}
