//! The end of an attachment, asked for by another process than its daemon.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tracing::info;

use super::function::Function;
use super::pinned::{self, Pinned, daemon_of};
use super::take_over::busy;
use crate::control;
use crate::datapath::engine_maps::EngineMaps;
use crate::datapath::lock::GroupLock;
use crate::datapath::pins;
use crate::datapath::remove::{remove, remove_member};
use crate::error::{Context as _, Result, bail};
use crate::host::interface::{Interface, name_of};
use crate::host::preflight;

/// What was ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detached {
    /// The process that carried the interfaces, if one ran.
    pub stopped: Option<Pid>,
    /// The names of the interfaces that were attached, by index.
    pub interfaces: Vec<String>,
}

/// Ends what is attached to the interface of that name and to all others of its group: asks a
/// running process to end, which closes its flows, and removes what a killed one left. Waits
/// for it.
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
pub fn detach<F: Function>(name: &str) -> Result<Detached> {
    preflight::check()?;
    let ifindex = find::<F>(name)?;
    let kept_as = Pinned::<F>::keeper_name(ifindex, name);
    let group = pins::group_of(F::PROGRAMS, ifindex)?;
    let (mut interfaces, mut known_as) = (vec![name.to_owned()], vec![kept_as.clone()]);
    if let Some(pinned) = Pinned::<F>::open(ifindex).ok().flatten() {
        interfaces = pinned.group.names();
        known_as.extend(pinned.group.members.values().map(pinned::kept_as));
    }
    let (stopped, removed) = match &group {
        Some(group) => {
            let stopped = stop_daemon(group, name, &kept_as)?;
            (stopped, remove(F::PROGRAMS, group)?)
        }
        // Filters may be there without pins.
        None => {
            let no_group = pins::namespace_directory()?;
            let removed = remove_member(F::PROGRAMS, &no_group, ifindex, None)?;
            (None, removed)
        }
    };
    for name in known_as {
        control::forget(F::PROGRAMS.function, &name);
    }
    if stopped.is_none() && !removed {
        interfaces.clear();
    }
    Ok(Detached {
        stopped,
        interfaces,
    })
}

/// Removes what a process that has ended left on the interface of that name and on others of
/// its group. What another one keeps stays.
///
/// # Errors
///
/// If something is there and cannot be removed.
pub fn remove_remains<F: Function>(name: &str) -> Result<()> {
    let Ok(ifindex) = find::<F>(name) else {
        return Ok(());
    };
    let Some(group) = Pinned::<F>::group(ifindex)? else {
        return Ok(());
    };
    match GroupLock::take(&group).with_context(|| format!("cannot lock {name}"))? {
        Some(_lock) => remove(F::PROGRAMS, &group).map(|_| ()),
        None => Ok(()),
    }
}

/// Takes all interfaces but these out of a group that no process keeps. Does nothing if one
/// does, or if another version attached it.
///
/// # Errors
///
/// If something cannot be removed.
pub fn keep_only<F: Function>(group: &Path, stay: &[u32]) -> Result<()> {
    let lock =
        GroupLock::take(group).with_context(|| format!("cannot lock {}", group.display()))?;
    let (Some(_lock), Ok(mut engine)) = (lock, EngineMaps::from_pins(group)) else {
        return Ok(());
    };
    for (ifindex, attachment) in engine.attachments()? {
        let Some(name) = name_of(ifindex).filter(|_| !stay.contains(&ifindex)) else {
            continue;
        };
        remove_member(F::PROGRAMS, group, ifindex, Some(attachment))?;
        engine.forget(ifindex)?;
        engine.clear_row(attachment.row)?;
        info!("{name}: detached from the interfaces that it shared flows with");
    }
    Ok(())
}

/// The index of the interface with that name, or of one that is gone and had it: pins
/// outlive their interface, and there may be a new one of the same name.
fn find<F: Function>(name: &str) -> Result<u32> {
    let interface = Interface::find(name);
    if let Ok(interface) = &interface
        && (Pinned::<F>::exists(interface.index)? || pinned::is_attached(F::PROGRAMS, name))
    {
        if !Pinned::<F>::exists(interface.index)? {
            bail!(
                OtherNamespace,
                "{name}: attached, but {}",
                pinned::PINS_ARE_HIDDEN
            );
        }
        return Ok(interface.index);
    }
    let mut all = Pinned::<F>::all()?.into_iter();
    match all.find(|pinned| pinned.name() == name) {
        Some(pinned) => Ok(pinned.ifindex),
        None => Ok(interface?.index),
    }
}

/// How long a daemon may take to close its flows and go.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks a running daemon, which knows the interface as `kept_as`, to end, and waits
/// for it; which process it was.
fn stop_daemon(group: &Path, name: &str, kept_as: &str) -> Result<Option<Pid>> {
    if !GroupLock::is_held(group).context("cannot look for a running xdptun")? {
        return Ok(None);
    }
    let process = daemon_of(group)?.ok_or_else(|| busy(name))?;
    if control::service()? == Some(process) {
        bail!(
            Conflict,
            "{name}: `xdptun run` (process {process}) keeps it; take {kept_as} out of its file and \
             run `xdptun reload`"
        );
    }
    kill(process, Signal::SIGTERM)
        .with_context(|| format!("cannot stop process {process}, which is attached to {name}"))?;
    if !GroupLock::wait_released(group, PATIENCE)? {
        bail!(
            Busy,
            "{name}: process {process} does not end; `kill -9 {process}`, then detach again"
        );
    }
    Ok(Some(process))
}
