//! `xdptun doctor`: find problems on this host, and the commands that fix them.

use std::io::Write as _;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::output::output;
use super::report::print_json;
use crate::doctor::{self, Finding, Level, NOT_LOOKED_AT};
use crate::host::ports::PortRange;
use crate::observe::status::SCHEMA;

/// Find what keeps packets from passing, and show the command that fixes it.
///
/// It checks the kernel, and every interface that xdptun is attached to or that a default
/// route uses: driver, MTU, firewall, other programs, routes to peers, and whether the
/// peers answer. Where ports are forwarded, it checks whether this host forwards packets,
/// whether its sockets use the same ports, and whether back ends take a TCP connection; with inside
/// hosts their networks, with NAT64 its routes and DNS64, with rules whether all payload is
/// searched. It
/// changes nothing.
#[derive(Args)]
#[command(after_help = AFTER)]
pub struct Arguments {
    /// Check only this interface.
    #[arg(long, short, value_name = "NAME")]
    iface: Option<String>,

    /// UDP port, or range like 8000-8010; may be repeated. Check its firewall rules and TCP
    /// servers, as well as those of attached ports.
    #[arg(long, short, value_name = "PORT[-PORT]", value_delimiter = ',')]
    port: Vec<PortRange>,

    /// Print JSON, as docs/json.md describes it: `findings` with `check`, `level` (ok, warn or fail),
    /// `what`, and `mend`, the command that fixes it, or null.
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Exit status:
  0  nothing fails; a warning may still keep packets from passing
  1  something fails: packets will not pass
  2  the arguments are wrong

Examples:
  xdptun doctor
  xdptun doctor --iface eth0 --port 51820        before attaching
  xdptun doctor --json | jq '.findings[] | select(.level != \"ok\")'";

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    findings: &'a [Finding],
    not_looked_at: &'a str,
}

/// Runs the verb; returns whether nothing fails.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let findings = doctor::examine(arguments.iface.as_deref(), &arguments.port);
    if arguments.json {
        print_json(&Report {
            schema: SCHEMA,
            findings: &findings,
            not_looked_at: NOT_LOOKED_AT,
        })?;
    } else {
        let mut out = output();
        for finding in &findings {
            writeln!(out, "{}", line(finding))?;
        }
        writeln!(out, "not looked at: {NOT_LOOKED_AT}")?;
        let count = |level: Level| {
            let same = findings.iter().filter(|finding| finding.level == level);
            format!("{} {}", same.count(), level.name())
        };
        let counts = [Level::Ok, Level::Warn, Level::Fail].map(count);
        writeln!(out, "{}", counts.join(", "))?;
    }
    Ok(findings.iter().all(|finding| finding.level != Level::Fail))
}

fn line(finding: &Finding) -> String {
    let mut line = format!(
        "{:<4}  {:<17}  {}",
        finding.level.name(),
        finding.check,
        finding.what
    );
    if let Some(mend) = &finding.mend {
        line += &format!("; fix: `{mend}`");
    }
    line
}
