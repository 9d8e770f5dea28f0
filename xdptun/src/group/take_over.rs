//! The lock of a group, and how one process takes it over from another.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};

use super::function::Function;
use super::options::Options;
use super::pinned::{self, Pinned, daemon_of};
use crate::datapath::lock::{self, GroupLock};
use crate::datapath::pins;
use crate::datapath::programs::Programs;
use crate::error::{Context as _, Error, Kind, Result, bail};
use crate::host::interface::{Interface, name_of};

/// The signal that asks a process to leave all its interfaces to another. A version that
/// does not know it dies of it, with the same effect.
pub const TAKE_OVER: Signal = Signal::SIGUSR2;

/// How long a daemon may take to leave.
const HANDOVER: Duration = Duration::from_secs(5);

/// What becomes of a running xdptun in whose place this one shall be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Incumbent {
    /// It stays, and this one is refused.
    #[default]
    Respect,
    /// It leaves its flows to this one, without a gap.
    TakeOver,
}

/// The directory and the lock of the group of these interfaces: the one that a process left,
/// or a new one. With [`Incumbent::TakeOver`], takes it from a running daemon that these
/// options fit.
pub fn take_group<F: Function>(
    interfaces: &[Interface],
    incumbent: Incumbent,
    options: &Options<F::Settings>,
) -> Result<(PathBuf, GroupLock)> {
    let mut groups = BTreeSet::new();
    for interface in interfaces {
        groups.extend(pins::group_of(F::PROGRAMS, interface.index)?);
    }
    let mut groups = groups.into_iter();
    match (groups.next(), groups.next()) {
        (None, _) => make_group(F::PROGRAMS, interfaces),
        (Some(group), None) => {
            let lock = take_lock::<F>(interfaces, &group, incumbent, options)?;
            Ok((group, lock))
        }
        (Some(_), Some(_)) => bail!(
            Conflict,
            "{} are attached already, in several groups, which do not share flows; detach them \
             first, then attach them together",
            names(interfaces)
        ),
    }
}

fn names(interfaces: &[Interface]) -> String {
    let names: Vec<_> = interfaces.iter().map(|one| one.name.as_str()).collect();
    names.join(", ")
}

/// The words for an interface that another process keeps.
pub fn already(name: &str) -> String {
    format!(
        "{name}: xdptun is already attached; `xdptun status` shows it, `--take-over` takes its \
         place without a gap, `xdptun detach --iface {name}` ends it"
    )
}

/// The error for an interface that a process has locked, and has not attached yet.
pub fn busy(name: &str) -> Error {
    let why = format!("{name}: xdptun is just being attached; try again when it is ready");
    Error::new(Kind::Busy, why)
}

fn make_group(programs: &Programs, interfaces: &[Interface]) -> Result<(PathBuf, GroupLock)> {
    for Interface { name, .. } in interfaces {
        if pinned::is_attached(programs, name) {
            let already = already(name);
            bail!(
                OtherNamespace,
                "{already}; its pins are not in this mount namespace"
            );
        }
    }
    let indices: Vec<_> = interfaces.iter().map(|one| one.index).collect();
    let made = lock::create_group(programs, &indices)?;
    made.ok_or_else(|| busy(&names(interfaces)))
}

fn take_lock<F: Function>(
    interfaces: &[Interface],
    group: &Path,
    incumbent: Incumbent,
    options: &Options<F::Settings>,
) -> Result<GroupLock> {
    let members = pins::members(group)?;
    let mut of_group = interfaces.iter().filter(|one| members.contains(&one.index));
    let name = of_group.next().map_or("", |one| &one.name);
    let take =
        || GroupLock::take(group).with_context(|| format!("cannot lock {}", group.display()));
    let lock = match (take()?, incumbent) {
        (None, Incumbent::TakeOver) => {
            // Before the other daemon leaves.
            check_members(interfaces, &members)?;
            let pinned = Pinned::<F>::of_group(group)?;
            if pinned.is_empty() {
                return Err(busy(name));
            }
            for pinned in pinned {
                options.check(&pinned).with_context(|| pinned.name())?;
            }
            let process = daemon_of(group)?.ok_or_else(|| busy(name))?;
            kill(process, TAKE_OVER)
                .with_context(|| format!("{name}: cannot ask process {process} to leave"))?;
            if !GroupLock::wait_released(group, HANDOVER)? {
                bail!(
                    Busy,
                    "{name}: process {process} does not leave; nothing was changed"
                );
            }
            take()?
        }
        (Some(lock), _) => {
            // What has no maps was never complete: its interfaces need not stay together.
            if pins::has_maps(group)? {
                check_members(interfaces, &members)?;
            }
            Some(lock)
        }
        (lock, _) => lock,
    };
    lock.ok_or_else(|| Error::new(Kind::AlreadyAttached, already(name)))
}

/// Checks that all members of a group that are there are among `interfaces`: the others would
/// be without a daemon.
fn check_members(interfaces: &[Interface], members: &[u32]) -> Result<()> {
    let is_named = |ifindex: &&u32| interfaces.iter().any(|one| one.index == **ifindex);
    let (named, others): (Vec<_>, Vec<_>) = members.iter().partition(is_named);
    let [named, others] = [named, others].map(|indices| {
        indices
            .into_iter()
            .filter_map(|one: &u32| name_of(*one))
            .collect::<Vec<_>>()
    });
    if others.is_empty() {
        return Ok(());
    }
    bail!(
        CannotChange,
        "{} is attached in one group with {}: name all of them (`--iface` repeated, or equal \
         tables in the file), or detach first (`xdptun detach --iface {}`)",
        named.join(", "),
        others.join(", "),
        others[0]
    )
}
