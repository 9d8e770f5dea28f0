//! `xdptun status`: attachments, their counters and flows.

mod gateway;
mod nat64;
mod policy;
mod tunnel;

use std::io::Write;

use anyhow::Result;
use clap::Args;

use super::output::{error_output, output};
use super::peers::PeerOption;
use super::report::{join, print_json, say_if_nothing, size, table};
use crate::control;
use crate::control::ReportedState;
use crate::observe::status::{AttachmentStatus, InterfaceStatus, Status};

/// Show what is attached in this network namespace, with counters and flows.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Show only this interface.
    #[arg(long, short, value_name = "NAME")]
    iface: Option<String>,

    /// Leave the flows out; their number is shown.
    #[arg(long, conflicts_with = "peers")]
    no_flows: bool,

    #[command(flatten)]
    peers: PeerOption,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  xdptun status
  xdptun status --iface eth0 --no-flows
  xdptun status --peer 203.0.113.7
  xdptun status --json | jq '.interfaces[].flows'";

/// Runs the verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    let peers = arguments.peers.look_up()?;
    let mut status = Status::read()?;
    for InterfaceStatus { flows, .. } in &mut status.interfaces {
        match &peers {
            _ if arguments.no_flows => flows.clear(),
            Some(peers) => flows.retain(|flow| peers.has(flow.remote.ip())),
            None => {}
        }
    }
    super::block_on(async {
        match control::status().await {
            Ok(service) => status.service = service,
            Err(error) => {
                let _unread = writeln!(error_output(), "xdptun: {error:#}");
            }
        }
        Ok(())
    })?;
    if let Some(name) = &arguments.iface {
        status = status.of(name)?;
    }
    if arguments.json {
        return print_json(&status);
    }
    let mut out = output();
    let columns = out.columns();
    if arguments.iface.is_none() {
        say_if_nothing(&mut out, &status)?;
    }
    for interface in &status.interfaces {
        tunnel::print(&mut out, columns, interface, peers.is_some())?;
    }
    for gateway in &status.gateways {
        gateway::print(&mut out, gateway)?;
    }
    for policy in &status.policies {
        policy::print(&mut out, columns, policy)?;
    }
    if let Some(nat64) = &status.nat64 {
        nat64::print(&mut out, nat64)?;
    }
    for report in status.service.iter().flatten() {
        let name = &report.name;
        match (report.state, &report.reason) {
            (ReportedState::Carrying, _) => {}
            (ReportedState::Waiting, _) => {
                writeln!(out, "{name}: `xdptun run` waits for the interface")?;
            }
            (ReportedState::GivenUp, reason) => writeln!(
                out,
                "{name}: `xdptun run` gave it up: {}",
                reason.as_deref().unwrap_or_default()
            )?,
        }
    }
    Ok(())
}

/// What a function says of an attachment that lacks something.
struct Words<'a> {
    /// What the interfaces of a group share; `None` if that is nothing.
    shared: Option<&'a str>,
    /// What it means that no program is attached; `None` if that needs no word.
    no_hooks: Option<&'a str>,
    /// What it means that no daemon runs, and how to start one.
    no_daemon: &'a str,
}

/// Prints the lines that any function has.
fn print_attachment(
    out: &mut impl Write,
    attachment: &AttachmentStatus,
    words: &Words<'_>,
) -> Result<()> {
    let group = attachment.group.iter();
    let others: Vec<_> = group.filter(|name| **name != attachment.name).collect();
    if let (Some(shared), [_, ..]) = (words.shared, &others[..]) {
        writeln!(out, "  group  shares its {shared} with {}", join(&others))?;
    }
    match (&attachment.hooks[..], words.no_hooks) {
        ([], None) => {}
        ([], Some(so)) => writeln!(out, "  hooks  none: {so}")?,
        (hooks, _) => writeln!(out, "  hooks  {}", join(hooks))?,
    }
    match attachment.daemon {
        Some(process) => writeln!(out, "  daemon process {process}")?,
        None => writeln!(out, "  daemon not running: {}", words.no_daemon)?,
    }
    Ok(())
}

/// Prints the counters that have counted anything.
fn print_counters(out: &mut impl Write, attachment: &AttachmentStatus) -> Result<()> {
    let mut counters = table(&["COUNTER", "COUNT", "BYTES"], 1);
    let values = attachment.counters.values();
    for (counter, value) in values.filter(|(_, value)| value.count != 0) {
        let bytes = counter.has_bytes().then(|| size(value.bytes));
        let count = value.count.to_string();
        counters.add_row([counter.name.to_owned(), count, bytes.unwrap_or_default()]);
    }
    if counters.row_iter().next().is_some() {
        writeln!(out, "{counters}")?;
        writeln!(
            out,
            "  `xdptun explain COUNTER` says what it means; BYTES include all headers"
        )?;
    }
    Ok(())
}
