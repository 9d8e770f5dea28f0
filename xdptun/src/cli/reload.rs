//! `xdptun reload`: the service reads its file again.

use anyhow::{Result, anyhow};
use clap::Args;

use crate::control::{self, Command};

/// Make the running `xdptun run` read its file again and apply what changed.
///
/// Flows of what did not change go on. A file with a mistake changes nothing.
#[derive(Args)]
#[command(after_help = "Example:\n  xdptun check && xdptun reload")]
pub struct Arguments {}

/// Runs the verb.
pub fn run(_: &Arguments) -> Result<()> {
    let changes = control::ask(Command::Reload)?;
    let changes = changes.map_err(|why| anyhow!(why))?;
    for change in changes {
        println!("{change}");
    }
    Ok(())
}
