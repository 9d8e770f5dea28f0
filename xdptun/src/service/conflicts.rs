//! Other processes that keep interfaces of the service, or others with the same ports.

use std::collections::{BTreeMap, BTreeSet};

use nix::net::if_::if_nametoindex;
use nix::unistd::Pid;
use tracing::warn;

use super::Mode;
use crate::config::Config;
use crate::control;
use crate::error::{Result, bail};
use crate::gateway::{self, Gateway};
use crate::group::pinned::{Pinned, daemon_of};
use crate::group::{Function, Incumbent};
use crate::host::addresses::vrf_of;
use crate::nat64::{DEVICE, Nat64};
use crate::policy::Policy;
use crate::tunnel::Tunnel;

/// The process that keeps the interface of that name for a function, if one does.
///
/// # Errors
///
/// If its pins cannot be looked at.
pub fn keeper<F: Function>(name: &str) -> Result<Option<Pid>> {
    match if_nametoindex(name) {
        Ok(ifindex) if Pinned::<F>::exists(ifindex)? => Pinned::<F>::daemon(ifindex),
        _ => Ok(None),
    }
}

/// Whether a process forwards what comes in by an interface of a plan.
///
/// # Errors
///
/// As [`keeper`].
pub fn keeps_gateway(plan: &gateway::Plan) -> Result<bool> {
    for name in plan.listeners() {
        if keeper::<Gateway>(name)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Checks that no other process stands in the way. A process that is asked to leave one
/// interface leaves all that it keeps, and all that it waits for.
///
/// # Errors
///
/// Names the process and the way out.
pub fn check(config: &Config, mode: &Mode) -> Result<()> {
    let service = control::service()?;
    let refuses = mode.incumbent == Incumbent::Respect;
    if let (Some(process), Some(_), true) = (service, &mode.file, refuses) {
        bail!(
            AlreadyAttached,
            "`xdptun run` runs already in this network namespace (process {process}); \
             `xdptun reload` makes it read its file again"
        );
    }
    let mut leaves = BTreeSet::new();
    if config.nat64.is_some() {
        leaves.extend(keeper::<Nat64>(DEVICE)?);
    }
    for (name, interface) in &config.interfaces {
        if interface.has_tunnel() {
            leaves.extend(keeper::<Tunnel>(name)?);
        }
        if interface.has_gateway() {
            leaves.extend(keeper::<Gateway>(name)?);
        }
        if interface.has_policy() {
            leaves.extend(keeper::<Policy>(name)?);
        }
    }
    if let Some(process) = service
        && mode.file.is_none()
        && leaves.contains(&process)
    {
        bail!(
            Conflict,
            "process {process} is `xdptun run`, with a file for all its interfaces; change the \
             file and run `xdptun reload`"
        );
    }
    if refuses {
        return Ok(());
    }
    match service {
        Some(process) if mode.file.is_some() && !leaves.contains(&process) => bail!(
            Conflict,
            "`xdptun run` (process {process}) has none of these interfaces attached, so it would \
             not leave; stop it first"
        ),
        _ => {}
    }
    leaves
        .into_iter()
        .try_for_each(|process| check_rest(config, mode, process))
}

/// Checks that nothing of what a process keeps would have no daemon when it leaves.
fn check_rest(config: &Config, mode: &Mode, process: Pid) -> Result<()> {
    let mut others = Pinned::<Tunnel>::kept_by(process)?;
    others.retain(|name| !config.has_tunnel_on(name));
    // The new gateway takes over the whole group of the old one, by any of its interfaces.
    let kept = Pinned::<Gateway>::kept_by(process)?;
    if !kept.iter().any(|name| config.has_gateway_on(name)) {
        others.extend(kept);
    }
    let kept = Pinned::<Policy>::kept_by(process)?.into_iter();
    others.extend(kept.filter(|name| !config.has_policy_on(name)));
    if config.nat64.is_none() {
        others.extend(Pinned::<Nat64>::kept_by(process)?);
    }
    let Some(first) = others.first() else {
        return Ok(());
    };
    let way_out = match mode.file {
        Some(_) => "put them into the file".to_owned(),
        None => format!(
            "name all of its interfaces (`--iface` may be repeated), or end it \
             (`xdptun detach --iface {first}`)"
        ),
    };
    bail!(
        Conflict,
        "process {process} also keeps {}, which would have no daemon then; {way_out}",
        others.join(", ")
    );
}

/// Interfaces with the same ports that another process keeps.
pub struct Unshared {
    process: Pid,
    interfaces: Vec<String>,
}

impl Unshared {
    /// Warns that only the interfaces of one process share flows.
    pub fn warn(&self, config: &Config) {
        let own: Vec<_> = config.interfaces.keys().map(String::as_str).collect();
        warn!(
            "{}: kept by process {}, so flows are not shared with {}; to share them, name all of \
             these interfaces in one command",
            self.interfaces.join(", "),
            self.process,
            own.join(", ")
        );
    }
}

/// What other processes keep and will go on to keep that could share flows with the
/// configuration: with ports of it, and in the same VRF.
///
/// # Errors
///
/// If pins cannot be read.
pub fn unshared(config: &Config) -> Result<Vec<Unshared>> {
    let vrf = |ifindex| vrf_of(ifindex).ok().flatten();
    let mut kept: BTreeMap<Pid, Vec<String>> = BTreeMap::new();
    for pinned in Pinned::<Tunnel>::all()? {
        let (name, theirs) = (pinned.name(), pinned.group.maps.ports()?);
        let could_share = config.interfaces.iter().any(|(own, interface)| {
            let mut ports = interface.ports.iter();
            ports.any(|port| theirs.iter().any(|range| range.overlaps(port)))
                && if_nametoindex(own.as_str())
                    .is_ok_and(|ifindex| vrf(ifindex) == vrf(pinned.ifindex))
        });
        // A process that is taken over keeps only interfaces of the configuration.
        if config.interfaces.contains_key(&name) || !could_share {
            continue;
        }
        if let Some(process) = daemon_of(&pinned.group.directory)? {
            kept.entry(process).or_default().push(name);
        }
    }
    let unshared = kept.into_iter().map(|(process, interfaces)| Unshared {
        process,
        interfaces,
    });
    Ok(unshared.collect())
}
