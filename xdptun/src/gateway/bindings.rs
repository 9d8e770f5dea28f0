//! The maps of bindings, typed.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use aya::maps::{HashMap, Map, MapData, MapError};
use xdptun_common::flow::tick::Tick;
use xdptun_common::gateway::nat::{Binding, HostKey, InsideKey, Nat, OutsideKey, is_later};
use xdptun_common::gateway::tuple::End;

use crate::datapath::batch;
use crate::datapath::map::{Shape, Source, absent};
use crate::datapath::pod::AsPod;
use crate::error::{Result, bail};
use crate::host::clock::monotonic_ns;

/// What is translated, and the bindings.
pub struct Bindings {
    nats: HashMap<MapData, u32, AsPod<Nat>>,
    bindings: HashMap<MapData, AsPod<OutsideKey>, AsPod<Binding>>,
    /// The same.
    table: OwnedFd,
    max_entries: u32,
    outside_ports: HashMap<MapData, AsPod<InsideKey>, u32>,
    hosts: HashMap<MapData, AsPod<HostKey>, u32>,
    /// What is to be translated, by the names of interfaces.
    pub(super) by_name: BTreeMap<String, Nat>,
}

const NATS: &str = "NATS";
const BINDINGS: &str = "BINDINGS";
const OUTSIDE_PORTS: &str = "OUTSIDE_PORTS";
const HOSTS: &str = "HOSTS";

/// The pinned maps.
pub const PINNED: [&str; 4] = [NATS, BINDINGS, OUTSIDE_PORTS, HOSTS];

impl Bindings {
    /// The maps of this source.
    ///
    /// # Errors
    ///
    /// If one is missing or not what its name says.
    pub fn open(source: &mut Source<'_>) -> Result<Self> {
        let bindings = source.map(BINDINGS, Shape::hash::<OutsideKey, Binding>())?;
        let Map::HashMap(data) = &bindings else {
            bail!(Other, "{BINDINGS} is of another kind");
        };
        let table = data.fd().as_fd().try_clone_to_owned()?;
        let max_entries = data.info()?.max_entries();
        let mut map = |name, shape| source.map(name, shape);
        Ok(Self {
            nats: map(NATS, Shape::hash::<u32, Nat>())?.try_into()?,
            bindings: bindings.try_into()?,
            table,
            max_entries,
            outside_ports: map(OUTSIDE_PORTS, Shape::hash::<InsideKey, u32>())?.try_into()?,
            hosts: map(HOSTS, Shape::hash::<HostKey, u32>())?.try_into()?,
            by_name: BTreeMap::new(),
        })
    }

    /// How many bindings there may be.
    #[must_use]
    pub const fn max(&self) -> u32 {
        self.max_entries
    }

    /// What an interface translates, by its index, if it does.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn nat_of(&self, interface: u32) -> Result<Option<Nat>, MapError> {
        absent(self.nats.get(&interface, 0).map(|nat| nat.0))
    }

    /// Lets the interfaces among these translate that are to, and no others.
    pub(super) fn set_interfaces(
        &mut self,
        interfaces: &BTreeMap<u32, String>,
    ) -> Result<(), MapError> {
        let nats = interfaces.iter();
        let nats = nats.filter_map(|(index, name)| Some((*index, *self.by_name.get(name)?)));
        let nats: BTreeMap<u32, Nat> = nats.collect();
        for (interface, nat) in &nats {
            if self.nat_of(*interface)? != Some(*nat) {
                self.nats.insert(interface, AsPod(*nat), 0)?;
            }
        }
        let present: Vec<u32> = self.nats.keys().collect::<Result<_, _>>()?;
        for interface in present {
            if !nats.contains_key(&interface) {
                absent(self.nats.remove(&interface))?;
            }
        }
        Ok(())
    }

    /// Every binding, part by part; of some the time has passed. One that comes or goes meanwhile
    /// may be left out.
    ///
    /// # Errors
    ///
    /// If the table cannot be opened once more.
    pub fn parts(
        &self,
    ) -> Result<impl Iterator<Item = io::Result<Vec<(OutsideKey, Binding)>>> + use<>> {
        Ok(batch::parts(self.table.try_clone()?))
    }

    /// How many bindings last.
    ///
    /// # Errors
    ///
    /// If the table cannot be read.
    pub fn count(&self) -> Result<usize> {
        let now = Tick::at(monotonic_ns());
        let mut count = 0;
        for part in self.parts()? {
            let part = part?;
            count += part.iter().filter(|(_, one)| one.lasts(now)).count();
        }
        Ok(count)
    }

    /// A binding as it is now, if it is there.
    pub(super) fn binding(&self, key: &OutsideKey) -> Result<Option<Binding>, MapError> {
        absent(self.bindings.get(&AsPod(*key), 0).map(|binding| binding.0))
    }

    /// Removes a binding.
    pub(super) fn remove(&mut self, key: &OutsideKey, binding: &Binding) -> Result<(), MapError> {
        let end = key.end();
        let inside = InsideKey::new(binding.inside, end.address(), key.protocol());
        // The inside end may have another by now.
        let port = absent(self.outside_ports.get(&AsPod(inside), 0))?;
        if port == Some(end.port().into()) {
            absent(self.outside_ports.remove(&AsPod(inside)))?;
        }
        // Last: until then the port is nobody else's.
        absent(self.bindings.remove(&AsPod(*key))).map(|_| ())
    }

    /// Lets the binding of an inside end last until then at least, if it lasts still.
    pub(super) fn keep(
        &mut self,
        key: &OutsideKey,
        inside: End,
        until: u32,
    ) -> Result<(), MapError> {
        let Some(binding) = self.binding(key)? else {
            return Ok(());
        };
        let is_own = binding.inside == inside && binding.lasts(Tick::at(monotonic_ns()));
        if !is_own || !is_later(until, binding.until) {
            return Ok(());
        }
        /// `BPF_EXIST` of `linux/bpf.h`.
        const IF_PRESENT: u64 = 2;
        let kept = Binding { until, ..binding };
        absent(
            self.bindings
                .insert(AsPod(*key), AsPod(kept), IF_PRESENT)
                .map(|()| 0_u32),
        )
        .map(|_| ())
    }

    /// The numbers of bindings of each inside host.
    pub(super) fn hosts(&self) -> Result<BTreeMap<HostKey, u32>, MapError> {
        let all = self.hosts.iter();
        all.map(|one| one.map(|(key, number)| (key.0, number)))
            .collect()
    }

    /// Sets a number of bindings of an inside host.
    pub(super) fn set_host(&mut self, key: HostKey, number: u32) -> Result<(), MapError> {
        self.hosts.insert(AsPod(key), number, 0)
    }

    /// Forgets an inside host.
    pub(super) fn forget_host(&mut self, made: HostKey) -> Result<(), MapError> {
        // The other way round a host would have none left if this process ended in between.
        absent(self.hosts.remove(&AsPod(made.gone())))?;
        absent(self.hosts.remove(&AsPod(made))).map(|_| ())
    }
}
