//! The maps that any function has: in them user space says what is attached, for itself, for
//! the process after it, and for the programs; and the programs count.

use std::collections::BTreeMap;
use std::path::Path;

use aya::maps::{Array, HashMap, MapData, MapError, MapType, PerCpuArray, PerCpuValues};
use xdptun_common::attachment::{Attachment, Owner};
use xdptun_common::member::{Member, PROBES, ROWS, slot};
use xdptun_common::report::outcome::{CounterValue, IN_ROW};

use super::map::{Shape, Source, absent};
use super::pod::AsPod;
use crate::error::{Context as _, Kind, Result, bail};

const OWNER: &str = "OWNER";
const ATTACHMENTS: &str = "ATTACHMENTS";
const INTERFACES: &str = "INTERFACES";
const COUNTERS: &str = "COUNTERS";

/// The names of these maps, as pins and in the object. The owner first: from then on another
/// process knows what the other pins are.
pub const NAMES: [&str; 4] = [OWNER, ATTACHMENTS, INTERFACES, COUNTERS];

/// What is attached, and what the programs have counted.
pub struct EngineMaps {
    owner: Array<MapData, AsPod<Owner>>,
    attachments: HashMap<MapData, u32, AsPod<Attachment>>,
    interfaces: Array<MapData, AsPod<Member>>,
    counters: PerCpuArray<MapData, AsPod<CounterValue>>,
}

impl EngineMaps {
    /// The maps of this source.
    ///
    /// # Errors
    ///
    /// If one is missing or not what its name says.
    pub fn open(source: &mut Source<'_>) -> Result<Self> {
        let counters = Shape(
            MapType::PerCpuArray,
            size_of::<u32>(),
            size_of::<CounterValue>(),
        );
        Ok(Self {
            owner: source.map(OWNER, Shape::array::<Owner>())?.try_into()?,
            attachments: source
                .map(ATTACHMENTS, Shape::hash::<u32, Attachment>())?
                .try_into()?,
            interfaces: source
                .map(INTERFACES, Shape::array::<Member>())?
                .try_into()?,
            counters: source.map(COUNTERS, counters)?.try_into()?,
        })
    }

    /// Those pinned in `directory`.
    ///
    /// # Errors
    ///
    /// If one is missing or not what its name says, or another version of xdptun wrote them.
    pub fn from_pins(directory: &Path) -> Result<Self> {
        let Owner { layout, .. } = owner(directory)?;
        if layout != Owner::LAYOUT {
            bail!(
                OtherVersion,
                "{} was written by another version of xdptun (layout {layout}, this one has {}); \
                 `xdptun detach --iface ...` ends it",
                directory.display(),
                Owner::LAYOUT
            );
        }
        Self::open(&mut Source::Pins(directory))
    }

    /// Says that this process keeps the group.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn own(&mut self) -> Result<(), MapError> {
        let owner = Owner {
            layout: Owner::LAYOUT,
            pid: std::process::id(),
        };
        self.owner.set(0, AsPod(owner), 0)
    }

    /// What is attached, by interface index.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn attachments(&self) -> Result<BTreeMap<u32, Attachment>> {
        let entries = self.attachments.iter();
        let entries = entries.map(|entry| entry.map(|(index, attachment)| (index, attachment.0)));
        let entries: Result<_, _> = entries.collect();
        entries.context("cannot read what is attached")
    }

    /// What is attached to one interface.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn attachment(&self, ifindex: u32) -> Result<Option<Attachment>> {
        let found = absent(self.attachments.get(&ifindex, 0));
        let found = found.context("cannot read what is attached")?;
        Ok(found.map(|attachment| attachment.0))
    }

    /// Writes what is attached to an interface.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn set_attachment(&mut self, ifindex: u32, attachment: Attachment) -> Result<(), MapError> {
        self.attachments.insert(ifindex, AsPod(attachment), 0)
    }

    /// Removes what the maps say of an interface: the programs leave its packets alone from
    /// then on.
    ///
    /// # Errors
    ///
    /// If a map cannot be read or written.
    pub fn forget(&mut self, ifindex: u32) -> Result<(), MapError> {
        for place in 0..self.interfaces.len() {
            let Member { met_at, index, .. } = self.interfaces.get(&place, 0)?.0;
            if met_at != 0 && index == ifindex {
                self.interfaces.set(place, AsPod(Member::default()), 0)?;
            }
        }
        absent(self.attachments.remove(&ifindex)).map(|_| ())
    }

    /// A row of the counters that no interface has.
    ///
    /// # Errors
    ///
    /// If there are too many interfaces, or the map cannot be read.
    pub fn free_row(&self) -> Result<u32> {
        let taken = self.attachments()?;
        let is_free = |row: &u32| taken.values().all(|attachment| attachment.row != *row);
        match (0..ROWS).find(is_free) {
            Some(row) => Ok(row),
            None => bail!(
                Invalid,
                "a group has room for {ROWS} interfaces; give the others other settings, for example \
                 another `keepalive`"
            ),
        }
    }

    /// Enters a device, where programs meet packets, into the programs' table.
    ///
    /// # Errors
    ///
    /// If there is no room for it, or the map cannot be written.
    pub fn admit(&mut self, member: Member) -> Result<()> {
        let mut free = None;
        for place in (0..PROBES).map(|probe| slot(member.met_at, probe)) {
            let present = self.interfaces.get(&place, 0)?.0.met_at;
            if present == member.met_at {
                free = Some(place);
                break;
            }
            if present == 0 && free.is_none() {
                free = Some(place);
            }
        }
        let Some(place) = free else {
            let why = format!(
                "no slot is left for device {} in the table of interfaces; make the interface anew, so \
                 that it gets another index",
                member.met_at
            );
            return Err(crate::error::Error::new(Kind::Invalid, why));
        };
        Ok(self.interfaces.set(place, AsPod(member), 0)?)
    }

    /// A counter of the interface with this row, by its index in the row, summed over the
    /// CPUs.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn counter(&self, row: u32, index: u32) -> Result<CounterValue, MapError> {
        let counter = self.counters.get(&(row * IN_ROW + index), 0)?;
        Ok(counter.iter().map(|of_cpu| of_cpu.0).sum())
    }

    /// Sets the counters of a row to zero, for another interface.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn clear_row(&mut self, row: u32) -> Result<()> {
        for index in row * IN_ROW..(row + 1) * IN_ROW {
            let cpus = self.counters.get(&index, 0)?.len();
            let zeros = PerCpuValues::try_from(vec![AsPod(CounterValue::default()); cpus])?;
            self.counters.set(index, zeros, 0)?;
        }
        Ok(())
    }
}

/// The process that holds what is pinned in `directory`, of any version.
///
/// # Errors
///
/// If it cannot be read.
pub fn owner(directory: &Path) -> Result<Owner> {
    let owner = Source::Pins(directory).map(OWNER, Shape::array::<Owner>())?;
    let owner: Array<MapData, AsPod<Owner>> = owner.try_into()?;
    let owner = owner
        .get(&0, 0)
        .context("cannot read which process is attached")?;
    Ok(owner.0)
}
