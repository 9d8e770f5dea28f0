//! The maps of the kernel side, typed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use aya::maps::{Array, HashMap, Map, MapData, MapError};
use xdptun_common::gateway::nat::Nat;
use xdptun_common::gateway::rule::{BackEnd, Listen, ListenKey, Set};
use xdptun_common::gateway::session::Entry;
use xdptun_common::gateway::timer::Timers;
use xdptun_common::gateway::tuple::Tuple;

use super::bindings::{self, Bindings};
use super::cut::{self, Cut};
use super::requests::{self, Requests};
use super::rules::Tables;
use super::settings::Rule;
use crate::datapath::batch;
use crate::datapath::map::{Shape, Source, absent};
use crate::datapath::pod::AsPod;
use crate::error::{Context as _, Result, bail};

/// The maps that outlive the daemon.
pub struct Maps {
    sessions: HashMap<MapData, AsPod<Tuple>, AsPod<Entry>>,
    embryonic: HashMap<MapData, AsPod<Tuple>, AsPod<Entry>>,
    /// Both of these maps.
    tables: [OwnedFd; 2],
    max_entries: u32,
    lasting: Array<MapData, u64>,
    listen: HashMap<MapData, AsPod<ListenKey>, AsPod<Listen>>,
    back_ends: Array<MapData, AsPod<BackEnd>>,
    listeners: HashMap<MapData, u32, Set>,
    timers: Array<MapData, AsPod<Timers>>,
    /// What is translated, and the bindings.
    pub bindings: Bindings,
    /// What the programs ask of the daemon.
    pub(super) requests: Requests,
    /// Packets of sessions that were cut.
    pub(super) cut: Cut,
    /// The set of rules of each interface by which sessions may begin, by its name.
    sets: BTreeMap<String, Set>,
}

/// Their names, as pins and in the object.
const SESSIONS: &str = "SESSIONS";
const EMBRYONIC: &str = "EMBRYONIC";
const LASTING: &str = "LASTING";
const LISTEN: &str = "LISTEN";
const BACK_ENDS: &str = "BACK_ENDS";
const LISTENERS: &str = "LISTENERS";
const TIMERS: &str = "TIMERS";

const OWN: [&str; 7] = [
    SESSIONS, EMBRYONIC, LASTING, LISTEN, BACK_ENDS, LISTENERS, TIMERS,
];

/// The pinned maps beside [those of any function](crate::datapath::engine_maps::NAMES).
pub fn pinned() -> impl Iterator<Item = &'static str> {
    OWN.into_iter()
        .chain(bindings::PINNED)
        .chain(requests::PINNED)
        .chain(cut::PINNED)
}

/// Entries of the table for a session: one for each direction, as many again if its source is
/// translated, and as many as these for one that has ended and is kept for a while.
pub const ENTRIES: u32 = 8;

/// Every session that lasts, and every one that waits for proof.
pub type Entries = [Vec<(Tuple, Entry)>; 2];

impl Maps {
    /// The maps of this source.
    ///
    /// # Errors
    ///
    /// If one is missing or not what its name says.
    pub fn open(source: &mut Source<'_>) -> Result<Self> {
        let sessions = source.map(SESSIONS, Shape::hash::<Tuple, Entry>())?;
        let embryonic = source.map(EMBRYONIC, Shape::lru_hash::<Tuple, Entry>())?;
        let (Map::HashMap(lasting), Map::LruHashMap(waiting)) = (&sessions, &embryonic) else {
            bail!(Other, "{SESSIONS} or {EMBRYONIC} is of another kind");
        };
        let tables = [
            lasting.fd().as_fd().try_clone_to_owned()?,
            waiting.fd().as_fd().try_clone_to_owned()?,
        ];
        let max_entries = lasting.info()?.max_entries();
        let bindings = Bindings::open(source)?;
        let requests = Requests::open(source)?;
        let cut = Cut::open(source)?;
        let mut map = |name, shape| source.map(name, shape);
        Ok(Self {
            bindings,
            requests,
            cut,
            sessions: sessions.try_into()?,
            embryonic: embryonic.try_into()?,
            tables,
            max_entries,
            lasting: map(LASTING, Shape::array::<u64>())?.try_into()?,
            listen: map(LISTEN, Shape::hash::<ListenKey, Listen>())?.try_into()?,
            back_ends: map(BACK_ENDS, Shape::array::<BackEnd>())?.try_into()?,
            listeners: map(LISTENERS, Shape::hash::<u32, Set>())?.try_into()?,
            timers: map(TIMERS, Shape::array::<Timers>())?.try_into()?,
            sets: BTreeMap::new(),
        })
    }

    /// How many sessions that last there may be.
    #[must_use]
    pub const fn max_sessions(&self) -> u32 {
        self.max_entries / ENTRIES
    }

    /// How many bindings there may be.
    #[must_use]
    pub const fn max_bindings(&self) -> u32 {
        self.bindings.max()
    }

    /// Sets what is translated, by the names of interfaces. It takes effect when
    /// [`Maps::set_interfaces`] names them.
    pub fn translate(&mut self, nats: BTreeMap<String, Nat>) {
        self.bindings.by_name = nats;
    }

    /// How many entries the table of sessions that last can hold.
    pub(super) const fn capacity(&self) -> usize {
        self.max_entries as usize
    }

    /// How long sessions live without a packet.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn timers(&self) -> Result<Timers, MapError> {
        self.timers.get(&0, 0).map(|timers| timers.0)
    }

    /// Sets how long sessions live without a packet, also those that have begun.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn set_timers(&mut self, timers: Timers) -> Result<(), MapError> {
        self.timers.set(0, AsPod(timers), 0)
    }

    /// The entries of all sessions. One that comes or goes meanwhile may be left out.
    ///
    /// # Errors
    ///
    /// If a table cannot be read.
    pub fn entries(&self) -> Result<Entries> {
        let lasting = batch::entries(&self.tables[0]).context("cannot read the sessions")?;
        Ok([lasting, self.waiting()?])
    }

    /// The entries of the sessions that wait for proof.
    ///
    /// # Errors
    ///
    /// If the table cannot be read.
    pub(super) fn waiting(&self) -> Result<Vec<(Tuple, Entry)>> {
        batch::entries(&self.tables[1]).context("cannot read the sessions")
    }

    /// The entries of the sessions that last, part by part. One that comes or goes meanwhile may
    /// be left out.
    ///
    /// # Errors
    ///
    /// If the table cannot be opened once more.
    pub fn lasting_parts(
        &self,
    ) -> Result<impl Iterator<Item = io::Result<Vec<(Tuple, Entry)>>> + use<>> {
        Ok(batch::parts(self.tables[0].try_clone()?))
    }

    /// An entry of the sessions that last, as it is now, if it is there.
    ///
    /// # Errors
    ///
    /// If the table cannot be read.
    pub(super) fn entry(&self, tuple: &Tuple) -> Result<Option<Entry>, MapError> {
        absent(self.sessions.get(&AsPod(*tuple), 0).map(|entry| entry.0))
    }

    /// An entry of whichever table it is in.
    ///
    /// # Errors
    ///
    /// If a table cannot be read.
    pub(super) fn entry_anywhere(&self, tuple: &Tuple) -> Result<Option<Entry>, MapError> {
        // It may move meanwhile, from here to the other table.
        let waiting = absent(self.embryonic.get(&AsPod(*tuple), 0).map(|entry| entry.0))?;
        match waiting {
            None => self.entry(tuple),
            found => Ok(found),
        }
    }

    /// Removes an entry.
    ///
    /// # Errors
    ///
    /// If the table cannot be written.
    pub(super) fn remove(&mut self, tuple: &Tuple) -> Result<(), MapError> {
        absent(self.sessions.remove(&AsPod(*tuple))).map(|_| ())
    }

    /// Removes an entry from whichever table it is in.
    ///
    /// # Errors
    ///
    /// If a table cannot be written.
    pub(super) fn forget(&mut self, tuple: &Tuple) -> Result<(), MapError> {
        // First from where it may move away from.
        absent(self.embryonic.remove(&AsPod(*tuple)))?;
        self.remove(tuple)
    }

    /// How many sessions the programs have moved to those that last.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn moved(&self) -> Result<u64, MapError> {
        self.lasting.get(&0, 0)
    }

    /// Tells the programs how many of these are gone.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn set_gone(&mut self, gone: u64) -> Result<(), MapError> {
        self.lasting.set(1, gone, 0)
    }

    /// Writes rules beside those in use. They take effect when [`Maps::set_interfaces`] names their
    /// set.
    ///
    /// # Errors
    ///
    /// If there are too many, or a map cannot be written.
    pub fn add_rules(&mut self, rules: &BTreeMap<String, Vec<Rule>>) -> Result<()> {
        let tables = Tables::of(rules, &self.listen()?)?;
        self.requests.name(tables.named())?;
        for (place, back_end) in (tables.first..).zip(&tables.back_ends) {
            self.back_ends.set(place, AsPod(*back_end), 0)?;
        }
        for (key, listen) in &tables.listen {
            self.listen
                .insert(AsPod(*key), AsPod(*listen), 0)
                .context("cannot write the rules")?;
        }
        self.sets = tables.sets;
        Ok(())
    }

    /// Removes rules that no interface has any more.
    ///
    /// # Errors
    ///
    /// If the map cannot be read or written.
    pub fn remove_unused_rules(&mut self) -> Result<()> {
        let used = self.used_sets();
        for (key, _) in self.listen()? {
            if !used.contains(&key.set()) {
                absent(self.listen.remove(&AsPod(key)))?;
            }
        }
        Ok(())
    }

    fn used_sets(&self) -> BTreeSet<Set> {
        self.sets.values().copied().collect()
    }

    /// What is forwarded by the rules that were written last.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub(super) fn listen_in_use(&self) -> Result<Vec<(ListenKey, Listen)>> {
        let used = self.used_sets();
        let mut listen = self.listen()?;
        listen.retain(|(key, _)| used.contains(&key.set()));
        Ok(listen)
    }

    /// What is forwarded.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn listen(&self) -> Result<Vec<(ListenKey, Listen)>> {
        let all = self.listen.iter();
        let all: Result<Vec<_>, _> = all
            .map(|entry| entry.map(|(key, listen)| (key.0, listen.0)))
            .collect();
        let mut all = all.context("cannot read the rules")?;
        all.sort_unstable_by_key(|(key, _)| *key);
        Ok(all)
    }

    /// The back ends of a rule, one for each place.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn back_ends(&self, listen: &Listen) -> Result<Vec<BackEnd>, MapError> {
        let places = listen.first..listen.first + listen.places;
        places
            .map(|place| self.back_ends.get(&place, 0).map(|back_end| back_end.0))
            .collect()
    }

    /// The set of rules that an interface has, by index; none if no session may begin by it.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn set_of(&self, interface: u32) -> Result<Option<Set>, MapError> {
        absent(self.listeners.get(&interface, 0))
    }

    /// Lets sessions begin by the interfaces among these that have rules or translate, and by no
    /// others.
    ///
    /// # Errors
    ///
    /// If the map cannot be written.
    pub fn set_interfaces(&mut self, interfaces: &BTreeMap<u32, String>) -> Result<(), MapError> {
        self.bindings.set_interfaces(interfaces)?;
        let sets = |(index, name): (&u32, &String)| Some((*index, *self.sets.get(name)?));
        let listeners: BTreeMap<u32, Set> = interfaces.iter().filter_map(sets).collect();
        for (interface, set) in &listeners {
            self.listeners.insert(interface, set, 0)?;
        }
        let present: Vec<u32> = self.listeners.keys().collect::<Result<_, _>>()?;
        for interface in present {
            if !listeners.contains_key(&interface) {
                absent(self.listeners.remove(&interface))?;
            }
        }
        Ok(())
    }
}
