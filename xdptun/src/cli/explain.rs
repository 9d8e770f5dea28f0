//! `xdptun explain`: what a counter means, and what to do about it.

use std::io;

use anyhow::{Result, bail};
use clap::Args;
use xdptun_common::tunnel::outcome::{Outcome, Sent};

use crate::tunnel::maps::TX_LOST_IN_QUEUE;

/// Tell what a counter of `xdptun status` means and what to do about it.
#[derive(Args)]
#[command(after_help = "Examples:\n  xdptun explain rx_drop_no_flow\n  xdptun explain | less")]
pub struct Arguments {
    /// Name of the counter; all of them if none is given.
    #[arg(value_name = "COUNTER")]
    counter: Option<String>,
}

/// A counter, explained.
struct Entry {
    name: &'static str,
    meaning: &'static str,
    advice: &'static str,
}

/// Runs the verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut out = io::stdout().lock();
    let Some(wanted) = &arguments.counter else {
        for entry in entries() {
            print(&mut out, &entry)?;
        }
        return Ok(());
    };
    let Some(entry) = entries().find(|entry| entry.name == wanted) else {
        let similar: Vec<&str> = entries()
            .map(|entry| entry.name)
            .filter(|name| name.contains(wanted.as_str()))
            .collect();
        let advice = if similar.is_empty() {
            "`xdptun explain` lists all".to_owned()
        } else {
            format!("there are {}", similar.join(", "))
        };
        bail!("{wanted}: no such counter; {advice}");
    };
    print(&mut out, &entry)
}

fn print(out: &mut impl io::Write, entry: &Entry) -> Result<()> {
    writeln!(out, "{}: {}", entry.name, entry.meaning)?;
    if !entry.advice.is_empty() {
        writeln!(out, "    {}", entry.advice)?;
    }
    Ok(())
}

/// Every counter, as `xdptun status` orders them.
fn entries() -> impl Iterator<Item = Entry> {
    let outcomes = Outcome::ALL.iter().map(|counter| Entry {
        name: counter.name(),
        meaning: counter.meaning(),
        advice: counter.advice(),
    });
    let sent = Sent::ALL.iter().map(|counter| Entry {
        name: counter.name(),
        meaning: counter.meaning(),
        advice: counter.advice(),
    });
    let queue = Entry {
        name: TX_LOST_IN_QUEUE,
        meaning: "Datagrams lost while they waited with the daemon for a handshake.",
        advice: "No peer answered for ten seconds: look whether xdptun is attached at the peer, \
                 with the same secret if any, and whether the network lets the TCP port through.",
    };
    outcomes.chain(sent).chain([queue])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader looks up what the page names.
    #[test]
    fn troubleshooting_names_counters_that_exist() {
        let page = include_str!("../../../docs/troubleshooting.md");
        let words = page.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let named: Vec<&str> = words
            .filter(|word| word.starts_with("rx_") || word.starts_with("tx_"))
            .collect();
        assert!(!named.is_empty());
        for name in named {
            assert!(entries().any(|entry| entry.name == name), "{name}");
        }
    }

    /// What is dropped on this host can be mended, or it is said that it need not be.
    #[test]
    fn every_drop_has_advice() {
        for entry in entries() {
            let closing = entry.name == "tx_drop_closing" || entry.name == "rx_drop_icmp";
            assert!(
                !entry.name.contains("_drop_") || closing || !entry.advice.is_empty(),
                "{}",
                entry.name
            );
            assert!(entry.meaning.ends_with('.'), "{}", entry.name);
            assert!(
                entry.advice.is_empty() || entry.advice.ends_with('.'),
                "{}",
                entry.name
            );
        }
    }
}
