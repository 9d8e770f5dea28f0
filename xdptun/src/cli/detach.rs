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
    let ifindex = find(name)?;
    let stopped = stop_daemon(ifindex, name)?;
    let removed = datapath::remove(ifindex)?;
    if !stopped && !removed {
        bail!("{name}: nothing is attached");
    }
    println!("{name}: detached");
    Ok(())
}

/// The index of the interface with that name, or that had it: pins outlive their
/// interface, and there may be a new one of the same name.
fn find(name: &str) -> Result<u32> {
    let interface = Interface::find(name);
    if let Ok(interface) = &interface
        && (Pinned::exists(interface.index)? || datapath::is_attached(name))
    {
        if !Pinned::exists(interface.index)? {
            bail!("{name}: attached, but {}", datapath::PINS_ARE_HIDDEN);
        }
        return Ok(interface.index);
    }
    let mut pinned = Pinned::all()?.into_iter();
    match pinned.find(|pinned| pinned.name() == *name) {
        Some(pinned) => Ok(pinned.ifindex),
        None => Ok(interface?.index),
    }
}

/// How long a daemon may take to close its flows and go.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks a running daemon to end, and waits for it; whether there was one.
fn stop_daemon(ifindex: u32, name: &str) -> Result<bool> {
    let directory = pins::directory(ifindex)?;
    if !InterfaceLock::is_held(&directory).context("cannot look for a running xdptun")? {
        return Ok(false);
    }
    let process = if Pinned::exists(ifindex)? {
        Pinned::daemon(ifindex)?
    } else {
        None
    };
    let process = process.with_context(|| {
        format!("{name}: xdptun is just being attached; try again when it is ready")
    })?;
    kill(process, Signal::SIGTERM)
        .with_context(|| format!("cannot stop process {process}, which is attached to {name}"))?;
    if !InterfaceLock::wait_released(&directory, PATIENCE)? {
        bail!("{name}: process {process} does not end; `kill -9 {process}`, then detach again");
    }
    println!("{name}: stopped process {process}");
    Ok(true)
}
