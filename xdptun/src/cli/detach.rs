//! `xdptun detach`: end an attachment, or remove what a killed one left.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use nix::sys::signal::{Signal, kill};

use crate::datapath::{self, Pinned, pins};
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
    let stopped = stop_daemon(ifindex, name)?;
    let removed = datapath::remove(ifindex)?;
    if !stopped && !removed {
        bail!("{name}: nothing is attached");
    }
    println!("{name}: detached");
    Ok(())
}

/// How long a daemon may take to close its flows and go.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks a running daemon to end, and waits for it; whether there was one.
fn stop_daemon(ifindex: u32, name: &str) -> Result<bool> {
    let directory = pins::directory(ifindex)?;
    if !InterfaceLock::is_held(&directory).context("cannot look for a running xdptun")? {
        return Ok(false);
    }
    let Some(pinned) = Pinned::open(ifindex)? else {
        bail!("{name}: xdptun is just being attached; try again when it is ready");
    };
    let process = pinned
        .daemon()?
        .context("the running xdptun has not said which process it is")?;
    kill(process, Signal::SIGTERM)
        .with_context(|| format!("cannot stop process {process}, which is attached to {name}"))?;
    if !InterfaceLock::wait_released(&directory, PATIENCE)? {
        bail!("{name}: process {process} does not end; `kill -9 {process}`, then detach again");
    }
    println!("{name}: stopped process {process}");
    Ok(true)
}
