//! `xdptun detach`: end an attachment, or remove what a killed process left.

use anyhow::{Result, bail};
use clap::Args;

use crate::group::detach::{self, Detached};
use crate::tunnel::Tunnel;

/// Detach from an interface and those that share its flows; remove what a killed process left.
///
/// A running `xdptun attach` first closes its flows, and then stops. To take one interface
/// out of a group, use `xdptun run` and its file.
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
    let Detached {
        stopped,
        interfaces,
    } = detach::detach::<Tunnel>(name)?;
    if let Some(process) = stopped {
        println!("{name}: stopped process {process}");
    } else if interfaces.is_empty() {
        bail!("{name}: nothing is attached");
    }
    for interface in interfaces {
        println!("{interface}: detached");
    }
    Ok(())
}
