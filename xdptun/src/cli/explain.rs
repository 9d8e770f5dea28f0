//! `xdptun explain`: what a counter means, and what to do about it.

use std::io;

use anyhow::{Result, bail};
use clap::Args;

use super::output::output;
use crate::gateway::Gateway;
use crate::group::Function as _;
use crate::group::counter::Counter;
use crate::nat64::Nat64;
use crate::policy::Policy;
use crate::tunnel::Tunnel;

/// Say what a counter of `xdptun status` means and what to do about it.
#[derive(Args)]
#[command(after_help = "Examples:\n  xdptun explain rx_drop_no_flow\n  xdptun explain | less")]
pub struct Arguments {
    /// Name of the counter; without a name, all counters.
    #[arg(value_name = "COUNTER")]
    counter: Option<String>,
}

/// Every counter of every function.
pub fn all_counters() -> impl Iterator<Item = Counter> {
    let all = [
        Tunnel::counters(),
        Policy::counters(),
        Gateway::counters(),
        Nat64::counters(),
    ];
    all.into_iter().flatten()
}

/// Runs the verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut out = output();
    let Some(wanted) = &arguments.counter else {
        for entry in all_counters() {
            print(&mut out, &entry)?;
        }
        return Ok(());
    };
    let Some(entry) = all_counters().find(|entry| entry.name == wanted) else {
        let similar: Vec<&str> = all_counters()
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

fn print(out: &mut impl io::Write, entry: &Counter) -> Result<()> {
    writeln!(out, "{}: {}", entry.name, entry.meaning)?;
    if !entry.advice.is_empty() {
        writeln!(out, "    {}", entry.advice)?;
    }
    Ok(())
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
            assert!(all_counters().any(|entry| entry.name == name), "{name}");
        }
    }

    /// Each drop has advice, or needs none.
    #[test]
    fn every_drop_has_advice() {
        for entry in all_counters() {
            let closing = entry.name == "tx_drop_closing" || entry.name == "rx_drop_icmp";
            let closing = closing || entry.name == "out_drop_redirect";
            let closing = closing || entry.name.ends_with("_drop_message");
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
