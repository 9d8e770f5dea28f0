//! What is attached to a group of interfaces: all of it or nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tracing::{debug, warn};
use xdptun_common::attachment::Attachment;

use super::carried::{Carried, Hooks, first_attachment};
use super::function::Function;
use super::loaded::Loaded;
use super::options::Options;
use super::pinned::{self, Pinned, kept_as};
use super::queue::Frame;
use super::take_over::already;
use crate::config::GroChoice;
use crate::datapath::engine_maps::EngineMaps;
use crate::datapath::map::Source;
use crate::datapath::recorder::Recorder;
use crate::datapath::remove::{remove, remove_member};
use crate::datapath::{lock, pins};
use crate::error::{Context as _, Error, Kind, Result, bail};
use crate::host::interface::{Interface, name_of};

/// What is attached to a group of interfaces. Dropping it leaves the programs attached; call
/// [`Attached::detach`] to take them away.
pub struct Attached<F: Function> {
    /// The directory of the group's pins.
    pub(crate) group: PathBuf,
    /// Its interfaces.
    pub interfaces: Vec<Carried>,
    /// Whether another process, or earlier programs of this one, had attached it, and the
    /// daemon has not run since.
    pub adopted: bool,
    /// What is attached, as the maps have it.
    pub engine: EngineMaps,
    /// The maps of the function.
    pub maps: F::Maps,
    /// The programs, for each link layer.
    pub loaded: Vec<Loaded<F>>,
}

impl<F: Function> Attached<F> {
    /// Loads the programs, sets them up and attaches them to interfaces, of which there is at
    /// least one. The caller holds the group's lock. On failure everything that was made is
    /// removed again.
    ///
    /// # Errors
    ///
    /// Names the step, the cause, and where one can be told the way out.
    pub fn new(
        group: &Path,
        interfaces: Vec<Interface>,
        options: &Options<F::Settings>,
    ) -> Result<Self> {
        let attached = Self::load(group, &interfaces, options).and_then(|mut attached| {
            for interface in interfaces {
                attached.refuse_twin(&interface)?;
                attached.attach(interface, options)?;
            }
            pins::share(group)?;
            Ok(attached)
        });
        attached.map_err(|error| match remove(F::PROGRAMS, group) {
            Ok(_) => error,
            Err(leftover) => {
                error.context(format!("and the clean-up failed as well: {leftover:#}"))
            }
        })
    }

    /// Puts this version's programs, set up anew, in the place of those that a process left
    /// attached, one by one and without a gap; the function's maps and the counters stay.
    /// Interfaces that are gone stay in the group. The caller holds the group's lock. On
    /// failure what is attached stays so.
    ///
    /// # Errors
    ///
    /// If the options contradict what is attached, or as [`Attached::new`].
    pub fn adopt(group: &Path, options: &Options<F::Settings>) -> Result<Self> {
        let mut present = Vec::new();
        let mut gone = Vec::new();
        for pinned in Pinned::<F>::of_group(group)? {
            options.check(&pinned).with_context(|| pinned.kept_as())?;
            let Pinned {
                ifindex,
                attachment,
                ..
            } = pinned;
            match Interface::at(ifindex) {
                Ok(interface) => present.push((interface, attachment)),
                Err(error) if error.kind() == Kind::NoInterface => {
                    gone.push(Carried::gone(ifindex, &attachment));
                }
                Err(error) => return Err(error),
            }
        }
        let interfaces: Vec<_> = present.iter().map(|(one, _)| one.clone()).collect();
        let mut attached = Self::load(group, &interfaces, options)?;
        for (interface, attachment) in present {
            let mut hooks = attached.hooks(interface.link_len, options.gro)?;
            let attachment = hooks.replace(&interface, attachment)?;
            let name = kept_as(&attachment);
            let carried = Carried::of(interface, name, &attachment);
            attached.interfaces.push(carried);
        }
        attached.interfaces.extend(gone);
        F::tidy(&mut attached.maps, &options.settings)?;
        pins::share(group)?;
        attached.adopted = true;
        Ok(attached)
    }

    /// Loads the programs for the link layers of these interfaces.
    fn load(
        group: &Path,
        interfaces: &[Interface],
        options: &Options<F::Settings>,
    ) -> Result<Self> {
        let Some(first) = interfaces.first() else {
            bail!(NoInterface, "none of the interfaces exists");
        };
        let mut loaded = Loaded::<F>::new(first, options, group)?;
        let source = &mut Source::Object(&mut loaded.ebpf);
        let mut engine = EngineMaps::open(source)?;
        let mut maps = F::maps(source)?;
        // Before anything is attached: whatever ends this process, another one can remove it.
        engine.own()?;
        F::set_up(&mut maps, &loaded.own, &options.settings)?;
        let mut attached = Self {
            group: group.to_owned(),
            interfaces: Vec::new(),
            adopted: false,
            engine,
            maps,
            loaded: vec![loaded],
        };
        for interface in interfaces {
            attached.load_programs(interface, options)?;
        }
        // Before the programs run, and of all interfaces: those of another process may run.
        let indices: Vec<_> = interfaces.iter().map(|one| one.index).collect();
        F::interfaces_changed(&mut attached, &indices)?;
        Ok(attached)
    }

    /// Loads the programs for the link layer of an interface, unless they are; returns whether
    /// it did.
    fn load_programs(
        &mut self,
        interface: &Interface,
        options: &Options<F::Settings>,
    ) -> Result<bool> {
        let is_for = |loaded: &Loaded<F>| loaded.link_len == interface.link_len;
        if self.loaded.iter().any(is_for) {
            return Ok(false);
        }
        let loaded = Loaded::new(interface, options, &self.group)?;
        self.loaded.push(loaded);
        Ok(true)
    }

    /// The same, and tells all programs of the interface.
    fn load_for(&mut self, interface: &Interface, options: &Options<F::Settings>) -> Result<bool> {
        if !self.load_programs(interface, options)? {
            return Ok(false);
        }
        let indices: Vec<_> = self
            .indices()
            .into_iter()
            .chain([interface.index])
            .collect();
        F::interfaces_changed(self, &indices)?;
        Ok(true)
    }

    /// Attaches to one more interface; returns whether it loaded programs for its link layer.
    /// On failure everything that was made there is removed again.
    ///
    /// # Errors
    ///
    /// As [`Attached::new`]; [`Kind::AlreadyAttached`] if the interface is in another group.
    pub fn join(&mut self, interface: Interface, options: &Options<F::Settings>) -> Result<bool> {
        self.refuse_twin(&interface)?;
        let index = interface.index;
        if !lock::join(F::PROGRAMS, &self.group, index)? {
            bail!(AlreadyAttached, "{}", already(&interface.name));
        }
        // The programs that an earlier attempt put there stay if this one fails.
        let was_attached = self.engine.attachment(index)?.is_some();
        let joined = self.attach(interface, options).and_then(|loaded| {
            self.refresh()?;
            Ok(loaded)
        });
        if joined.is_err() && !was_attached {
            self.leave(index)?;
        }
        joined
    }

    /// Refuses a second name of an interface of the group.
    fn refuse_twin(&self, interface: &Interface) -> Result<()> {
        let name = &interface.name;
        match self.at(interface.index) {
            Some(same) if same.kept_as != *name => bail!(
                Invalid,
                "{name} and {} are the same interface; leave one of them out",
                same.kept_as
            ),
            _ => Ok(()),
        }
    }

    /// Attaches to an interface whose directory is in the group.
    fn attach(&mut self, interface: Interface, options: &Options<F::Settings>) -> Result<bool> {
        let index = interface.index;
        let loaded = self.load_for(&interface, options)?;
        let row = match self.engine.attachment(index)? {
            Some(before) => before.row,
            None if pinned::is_attached(F::PROGRAMS, &interface.name) => {
                bail!(
                    OtherNamespace,
                    "{}: attached, but {}",
                    interface.name,
                    pinned::PINS_ARE_HIDDEN
                );
            }
            None => self.engine.free_row()?,
        };
        let attachment = first_attachment::<F>(&interface, options, row)?;
        let mut hooks = self.hooks(interface.link_len, options.gro)?;
        let carried = hooks.attach(interface, options.ingress, attachment)?;
        self.interfaces.retain(|one| one.interface.index != index);
        self.interfaces.push(carried);
        Ok(loaded)
    }

    /// Goes over to the interface that was made anew under the name of one that is gone;
    /// returns whether it loaded programs for its link layer.
    ///
    /// # Errors
    ///
    /// As [`Attached::new`]; what the map tells may then be of either.
    pub fn follow(
        &mut self,
        gone: u32,
        interface: Interface,
        options: &Options<F::Settings>,
    ) -> Result<bool> {
        let new = interface.index;
        let loaded = self.load_for(&interface, options)?;
        let Some(old) = self.engine.attachment(gone)? else {
            bail!(
                Other,
                "what is attached to {} is not in the map",
                interface.name
            );
        };
        if !lock::join(F::PROGRAMS, &self.group, new)? {
            bail!(
                AlreadyAttached,
                "{}: another xdptun is attached",
                interface.name
            );
        }
        let mut hooks = self.hooks(interface.link_len, options.gro)?;
        let attachment = match hooks.put_tc_first(&interface, old) {
            Ok(attachment) => attachment,
            Err(error) if gone == new => return Err(error),
            // Perhaps it is gone again.
            Err(error) => {
                self.strip(new)?;
                return Err(error);
            }
        };
        let carried = Carried::of(interface.clone(), kept_as(&attachment), &attachment);
        self.interfaces.retain(|one| one.interface.index != gone);
        self.interfaces.push(carried);
        // One that was in another network namespace has its programs still, and they were
        // replaced.
        if gone != new {
            // Only now, as it takes time. Programs of the old interface may live on, at the
            // splitter or in another network namespace.
            self.strip(gone)?;
        }
        self.hooks(interface.link_len, options.gro)?
            .replace(&interface, attachment)?;
        // It is carried, whatever becomes of this.
        if let Err(error) = self.refresh() {
            warn!("{}: {error:#}", interface.name);
        }
        Ok(loaded)
    }

    /// Takes the programs off one interface; what the group carries stays.
    ///
    /// # Errors
    ///
    /// If something cannot be removed.
    pub fn leave(&mut self, ifindex: u32) -> Result<()> {
        if let Some(attachment) = self.strip(ifindex)? {
            self.engine.clear_row(attachment.row)?;
            F::clear_row(&mut self.maps, attachment.row)?;
        }
        self.interfaces.retain(|one| one.interface.index != ifindex);
        Ok(())
    }

    /// Removes what is on an interface, and its attachment from the map; returns that.
    fn strip(&mut self, ifindex: u32) -> Result<Option<Attachment>> {
        let attachment = self.engine.attachment(ifindex)?;
        remove_member(F::PROGRAMS, &self.group, ifindex, attachment)?;
        self.engine.forget(ifindex)?;
        Ok(attachment)
    }

    /// After a change of the interfaces: shares the pins, and tells the programs.
    fn refresh(&mut self) -> Result<()> {
        let indices = self.indices();
        F::interfaces_changed(self, &indices)?;
        pins::share(&self.group)
    }

    /// The programs for a link layer, and what attaching them needs.
    fn hooks(&mut self, link_len: u32, gro: GroChoice) -> Result<Hooks<'_, F>> {
        let mut all = self.loaded.iter_mut();
        let loaded = all.find(|loaded| loaded.link_len == link_len);
        let missing = || Error::new(Kind::Other, "the programs for its link layer are missing");
        Ok(Hooks {
            group: &self.group,
            loaded: loaded.ok_or_else(missing)?,
            engine: &mut self.engine,
            gro,
        })
    }

    /// The directory of the group's pins.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.group
    }

    /// The names that the configuration has for interfaces, by index, whatever they are called by
    /// now.
    ///
    /// # Errors
    ///
    /// If it cannot be read what is attached.
    pub fn names_of(&self, interfaces: &[u32]) -> Result<BTreeMap<u32, String>> {
        let mut names = BTreeMap::new();
        for index in interfaces {
            let known = self.engine.attachment(*index)?;
            let known = known.map(|attachment| kept_as(&attachment));
            if let Some(name) = known.or_else(|| name_of(*index)) {
                names.insert(*index, name);
            }
        }
        Ok(names)
    }

    /// The indices of the interfaces that are there.
    #[must_use]
    pub fn indices(&self) -> Vec<u32> {
        self.present().map(|one| one.interface.index).collect()
    }

    /// The interfaces that are there.
    pub fn present(&self) -> impl Iterator<Item = &Carried> {
        self.interfaces.iter().filter(|one| one.is_there)
    }

    /// The interface with this index, if it is there.
    #[must_use]
    pub fn at(&self, ifindex: u32) -> Option<&Carried> {
        self.present().find(|one| one.interface.index == ifindex)
    }

    /// Counts frames that were lost while they waited with the daemon.
    pub fn count_all_lost(&mut self, frames: &[Frame]) {
        for part in frames.chunk_by(|one, next| one.interface == next.interface) {
            self.count_lost(part[0].interface, part.len() as u64);
        }
    }

    /// Counts frames of an interface that were lost while they waited with the daemon.
    pub fn count_lost(&mut self, ifindex: u32, frames: u64) {
        let engine = &mut self.engine;
        let counted = engine.attachment(ifindex).and_then(|attachment| {
            let Some(mut attachment) = attachment else {
                return Ok(());
            };
            attachment.lost_in_queue += frames;
            Ok(engine.set_attachment(ifindex, attachment)?)
        });
        if let Err(error) = counted {
            debug!("cannot count lost frames: {error:#}");
        }
    }

    /// The copies of packets that its programs make, if they make any.
    pub(super) fn take_recorder(&mut self) -> Option<Recorder> {
        let mut all = self.loaded.iter_mut();
        all.find_map(|loaded| loaded.recorder.take())
    }

    /// Takes the programs off all interfaces and removes all pins.
    ///
    /// # Errors
    ///
    /// If something cannot be removed.
    pub fn detach(self) -> Result<()> {
        remove(F::PROGRAMS, &self.group).map(|_| ())
    }
}
