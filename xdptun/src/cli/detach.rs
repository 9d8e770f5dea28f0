//! `xdptun detach`: end an attachment, or remove what a killed process left.

use anyhow::{Result, bail};
use clap::Args;

use crate::tunnel::detach::{self, Detached};

/// Detach from an interface, and remove what a killed process left there.
///
/// A running `xdptun attach` is asked to stop and closes its flows first.
#[derive(Args)]
#[command(after_help = "Example:\n  xdptun detach --iface eth0")]
pub struct Arguments {
    /// Interface to detach from.
    #[arg(long, short, value_name = "NAME")]
    iface: String,
}

/// Runs the verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    let name = &arguments.iface;
    match detach::detach(name)? {
        Detached::Stopped(process) => println!("{name}: stopped process {process}"),
        Detached::Remains => {}
        Detached::Nothing => bail!("{name}: nothing is attached"),
    }
    println!("{name}: detached");
    Ok(())
}
