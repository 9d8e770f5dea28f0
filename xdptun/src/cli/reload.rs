//! `xdptun reload`: the service reads its file again.

use anyhow::{Result, anyhow};
use clap::Args;

use crate::control::{self, Command, Place};

/// Make the running `xdptun run` read its file again and apply what changed.
///
/// Flows and sessions that the change does not concern go on. A file with an error changes nothing.
/// Sessions of a rule that is gone are cut: both ends of a connection get RST.
#[derive(Args)]
#[command(after_help = "Examples:\n  xdptun check && xdptun reload\n  xdptun reload --drain")]
pub struct Arguments {
    /// Let sessions of rules that are gone go on until they end.
    #[arg(long)]
    drain: bool,
}

/// Runs the verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    let command = Command::Reload {
        drain: arguments.drain,
    };
    super::block_on(async {
        let (changes, _) = control::ask(Place::Service, &command).await?;
        for change in changes.map_err(|why| anyhow!(why))? {
            println!("{change}");
        }
        Ok(())
    })
}
