//! `xdptun reload`: the service reads its file again.

use anyhow::{Result, anyhow};
use clap::Args;

use crate::control::{self, Command, Place};

/// Make the running `xdptun run` read its file again and apply what changed.
///
/// Flows that the change does not concern go on. A file with an error changes nothing.
#[derive(Args)]
#[command(after_help = "Example:\n  xdptun check && xdptun reload")]
pub struct Arguments {}

/// Runs the verb.
pub fn run(_: &Arguments) -> Result<()> {
    super::block_on(async {
        let (changes, _) = control::ask(Place::Service, &Command::Reload).await?;
        for change in changes.map_err(|why| anyhow!(why))? {
            println!("{change}");
        }
        Ok(())
    })
}
