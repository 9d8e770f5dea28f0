//! What is attached, as its pins tell.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aya::programs::SchedClassifier;
use nix::net::if_::if_nameindex;
use nix::unistd::Pid;
use xdptun_common::attachment::{Attachment, Filters, IngressMode};
use xdptun_common::report::outcome::CounterValue;

use super::counter::{Counter, Counts, KeptIn};
use super::function::Function;
use crate::datapath::engine_maps::{EngineMaps, owner};
use crate::datapath::lock::GroupLock;
use crate::datapath::map::Source;
use crate::datapath::pins;
use crate::datapath::programs::{Programs, TcProgram};
use crate::error::{Context as _, Error, Kind, Result, bail};
use crate::host::interface::name_of;

/// What a function has attached to one interface of this network namespace as the pins tell,
/// whether or not its daemon lives.
pub struct Pinned<F: Function> {
    /// Index of the interface.
    pub ifindex: u32,
    /// What was set up there.
    pub attachment: Attachment,
    /// The group that it is in.
    pub group: Arc<PinnedGroup<F>>,
}

/// A group of interfaces, as its pins tell.
pub struct PinnedGroup<F: Function> {
    /// The directory of its pins.
    pub directory: PathBuf,
    /// What was set up on each of its interfaces, by index.
    pub members: BTreeMap<u32, Attachment>,
    /// What is attached, as the maps have it.
    pub engine: EngineMaps,
    /// The maps of the function.
    pub maps: F::Maps,
}

impl<F: Function> PinnedGroup<F> {
    /// The group whose pins are in this directory.
    ///
    /// # Errors
    ///
    /// If pins cannot be read, or another version wrote them.
    pub fn open(directory: &Path) -> Result<Self> {
        let engine = EngineMaps::from_pins(directory)?;
        Ok(Self {
            directory: directory.to_owned(),
            members: engine.attachments()?,
            engine,
            maps: F::maps(&mut Source::Pins(directory))?,
        })
    }

    /// The names of all its interfaces, by index.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let members = self.members.iter();
        let named = |(ifindex, attachment): (&u32, &Attachment)| {
            name_of(*ifindex).unwrap_or_else(|| kept_as(attachment))
        };
        members.map(named).collect()
    }
}

impl<F: Function> Pinned<F> {
    /// What is attached to one interface, if anything is.
    ///
    /// # Errors
    ///
    /// If pins exist that cannot be read, or that another version wrote.
    pub fn open(ifindex: u32) -> Result<Option<Self>> {
        let Some(group) = Self::group(ifindex)? else {
            return Ok(None);
        };
        let mut all = Self::of_group(&group)?.into_iter();
        Ok(all.find(|pinned| pinned.ifindex == ifindex))
    }

    /// What is attached to each interface of the group whose pins are in this directory.
    pub(super) fn of_group(directory: &Path) -> Result<Vec<Self>> {
        let group = Arc::new(PinnedGroup::open(directory)?);
        let members = group.members.iter();
        let all = members.map(|(ifindex, attachment)| Self {
            ifindex: *ifindex,
            attachment: *attachment,
            group: Arc::clone(&group),
        });
        Ok(all.collect())
    }

    /// Every attachment of this network namespace, by interface index.
    ///
    /// # Errors
    ///
    /// As [`Pinned::open`].
    pub fn all() -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for group in pins::groups(F::PROGRAMS)? {
            if pins::has_maps(&group)? {
                all.extend(Self::of_group(&group)?);
            }
        }
        all.sort_unstable_by_key(|pinned| pinned.ifindex);
        Ok(all)
    }

    /// The directory of the pins of the group that an interface is in, if there are any,
    /// readable or not.
    ///
    /// # Errors
    ///
    /// If the network namespace cannot be identified, or the pins cannot be looked at.
    pub fn group(ifindex: u32) -> Result<Option<PathBuf>> {
        match pins::group_of(F::PROGRAMS, ifindex)? {
            Some(group) if pins::has_maps(&group)? => Ok(Some(group)),
            _ => Ok(None),
        }
    }

    /// The interfaces of this network namespace that have pins, in order.
    ///
    /// # Errors
    ///
    /// As [`Pinned::group`].
    pub fn interfaces() -> Result<BTreeSet<u32>> {
        let mut interfaces = BTreeSet::new();
        for group in pins::groups(F::PROGRAMS)? {
            interfaces.extend(pins::members(&group)?);
        }
        Ok(interfaces)
    }

    /// Whether it is the first interface of its group, for which counts what none has.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.group.members.keys().next() == Some(&self.ifindex)
    }

    /// Its counters by name, summed over the CPUs.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn counters(&self) -> Result<Counts> {
        let value = |counter: Counter| {
            let value = match counter.kept_in {
                KeptIn::Row(index) => self.group.engine.counter(self.attachment.row, index)?,
                KeptIn::Attachment => CounterValue {
                    count: self.attachment.lost_in_queue,
                    bytes: 0,
                },
            };
            Ok((counter, value))
        };
        F::counters().into_iter().map(value).collect()
    }

    /// The interface's name. If it is gone, the name under which its daemon waits
    /// for it.
    #[must_use]
    pub fn name(&self) -> String {
        name_of(self.ifindex).unwrap_or_else(|| self.kept_as())
    }

    /// The name by which its daemon knows the interface: the one that it had when
    /// that daemon began, whatever it is called by now.
    #[must_use]
    pub fn kept_as(&self) -> String {
        kept_as(&self.attachment)
    }

    /// The same of an interface with that name: if nothing of this version is
    /// attached, its name.
    #[must_use]
    pub fn keeper_name(ifindex: u32, name: &str) -> String {
        let pinned = Self::open(ifindex).ok().flatten();
        pinned.map_or_else(|| name.to_owned(), |pinned| pinned.kept_as())
    }

    /// What holds the tc programs.
    #[must_use]
    pub fn filters(&self) -> Filters {
        Filters::from_raw(self.attachment.filters).unwrap_or(Filters::Clsact)
    }

    /// Which program restores inbound data.
    #[must_use]
    pub fn ingress(&self) -> IngressMode {
        IngressMode::from_raw(self.attachment.ingress).unwrap_or(IngressMode::Tc)
    }
}

impl<F: Function> Pinned<F> {
    /// Whether an interface has pins, readable or not.
    ///
    /// # Errors
    ///
    /// As [`Pinned::group`].
    pub fn exists(ifindex: u32) -> Result<bool> {
        Ok(Self::group(ifindex)?.is_some())
    }

    /// The process that keeps an interface, whichever version of xdptun that is, if it lives.
    ///
    /// # Errors
    ///
    /// If the lock or the map of the owner cannot be looked at.
    pub fn daemon(ifindex: u32) -> Result<Option<Pid>> {
        match Self::group(ifindex)? {
            Some(group) => daemon_of(&group),
            None => Ok(None),
        }
    }

    /// The names by which a process knows the interfaces that it keeps: at one of them it listens,
    /// if it has no file.
    ///
    /// # Errors
    ///
    /// As [`Pinned::daemon`] and [`Pinned::open`].
    pub fn names_of(process: Pid) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for group in pins::groups(F::PROGRAMS)? {
            if pins::has_maps(&group)? && daemon_of(&group)? == Some(process) {
                let attachments = EngineMaps::from_pins(&group)?.attachments()?;
                names.extend(attachments.values().map(kept_as));
            }
        }
        Ok(names)
    }

    /// The names of all interfaces of this network namespace that a process keeps,
    /// whichever version of xdptun that is.
    ///
    /// # Errors
    ///
    /// As [`Pinned::daemon`].
    pub fn kept_by(process: Pid) -> Result<Vec<String>> {
        let mut kept = Vec::new();
        for group in pins::groups(F::PROGRAMS)? {
            if pins::has_maps(&group)? && daemon_of(&group)? == Some(process) {
                kept.extend(pins::members(&group)?.into_iter().filter_map(name_of));
            }
        }
        Ok(kept)
    }

    /// Where programs are attached now. By the kernel's word where there is a
    /// query for it: a hook that another program emptied is not listed.
    #[must_use]
    pub fn hooks(&self) -> Vec<String> {
        let name = self.name();
        let clsact = self.filters() != Filters::Tcx;
        let mut hooks = Vec::new();
        for (which, program) in F::PROGRAMS.on_interface() {
            let attached = clsact || has_tcx_program(&name, which, program);
            if attached {
                let direction = match which {
                    TcProgram::Egress => "egress",
                    TcProgram::Ingress | TcProgram::Splitter | TcProgram::Joiner => "ingress",
                };
                hooks.push(format!(
                    "tc {direction} ({})",
                    if clsact { "clsact" } else { "TCX" }
                ));
            }
        }
        if self.ingress() != IngressMode::Tc {
            hooks.push(self.ingress().name().to_owned());
        }
        hooks
    }
}

/// The process that keeps a group, whichever version of xdptun that is, if it lives.
///
/// # Errors
///
/// If the lock or the map of the owner cannot be looked at.
pub fn daemon_of(group: &Path) -> Result<Option<Pid>> {
    if !GroupLock::is_held(group).context("cannot look at the lock")? {
        return Ok(None);
    }
    // Until the map names a process, the group is just being attached.
    if !pins::has_maps(group)? || owner(group)?.pid == 0 {
        return Ok(None);
    }
    match GroupLock::holder(group).context("cannot look at the lock")? {
        Some(holder) => Ok(Some(holder)),
        None => bail!(
            OtherNamespace,
            "{} is kept by a process of another PID namespace; run this there",
            group.display()
        ),
    }
}

/// The name of an interface in its attachment.
pub fn kept_as(attachment: &Attachment) -> String {
    let name = &attachment.name;
    let len = name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(name.len());
    // Pins may be another user's: nothing of theirs commands a terminal, or is the path of a
    // file.
    let name = String::from_utf8_lossy(&name[..len]);
    name.replace(|letter: char| letter.is_control() || letter == '/', "?")
}

/// The name of an interface as an attachment has it.
pub fn name_bytes(name: &str) -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    bytes
        .get_mut(..name.len())
        .ok_or_else(|| Error::new(Kind::Invalid, "interface name too long"))?
        .copy_from_slice(name.as_bytes());
    Ok(bytes)
}

/// Whether one of the tc programs is attached to an interface through TCX, by
/// the kernel's word: pins of another mount namespace cannot be seen.
#[must_use]
pub fn is_attached(programs: &Programs, interface: &str) -> bool {
    let mut on_interface = programs.on_interface();
    on_interface.any(|(which, program)| has_tcx_program(interface, which, program))
}

/// The way out where pins cannot be seen: appended to what names the interface.
pub const PINS_ARE_HIDDEN: &str = "the pins are not in this mount namespace; \
     run this where it was attached (not through `ip netns exec`, which hides them)";

/// The names of interfaces whose programs are attached through TCX, but whose
/// pins this process cannot see.
///
/// # Errors
///
/// If the interfaces cannot be listed.
pub fn unseen<F: Function>() -> Result<Vec<String>> {
    let interfaces = if_nameindex().context("cannot list the interfaces")?;
    let mut unseen = Vec::new();
    for interface in &interfaces {
        let name = interface.name().to_string_lossy().into_owned();
        if is_attached(F::PROGRAMS, &name) && !Pinned::<F>::exists(interface.index())? {
            unseen.push(name);
        }
    }
    Ok(unseen)
}

fn has_tcx_program(interface: &str, which: TcProgram, program: &str) -> bool {
    SchedClassifier::query_tcx(interface, which.hook()).is_ok_and(|(_, programs)| {
        let mut programs = programs.iter();
        programs.any(|info| info.name_as_str() == Some(program))
    })
}
