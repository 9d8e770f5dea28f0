//! `xdptun sessions`: the sessions of the gateway.

use std::collections::BTreeMap;
use std::io::{Stdout, Write as _};
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::output::{Fitted, output};
use super::peers::{PeerFilter, PeerOption};
use super::report::{duration, print_json, table_within, traffic};
use crate::gateway::Pinned;
use crate::gateway::session::{self, Began, Ends, Session};
use crate::nat64;
use crate::nat64::session::Client;
use crate::observe::status::SCHEMA;

/// Show the sessions that `xdptun forward` and `xdptun nat` carry in this network namespace, and the
/// clients of `xdptun nat64`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  xdptun sessions\n  xdptun sessions --function nat\n  xdptun sessions \
                  --peer 203.0.113.7 --json"
)]
pub struct Arguments {
    /// Only those that forward ports, those of inside hosts, or clients of NAT64.
    #[arg(long, value_enum)]
    function: Option<Function>,

    #[command(flatten)]
    peers: PeerOption,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What carries a session.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Function {
    /// Rules that forward ports.
    Forward,
    /// The translation of inside hosts.
    Nat,
    /// The translation between IPv6 and IPv4, whose clients have no sessions but addresses.
    Nat64,
}

impl Function {
    const fn of(ends: &Ends) -> Self {
        match ends {
            Ends::Forward { .. } => Self::Forward,
            Ends::Nat { .. } => Self::Nat,
        }
    }
}

/// The output as JSON.
#[derive(Serialize)]
struct Output {
    schema: u32,
    sessions: Vec<Session>,
    /// Clients of NAT64; left out if it translates nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    clients: Option<Vec<Client>>,
}

/// Runs the verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    // The interfaces of a group share one table.
    let groups: BTreeMap<_, _> = Pinned::all()?
        .into_iter()
        .map(|pinned| (pinned.group.directory.clone(), pinned.group))
        .collect();
    let peers = arguments.peers.look_up()?;
    let clients = clients(arguments, peers.as_ref())?;
    let nothing = match groups.is_empty() && clients.is_none() {
        true => "nothing is forwarded or translated in this network namespace",
        false => "no sessions",
    };
    let mut sessions = Vec::new();
    for group in groups.values() {
        sessions.extend(session::all(&group.maps)?);
    }
    if let Some(peers) = &peers {
        sessions.retain(|one| one.ends.addresses().iter().any(|end| peers.has(*end)));
    }
    if let Some(function) = arguments.function {
        sessions.retain(|one| Function::of(&one.ends) == function);
    }
    if arguments.json {
        return print_json(&Output {
            schema: SCHEMA,
            sessions,
            clients,
        });
    }
    let mut out = output();
    let clients = clients.unwrap_or_default();
    if sessions.is_empty() && clients.is_empty() {
        writeln!(out, "{nothing}")?;
        return Ok(());
    }
    let (mut forwarded, mut translated) = (Vec::new(), Vec::new());
    for one in &sessions {
        match one.ends {
            Ends::Forward {
                listen,
                client,
                back_end,
                source,
            } => {
                let source = source.map_or(String::new(), |source| format!("\nfrom {source}"));
                let ends = [
                    client.to_string(),
                    listen.to_string(),
                    format!("{back_end}{source}"),
                ];
                forwarded.push(row(one, ends, [true, false]));
            }
            Ends::Nat {
                inside,
                outside,
                remote,
                began,
            } => {
                // The other end of an ICMP echo has no port.
                let remote = match remote.port() {
                    0 => remote.ip().to_string(),
                    _ => remote.to_string(),
                };
                let ends = [inside.to_string(), outside.to_string(), remote];
                let calls = began == Began::Inside;
                translated.push(row(one, ends, [calls, !calls]));
            }
        }
    }
    let with_address = clients.iter().map(|one| {
        let time = |time: Option<Duration>| time.map_or("-".to_owned(), duration);
        [
            one.client.to_string(),
            one.address.to_string(),
            one.state.name().to_owned(),
            time(one.idle),
            time(one.expires),
        ]
    });
    let ends = [1, 3, 1, 2, 2];
    print(&mut out, FORWARDED, forwarded, 5, &ends)?;
    print(&mut out, TRANSLATED, translated, 5, &ends)?;
    print(&mut out, CLIENTS, with_address.collect(), 3, &[2, 1, 2])
}

/// Prints a table, unless it is empty.
fn print<const N: usize>(
    out: &mut Fitted<Stdout>,
    header: [&str; N],
    rows: Vec<[String; N]>,
    first_number: usize,
    groups: &[usize],
) -> Result<()> {
    if !rows.is_empty() {
        // Other programs read a line for each.
        let width = out.columns().unwrap_or(usize::MAX);
        let table = table_within(width, header, rows, first_number, groups);
        writeln!(out, "{table}")?;
    }
    Ok(())
}

/// The clients of NAT64 that are asked for; none if it translates nothing, or is not asked for.
fn clients(arguments: &Arguments, peers: Option<&PeerFilter>) -> Result<Option<Vec<Client>>> {
    if arguments
        .function
        .is_some_and(|only| only != Function::Nat64)
    {
        return Ok(None);
    }
    let Some(pinned) = nat64::Pinned::all()?.into_iter().next() else {
        return Ok(None);
    };
    let mut clients = nat64::session::all(&pinned.group.maps)?;
    if let Some(peers) = peers {
        clients.retain(|one| peers.has(one.client.into()) || peers.has(one.address.into()));
    }
    Ok(Some(clients))
}

/// The columns of clients of NAT64.
const CLIENTS: [&str; 5] = ["CLIENT", "ADDRESS", "STATE", "IDLE", "EXPIRES"];

/// The columns of sessions that are forwarded.
const FORWARDED: [&str; 9] = [
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

/// The columns of sessions of inside hosts.
const TRANSLATED: [&str; 9] = [
    "PROTOCOL",
    "INSIDE",
    "OUTSIDE",
    "REMOTE",
    "STATE",
    "FROM INSIDE",
    "FROM REMOTE",
    "AGE",
    "IDLE",
];

/// The row of a session. Of both columns of traffic, `calls` says which is that of the end that
/// began it.
fn row(one: &Session, [first, second, third]: [String; 3], calls: [bool; 2]) -> [String; 9] {
    let [near, far] = calls.map(|calls| match calls {
        true => traffic(one.call_packets, one.call_bytes),
        false => traffic(one.answer_packets, one.answer_bytes),
    });
    [
        one.protocol.to_owned(),
        first,
        second,
        third,
        one.state.name().to_owned(),
        near,
        far,
        duration(one.age),
        duration(one.idle),
    ]
}
