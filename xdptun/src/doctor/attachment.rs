//! The attachment: its daemon, its hooks, and TCP servers on its ports.

use std::fmt::Display;

use nix::unistd::Pid;
use xdptun_common::attachment::IngressMode;

use super::programs::Seen;
use super::{Finding, Subject, clock};
use crate::config::DEFAULT_MAX_FLOWS;
use crate::error::Result;
use crate::host::listeners;
use crate::tunnel::Pinned;

pub fn check(pinned: &Pinned, seen: Option<&Seen>) -> Result<Vec<Finding>> {
    let name = pinned.name();
    let daemon = Pinned::daemon(pinned.ifindex)?;
    let attach = command(pinned)?;
    let mut findings = vec![judge_daemon(&name, daemon, &attach)];
    if let Some(seen) = seen {
        let missing = missing_hooks(pinned.ingress(), seen);
        findings.push(judge_hooks(&name, &missing, daemon, &attach));
    }
    if pinned.has_secret() {
        findings.push(clock::check()?);
    }
    Ok(findings)
}

/// The command that attaches the same.
fn command(pinned: &Pinned) -> Result<String> {
    fn join(items: &[impl Display]) -> String {
        let items: Vec<String> = items.iter().map(ToString::to_string).collect();
        items.join(",")
    }
    let mut command = format!(
        "xdptun attach --iface {} --port {}",
        join(&pinned.group.names()),
        join(&pinned.group.maps.ports()?)
    );
    let peers = pinned.group.maps.peers()?;
    if !peers.is_empty() {
        command += &format!(" --peer {}", join(&peers));
    }
    if pinned.group.maps.max_flows() != DEFAULT_MAX_FLOWS {
        command += &format!(" --max-flows {}", pinned.group.maps.max_flows());
    }
    if pinned.has_secret() {
        command += " --secret FILE";
    }
    Ok(command)
}

fn judge_daemon(name: &str, daemon: Option<Pid>, attach: &str) -> Finding {
    const CHECK: &str = "daemon";
    match daemon {
        Some(process) => Finding::ok(CHECK, format!("{name}: process {process} runs")),
        None => {
            let what = format!(
                "{name}: attached, but no daemon runs: open flows go on, a new flow loses its \
                 first datagrams"
            );
            Finding::warn(CHECK, what).mend(attach)
        }
    }
}

/// Hooks where the programs should be and are not.
fn missing_hooks(ingress: IngressMode, seen: &Seen) -> Vec<&'static str> {
    let xdp = seen.xdp.as_ref().is_some_and(|program| program.is_tunnel());
    let expected = [
        (seen.ingress.has_tunnel(), "tc ingress"),
        (seen.egress.has_tunnel(), "tc egress"),
        (xdp || ingress == IngressMode::Tc, ingress.name()),
    ];
    let missing = expected.into_iter().filter(|(there, _)| !there);
    missing.map(|(_, hook)| hook).collect()
}

fn judge_hooks(name: &str, missing: &[&str], daemon: Option<Pid>, attach: &str) -> Finding {
    const CHECK: &str = "hooks";
    if missing.is_empty() {
        return Finding::ok(CHECK, format!("{name}: every program is on its hook"));
    }
    let what = format!(
        "{name}: another process took the program off {}: packets there are not disguised or restored",
        missing.join(" and ")
    );
    let take_over = if daemon.is_some() { " --take-over" } else { "" };
    Finding::fail(CHECK, what).mend(format!("{attach}{take_over}"))
}

/// An attachment whose interface is gone.
pub fn orphan(name: &str, daemon: Option<Pid>) -> Finding {
    const CHECK: &str = "attachment";
    match daemon {
        Some(process) => {
            let what = format!("{name}: it is gone; process {process} waits for it to come back");
            Finding::warn(CHECK, what)
        }
        None => Finding::fail(
            CHECK,
            format!("{name}: it is gone, but the programs and maps are left"),
        )
        .mend(format!("xdptun detach --iface {name}")),
    }
}

pub fn check_servers(subject: &Subject) -> Result<Vec<Finding>> {
    const CHECK: &str = "tcp-server";
    let name = subject.name();
    if subject.ports.is_empty() {
        return Ok(Vec::new());
    }
    let servers = listeners::listening(&subject.ports)?;
    Ok(vec![if servers.is_empty() {
        Finding::ok(
            CHECK,
            format!("{name}: no TCP server listens on an owned port"),
        )
    } else if subject.has_secret() {
        let what = format!(
            "{name}: shares port {} with a TCP server",
            servers.join(", ")
        );
        Finding::ok(CHECK, what)
    } else {
        let what = format!(
            "{name}: the TCP server on port {} cannot be reached here while xdptun is attached; \
             with `--secret` both share the port",
            servers.join(", ")
        );
        Finding::warn(CHECK, what)
    }])
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_told_with_the_way_on() {
        let dead = judge_daemon("eth0", None, "xdptun attach ...");
        assert_eq!(dead.level, Level::Warn);
        assert_eq!(dead.mend.unwrap(), "xdptun attach ...");
        let gone = orphan("eth0", None);
        assert_eq!(gone.mend.unwrap(), "xdptun detach --iface eth0");
        assert_eq!(orphan("eth0", Some(Pid::from_raw(1))).level, Level::Warn);
    }

    #[test]
    fn a_running_daemon_is_replaced_rather_than_doubled() {
        let lost = |daemon| judge_hooks("eth0", &["tc egress"], daemon, "xdptun attach").mend;
        assert_eq!(lost(None).unwrap(), "xdptun attach");
        let process = Some(Pid::from_raw(1));
        assert_eq!(lost(process).unwrap(), "xdptun attach --take-over");
    }
}
