//! `xdptun detach`: end an attachment, or remove what a killed one left.

use anyhow::{Context as _, Result, bail};
use clap::Args;
use nix::sys::signal::{Signal, kill};

use crate::datapath::{self, Pinned};
use crate::interface::Interface;
use crate::lock::InterfaceLock;
use crate::preflight;

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
    preflight::check()?;
    let name = &arguments.iface;
    let ifindex = match Interface::find(name) {
        Ok(interface) => interface.index,
        // Pins outlive their interface; find them by the name it had.
        Err(error) => match Pinned::all()?
            .into_iter()
            .find(|pinned| pinned.name() == *name)
        {
            Some(pinned) => pinned.ifindex,
            None => return Err(error),
        },
    };
    let stopped =
        match InterfaceLock::holder(ifindex).context("cannot look for a running xdptun")? {
            None => false,
            Some(process) => {
                kill(process, Signal::SIGTERM).with_context(|| {
                    format!("cannot stop process {process}, which is attached to {name}")
                })?;
                InterfaceLock::wait_released(ifindex)
                    .with_context(|| format!("cannot wait for process {process} to stop"))?;
                println!("{name}: stopped process {process}");
                true
            }
        };
    let removed = datapath::remove(ifindex, name)?;
    if !stopped && !removed {
        bail!("{name}: nothing is attached");
    }
    println!("{name}: detached");
    Ok(())
}
