//! Loading and attaching: all of it or nothing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use aya::maps::{MapData, RingBuf};
use tracing::warn;
use xdptun_common::attachment::Group;

use super::FUNCTION;
use super::carried::{self, Carried, first_record, put_on_hooks};
use super::load::{Programs, prepare, prepare_more};
use super::maps::Maps;
use super::options::AttachOptions;
use super::pinned::{self, Pinned, kept_as};
use super::take_over::already;
use crate::datapath::recorder::Recorder;
use crate::datapath::remove::{remove, remove_member};
use crate::datapath::{lock, pins, splitter};
use crate::error::{Context as _, Error, Kind, Result, bail};
use crate::host::addresses::{self, Addresses};
use crate::host::interface::Interface;

/// What is attached to a group of interfaces. Dropping it leaves the programs attached; call
/// [`Attached::detach`] to take them away.
pub struct Attached {
    /// The directory of the group's pins.
    pub(super) group: PathBuf,
    /// Its interfaces.
    pub interfaces: Vec<Carried>,
    /// How many flows were there already.
    pub adopted: Option<usize>,
    /// The maps.
    pub maps: Maps,
    /// The programs, for each link layer.
    pub programs: Vec<Programs>,
    /// The records of the programs.
    pub events: Option<RingBuf<MapData>>,
}

impl Attached {
    /// Loads the programs, sets them up and attaches them to interfaces, of which there is at
    /// least one. The caller holds the group's lock. On failure everything that was made is
    /// removed again.
    ///
    /// # Errors
    ///
    /// Names the step, the cause, and where one can be told the way out.
    pub fn new(group: &Path, interfaces: Vec<Interface>, options: &AttachOptions) -> Result<Self> {
        let attached = Self::load(group, &interfaces, options, None).and_then(|mut attached| {
            for interface in interfaces {
                attached.join(interface, options)?;
            }
            Ok(attached)
        });
        attached.map_err(|error| match remove(&FUNCTION, group) {
            Ok(_) => error,
            Err(leftover) => {
                error.context(format!("and the clean-up failed as well: {leftover:#}"))
            }
        })
    }

    /// Puts this version's programs, set up anew, in the place of those that a process left
    /// attached, one by one and without a gap; flows and counters stay. Interfaces that are
    /// gone stay in the group. The caller holds the group's lock. On failure what is attached
    /// stays so.
    ///
    /// # Errors
    ///
    /// If the options contradict what is attached, or as [`Attached::new`].
    pub fn adopt(group: &Path, options: &AttachOptions) -> Result<Self> {
        let mut present = Vec::new();
        let mut gone = Vec::new();
        for ifindex in pins::members(group).with_context(|| group.display().to_string())? {
            let Some(pinned) = Pinned::at(group, ifindex)? else {
                continue;
            };
            let name = pinned.kept_as();
            options.check(&pinned).with_context(|| name.clone())?;
            match Interface::at(ifindex) {
                Ok(interface) => present.push((interface, pinned.attachment)),
                Err(error) if error.kind() == Kind::NoInterface => {
                    gone.push(Carried::gone(ifindex, &pinned.attachment));
                }
                Err(error) => return Err(error),
            }
        }
        let kept = Maps::from_pins(group)?.records.group()?;
        let interfaces: Vec<_> = present.iter().map(|(one, _)| one.clone()).collect();
        let mut attached = Self::load(group, &interfaces, options, Some(kept))?;
        for (interface, attachment) in present {
            let splitter = splitter::ensure(interface.index)?;
            let Self { programs, maps, .. } = &mut attached;
            let programs = programs_for(programs, interface.link_len)?;
            let attachment =
                put_on_hooks(programs, maps, group, &interface, &splitter, attachment)?;
            let name = kept_as(&attachment);
            let carried = Carried::of(interface, name, &attachment);
            attached.interfaces.push(carried);
        }
        attached.interfaces.extend(gone);
        // Only now: older programs may have asked for them.
        attached.maps.retain_peers(&options.peers)?;
        pins::share(group)?;
        attached.adopted = Some(attached.maps.flows()?.len());
        Ok(attached)
    }

    /// Loads the programs for the link layers of these interfaces.
    fn load(
        group: &Path,
        interfaces: &[Interface],
        options: &AttachOptions,
        kept: Option<Group>,
    ) -> Result<Self> {
        let Some(first) = interfaces.first() else {
            bail!(NoInterface, "none of the interfaces is there");
        };
        let record = Group {
            secret: match kept {
                Some(kept) => kept.secret,
                None => random_secret()?,
            },
            hidden: options.keys.is_some().into(),
        };
        let (programs, maps, events) = prepare(first, options, record, group)?;
        let mut attached = Self {
            group: group.to_owned(),
            interfaces: Vec::new(),
            adopted: None,
            maps,
            programs: vec![programs],
            events: Some(events),
        };
        for interface in interfaces {
            attached.load_for(interface, options)?;
        }
        let indices: Vec<_> = interfaces.iter().map(|one| one.index).collect();
        attached.set_addresses(&addresses::now(&indices)?)?;
        Ok(attached)
    }

    /// Loads the programs for the link layer of an interface, unless they are; returns whether
    /// it did.
    fn load_for(&mut self, interface: &Interface, options: &AttachOptions) -> Result<bool> {
        let is_for = |programs: &Programs| programs.link_len == interface.link_len;
        if self.programs.iter().any(is_for) {
            return Ok(false);
        }
        let record = self.maps.records.group()?;
        let programs = prepare_more(interface, options, record, &self.group)?;
        self.programs.push(programs);
        Ok(true)
    }

    /// Attaches to one more interface; returns whether it loaded programs for its link layer.
    /// On failure everything that was made there is removed again.
    ///
    /// # Errors
    ///
    /// As [`Attached::new`]; [`Kind::AlreadyAttached`] if the interface is in another group.
    pub fn join(&mut self, interface: Interface, options: &AttachOptions) -> Result<bool> {
        let (name, index) = (interface.name.clone(), interface.index);
        if let Some(same) = self.at(index).filter(|one| one.kept_as != name) {
            bail!(
                Invalid,
                "{name} and {} are the same interface; leave one of them out",
                same.kept_as
            );
        }
        if !lock::join(&FUNCTION, &self.group, index)? {
            bail!(AlreadyAttached, "{}", already(&name));
        }
        // The programs that an earlier attempt put there stay if this one fails.
        let before = self.maps.records.attachment(index)?;
        let joined = self.try_join(interface, options, before.map(|before| before.row));
        if joined.is_err() && before.is_none() {
            self.leave(index)?;
        }
        joined
    }

    fn try_join(
        &mut self,
        interface: Interface,
        options: &AttachOptions,
        row: Option<u32>,
    ) -> Result<bool> {
        let loaded = self.load_for(&interface, options)?;
        let row = match row {
            Some(row) => row,
            None if pinned::is_attached(&interface.name) => {
                bail!(
                    OtherNamespace,
                    "{}: attached, but {}",
                    interface.name,
                    pinned::PINS_ARE_HIDDEN
                );
            }
            None => self.maps.records.free_row()?,
        };
        let record = first_record(&interface, options, row)?;
        let index = interface.index;
        let Self { programs, maps, .. } = self;
        let programs = programs_for(programs, interface.link_len)?;
        let carried = carried::attach(programs, maps, &self.group, interface, options, record)?;
        self.interfaces.retain(|one| one.interface.index != index);
        self.interfaces.push(carried);
        self.refresh()?;
        Ok(loaded)
    }

    /// Goes over to the interface that was made anew under the name of one that is gone;
    /// returns whether it loaded programs for its link layer.
    ///
    /// # Errors
    ///
    /// As [`Attached::new`]; the record may then be of either.
    pub fn follow(
        &mut self,
        gone: u32,
        interface: Interface,
        options: &AttachOptions,
    ) -> Result<bool> {
        let new = interface.index;
        let loaded = self.load_for(&interface, options)?;
        let Some(old) = self.maps.records.attachment(gone)? else {
            bail!(Other, "the record of {} is gone", interface.name);
        };
        if !lock::join(&FUNCTION, &self.group, new)? {
            bail!(
                AlreadyAttached,
                "{}: another xdptun is attached",
                interface.name
            );
        }
        // It may have been in another network namespace, and its links be dead.
        if gone == new {
            let member = pins::member(&self.group, new);
            pins::remove_links(&FUNCTION, &member)
                .with_context(|| format!("cannot remove the links in {}", member.display()))?;
        }
        let Self { programs, maps, .. } = self;
        let programs = programs_for(programs, interface.link_len)?;
        let disguised = carried::disguise(programs, maps, &self.group, &interface, old);
        let record = match disguised {
            Ok(record) => record,
            Err(error) if gone == new => return Err(error),
            // Perhaps it is gone again.
            Err(error) => {
                let record = self.maps.records.attachment(new)?;
                remove_member(&FUNCTION, &self.group, new, record)?;
                self.maps.records.forget(new)?;
                return Err(error);
            }
        };
        let name = kept_as(&record);
        let carried = Carried::of(interface.clone(), name, &record);
        self.interfaces.retain(|one| one.interface.index != gone);
        self.interfaces.push(carried);
        if gone != new {
            // Only now, as it takes time. Programs of the old interface may live on, at the
            // splitter or in another network namespace.
            remove_member(&FUNCTION, &self.group, gone, Some(old))?;
            self.maps.records.forget(gone)?;
        }
        let Self { programs, maps, .. } = self;
        let programs = programs_for(programs, interface.link_len)?;
        let splitter = splitter::create(new)?;
        put_on_hooks(programs, maps, &self.group, &interface, &splitter, record)?;
        // It is carried, whatever becomes of this.
        if let Err(error) = self.refresh() {
            warn!("{}: {error:#}", interface.name);
        }
        Ok(loaded)
    }

    /// Takes the programs off one interface; flows stay.
    ///
    /// # Errors
    ///
    /// If something cannot be removed.
    pub fn leave(&mut self, ifindex: u32) -> Result<()> {
        let record = self.maps.records.attachment(ifindex)?;
        remove_member(&FUNCTION, &self.group, ifindex, record)?;
        self.maps.records.forget(ifindex)?;
        if let Some(record) = record {
            self.maps.clear_row(record.row)?;
        }
        self.interfaces.retain(|one| one.interface.index != ifindex);
        Ok(())
    }

    /// After a change of the interfaces: shares the pins, and tells the programs the addresses
    /// of this host for them.
    fn refresh(&mut self) -> Result<()> {
        self.set_addresses(&addresses::now(&self.indices())?)?;
        pins::share(&self.group)
    }

    /// The directory of the group's pins.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.group
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

    /// Gives the programs the addresses of this host.
    ///
    /// # Errors
    ///
    /// If the maps cannot be written.
    pub fn set_addresses(&mut self, addresses: &Addresses) -> Result<()> {
        let mut all = self.programs.iter_mut();
        all.try_for_each(|programs| programs.local.set(addresses))
    }

    /// Sets ports, peers and keys while the programs run; what stays is owned all the time.
    ///
    /// # Errors
    ///
    /// If the maps cannot be written.
    pub fn set(&mut self, options: &AttachOptions) -> Result<()> {
        if let Some(keys) = &options.keys {
            for programs in &mut self.programs {
                programs.keys.set(keys)?;
            }
        }
        self.maps.set_ports(&options.ports)?;
        self.maps.retain_peers(&options.peers)?;
        Ok(self.maps.add_peers(&options.peers)?)
    }

    /// The copies of packets that its programs make, if they make any.
    pub(super) fn take_recorder(&mut self) -> Option<Recorder> {
        let mut all = self.programs.iter_mut();
        all.find_map(|programs| programs.recorder.take())
    }

    /// Takes the programs off all interfaces and removes all pins.
    ///
    /// # Errors
    ///
    /// If something cannot be removed.
    pub fn detach(self) -> Result<()> {
        remove(&FUNCTION, &self.group).map(|_| ())
    }
}

/// The programs for a link layer.
fn programs_for(all: &mut [Programs], link_len: u32) -> Result<&mut Programs> {
    let mut all = all.iter_mut();
    let found = all.find(|programs| programs.link_len == link_len);
    found.ok_or_else(|| Error::new(Kind::Other, "the programs for its link layer are missing"))
}

fn random_secret() -> Result<[u64; 2]> {
    let mut bytes = [0; 16];
    io::Read::read_exact(
        &mut fs::File::open("/dev/urandom").context("/dev/urandom")?,
        &mut bytes,
    )?;
    let (words, _) = bytes.as_chunks::<8>();
    Ok([0, 1].map(|word| u64::from_ne_bytes(words[word])))
}
