//! `xdptun doctor`: find problems on this host, and tell how to mend them.

use std::io::{self, Write as _};

use anyhow::Result;
use clap::Args;

use crate::doctor::{self, Finding, Level};
use crate::host::ports::PortRange;

/// Look for what would keep datagrams from passing, and tell how to mend it.
///
/// Looks at the kernel, and at every interface that xdptun is attached to or a
/// default route leads to: driver, MTU, firewall, other programs, routes to peers and
/// whether these answer. Changes nothing.
#[derive(Args)]
#[command(after_help = AFTER)]
pub struct Arguments {
    /// Look at this interface only.
    #[arg(long, short, value_name = "NAME")]
    iface: Option<String>,

    /// UDP port, or range like 8000-8010, to look at beside the attached ones:
    /// firewall rules and TCP servers; may be repeated.
    #[arg(long, short, value_name = "PORT[-PORT]", value_delimiter = ',')]
    port: Vec<PortRange>,

    /// Print JSON: an array of {check, level, what, mend}; `level` is ok, warn or
    /// fail, `mend` is a command, or null if no command mends it.
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
Exit status:
  0  nothing fails; there may be warnings
  1  something fails: datagrams will not pass
  2  the arguments are wrong

Examples:
  xdptun doctor
  xdptun doctor --iface eth0 --port 51820        before attaching
  xdptun doctor --json | jq '.[] | select(.level != \"ok\")'";

/// Runs the verb; returns whether nothing fails.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let findings = doctor::examine(arguments.iface.as_deref(), &arguments.port);
    let mut out = io::stdout().lock();
    if arguments.json {
        serde_json::to_writer(&mut out, &findings)?;
        writeln!(out)?;
    } else {
        for finding in &findings {
            writeln!(out, "{}", line(finding))?;
        }
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
        "{:<4}  {:<13}  {}",
        finding.level.name(),
        finding.check,
        finding.what
    );
    if let Some(mend) = &finding.mend {
        line += &format!("; `{mend}`");
    }
    line
}
