//! `xdptun sessions`: the sessions that are forwarded.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::IpAddr;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::report::{duration, table, traffic};
use crate::gateway::Pinned;
use crate::gateway::session::{self, Session};
use crate::observe::status::SCHEMA;

/// Show the sessions that `xdptun forward` carries in this network namespace.
#[derive(Args)]
#[command(after_help = "Examples:\n  xdptun sessions\n  xdptun sessions --peer 203.0.113.7 --json")]
pub struct Arguments {
    /// Only those whose client or back end has this address.
    #[arg(long, value_name = "ADDRESS")]
    peer: Option<IpAddr>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The output as JSON.
#[derive(Serialize)]
struct Output {
    schema: u32,
    sessions: Vec<Session>,
}

/// Runs the verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    // The interfaces of a group share one table.
    let groups: BTreeMap<_, _> = Pinned::all()?
        .into_iter()
        .map(|pinned| (pinned.group.directory.clone(), pinned.group))
        .collect();
    let nothing = match groups.is_empty() {
        true => "nothing is forwarded in this network namespace",
        false => "no sessions",
    };
    let mut sessions = Vec::new();
    for group in groups.values() {
        sessions.extend(session::all(&group.maps)?);
    }
    if let Some(peer) = arguments.peer {
        sessions.retain(|one| one.client.ip() == peer || one.back_end.ip() == peer);
    }
    let mut out = io::stdout().lock();
    if arguments.json {
        let output = Output {
            schema: SCHEMA,
            sessions,
        };
        serde_json::to_writer(&mut out, &output)?;
        writeln!(out)?;
        return Ok(());
    }
    if sessions.is_empty() {
        writeln!(out, "{nothing}")?;
        return Ok(());
    }
    let header = [
        "PROTOCOL",
        "CLIENT",
        "LISTEN",
        "BACK END",
        "STATE",
        "FROM CLIENT",
        "FROM BACK END",
        "AGE",
        "IDLE",
    ];
    let mut rows = table(header, 5);
    for one in &sessions {
        let source = one
            .source
            .map_or(String::new(), |source| format!("\nfrom {source}"));
        rows.add_row([
            one.protocol.to_owned(),
            one.client.to_string(),
            one.listen.to_string(),
            format!("{}{source}", one.back_end),
            one.state.name().to_owned(),
            traffic(one.call_packets, one.call_bytes),
            traffic(one.answer_packets, one.answer_bytes),
            duration(one.age),
            duration(one.idle),
        ]);
    }
    writeln!(out, "{rows}")?;
    Ok(())
}
