//! Other processes that keep interfaces of the service, or others with the same ports.

use std::collections::{BTreeMap, BTreeSet};

use nix::net::if_::if_nametoindex;
use nix::unistd::Pid;
use tracing::warn;

use super::Mode;
use crate::config::Config;
use crate::control;
use crate::error::{Result, bail};
use crate::group::Incumbent;
use crate::group::pinned::daemon_of;
use crate::host::addresses::vrf_of;
use crate::tunnel::Pinned;

/// The process that keeps the interface of that name, if one does.
///
/// # Errors
///
/// If its pins cannot be looked at.
pub fn keeper(name: &str) -> Result<Option<Pid>> {
    match if_nametoindex(name) {
        Ok(ifindex) if Pinned::exists(ifindex)? => Pinned::daemon(ifindex),
        _ => Ok(None),
    }
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
    if refuses {
        return Ok(());
    }
    let mut leaves = BTreeSet::new();
    for name in config.interfaces.keys() {
        leaves.extend(keeper(name)?);
    }
    match service {
        Some(process) if mode.file.is_none() && leaves.contains(&process) => bail!(
            Conflict,
            "process {process} is `xdptun run`, with a file for all its interfaces; change the \
             file and run `xdptun reload`"
        ),
        Some(process) if mode.file.is_some() && !leaves.contains(&process) => bail!(
            Conflict,
            "`xdptun run` (process {process}) has none of these interfaces attached, so it would \
             not leave; stop it first"
        ),
        _ => {}
    }
    for process in leaves {
        let mut others = Pinned::kept_by(process)?;
        others.retain(|other| !config.interfaces.contains_key(other));
        if !others.is_empty() {
            let way_out = match mode.file {
                Some(_) => "put them into the file".to_owned(),
                None => format!(
                    "name all of its interfaces (`--iface` may be repeated), or end it \
                     (`xdptun detach --iface {}`)",
                    others[0]
                ),
            };
            bail!(
                Conflict,
                "process {process} also keeps {}, which would have no daemon then; {way_out}",
                others.join(", ")
            );
        }
    }
    Ok(())
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
    for pinned in Pinned::all()? {
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
