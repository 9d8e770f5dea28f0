//! The end of an attachment, asked for by another process than its daemon.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::pinned::{self, Pinned};
use super::remove::remove;
use crate::control;
use crate::datapath::lock::InterfaceLock;
use crate::datapath::pins;
use crate::error::{Context as _, Error, Kind, Result, bail};
use crate::host::interface::Interface;
use crate::host::preflight;

/// What was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detached {
    /// A running process.
    Stopped(Pid),
    /// The remains of a killed process.
    Remains,
    /// Nothing.
    Nothing,
}

/// Ends what is attached to the interface of that name: asks a running process to
/// end, which closes its flows, and removes what a killed one left. Waits for it.
///
/// # Errors
///
/// If something cannot be removed; and of these [kinds](crate::error::Kind):
///
/// * `NoInterface`: there is no such interface, and none that is gone left pins;
/// * `Conflict`: `xdptun run` keeps it, whose file says so;
/// * `Busy`: the process is just attaching, or does not end;
/// * `OtherNamespace`: it was attached in another mount or PID namespace;
/// * `Permission`: this process lacks a capability.
pub fn detach(name: &str) -> Result<Detached> {
    preflight::check()?;
    let ifindex = find(name)?;
    let kept_as = Pinned::keeper_name(ifindex, name);
    let stopped = stop_daemon(ifindex, name, &kept_as)?;
    let removed = remove(ifindex)?;
    control::forget(&kept_as);
    Ok(match stopped {
        Some(process) => Detached::Stopped(process),
        None if removed => Detached::Remains,
        None => Detached::Nothing,
    })
}

/// Removes what a process that has ended left on the interface of that name. What
/// another one keeps stays.
///
/// # Errors
///
/// If something is there and cannot be removed.
pub fn remove_remains(name: &str) -> Result<()> {
    let Ok(ifindex) = find(name) else {
        return Ok(());
    };
    if !Pinned::exists(ifindex)? {
        return Ok(());
    }
    let directory = pins::directory(ifindex)?;
    match InterfaceLock::take(&directory).with_context(|| format!("cannot lock {name}"))? {
        Some(_lock) => remove(ifindex).map(|_| ()),
        None => Ok(()),
    }
}

/// The index of the interface with that name, or of one that is gone and had it: pins
/// outlive their interface, and there may be a new one of the same name.
fn find(name: &str) -> Result<u32> {
    let interface = Interface::find(name);
    if let Ok(interface) = &interface
        && (Pinned::exists(interface.index)? || pinned::is_attached(name))
    {
        if !Pinned::exists(interface.index)? {
            bail!(
                OtherNamespace,
                "{name}: attached, but {}",
                pinned::PINS_ARE_HIDDEN
            );
        }
        return Ok(interface.index);
    }
    let mut all = Pinned::all()?.into_iter();
    match all.find(|pinned| pinned.name() == name) {
        Some(pinned) => Ok(pinned.ifindex),
        None => Ok(interface?.index),
    }
}

/// How long a daemon may take to close its flows and go.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks a running daemon, which knows the interface as `kept_as`, to end, and waits
/// for it; which process it was.
fn stop_daemon(ifindex: u32, name: &str, kept_as: &str) -> Result<Option<Pid>> {
    let directory = pins::directory(ifindex)?;
    if !InterfaceLock::is_held(&directory).context("cannot look for a running xdptun")? {
        return Ok(None);
    }
    let process = if Pinned::exists(ifindex)? {
        Pinned::daemon(ifindex)?
    } else {
        None
    };
    let process = process.ok_or_else(|| {
        let why = format!("{name}: xdptun is just being attached; try again when it is ready");
        Error::new(Kind::Busy, why)
    })?;
    if control::service()? == Some(process) {
        bail!(
            Conflict,
            "{name}: `xdptun run` (process {process}) keeps it; take {kept_as} out of its file and \
             run `xdptun reload`"
        );
    }
    kill(process, Signal::SIGTERM)
        .with_context(|| format!("cannot stop process {process}, which is attached to {name}"))?;
    if !InterfaceLock::wait_released(&directory, PATIENCE)? {
        bail!(
            Busy,
            "{name}: process {process} does not end; `kill -9 {process}`, then detach again"
        );
    }
    Ok(Some(process))
}
