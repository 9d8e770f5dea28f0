//! The maps of the kernel side, typed.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd as _, OwnedFd};

use aya::maps::{Array, HashMap, LpmTrie, Map, MapData, MapError, MapType};
use ipnet::Ipv6Net;
use xdptun_common::nat64::lease::{Lease, NetworkKey, Number, Standing};
use xdptun_common::nat64::translator::Translator;

use super::plan::Settings;
use crate::datapath::batch;
use crate::datapath::map::{Shape, Source, absent};
use crate::datapath::network::network_key;
use crate::datapath::pod::AsPod;
use crate::error::{Result, bail};
use crate::host::random;

/// The maps that outlive the daemon.
pub struct Maps {
    translator: Array<MapData, AsPod<Translator>>,
    inside: LpmTrie<MapData, [u8; 16], u32>,
    leases: HashMap<MapData, [u8; 4], AsPod<Lease>>,
    /// The same.
    table: OwnedFd,
    clients: HashMap<MapData, [u8; 16], [u8; 4]>,
    numbers: Array<MapData, u32>,
    networks: HashMap<MapData, AsPod<NetworkKey>, u32>,
}

/// Their names, as pins and in the object.
const TRANSLATOR: &str = "TRANSLATOR";
const INSIDE: &str = "INSIDE";
const LEASES: &str = "LEASES";
const CLIENTS: &str = "CLIENTS";
const LEASE_NUMBERS: &str = "LEASE_NUMBERS";
const CLIENT_NETWORKS: &str = "CLIENT_NETWORKS";

/// The pinned maps beside [those of any function](crate::datapath::engine_maps::NAMES).
pub const PINNED: [&str; 6] = [
    TRANSLATOR,
    INSIDE,
    LEASES,
    CLIENTS,
    LEASE_NUMBERS,
    CLIENT_NETWORKS,
];

/// Some leases, each with its address.
pub type Part = Vec<([u8; 4], Lease)>;

impl Maps {
    /// The maps of this source.
    ///
    /// # Errors
    ///
    /// If one is missing or not what its name says.
    pub fn open(source: &mut Source<'_>) -> Result<Self> {
        let leases = source.map(LEASES, Shape::hash::<[u8; 4], Lease>())?;
        let Map::HashMap(data) = &leases else {
            bail!(Other, "{LEASES} is of another kind");
        };
        let table = data.fd().as_fd().try_clone_to_owned()?;
        let inside = Shape(MapType::LpmTrie, size_of::<[u32; 5]>(), size_of::<u32>());
        let mut map = |name, shape| source.map(name, shape);
        Ok(Self {
            translator: map(TRANSLATOR, Shape::array::<Translator>())?.try_into()?,
            inside: map(INSIDE, inside)?.try_into()?,
            leases: leases.try_into()?,
            table,
            clients: map(CLIENTS, Shape::hash::<[u8; 16], [u8; 4]>())?.try_into()?,
            numbers: map(LEASE_NUMBERS, Shape::array::<u32>())?.try_into()?,
            networks: map(CLIENT_NETWORKS, Shape::hash::<NetworkKey, u32>())?.try_into()?,
        })
    }

    /// What is translated.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn translator(&self) -> Result<Translator, MapError> {
        self.translator.get(&0, 0).map(|translator| translator.0)
    }

    /// The networks of clients, and the device's own address.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn inside(&self) -> Result<Vec<Ipv6Net>, MapError> {
        let keys: Vec<_> = self.inside.keys().collect::<Result<_, _>>()?;
        let networks = keys.iter().filter_map(|key| {
            let length = u8::try_from(key.prefix_len()).ok()?;
            Ipv6Net::new(key.data().into(), length).ok()
        });
        Ok(networks.collect())
    }

    /// Lets the program translate what the settings say; what only older settings said stays.
    ///
    /// # Errors
    ///
    /// If a map cannot be written.
    pub(super) fn set_up(&mut self, settings: &Settings) -> Result<()> {
        // What chose the addresses that clients have goes on to choose them.
        let key = match self.translator()?.key {
            [0, 0] => random::key()?,
            key => key,
        };
        for network in &settings.inside {
            self.inside.insert(&network_key((*network).into()), 1, 0)?;
        }
        let translator = Translator {
            key,
            ..settings.translator
        };
        self.translator.set(0, AsPod(translator), 0)?;
        for (address, client) in &settings.fixed {
            self.fix(*address, *client)?;
        }
        Ok(())
    }

    /// Removes what only older settings said.
    ///
    /// # Errors
    ///
    /// If a map cannot be written.
    pub(super) fn tidy(&mut self, settings: &Settings) -> Result<()> {
        let wanted = &settings.inside;
        for network in self.inside()? {
            if !wanted.contains(&network) {
                absent(self.inside.remove(&network_key(network.into())))?;
            }
        }
        let entries: Vec<_> = batch::entries::<[u8; 4], Lease>(&self.table)?;
        for (address, lease) in entries {
            let client = Ipv6Addr::from(lease.client);
            let is_fixed = settings.fixed.get(&address.into()) == Some(&client);
            let is_stale = lease.standing() == Some(Standing::Static) && !is_fixed;
            // A client whose network is gone keeps nothing.
            let is_outside = !wanted.iter().any(|network| network.contains(&client));
            if is_stale || is_outside {
                self.take(&address)?;
                self.forget_client(&lease.client, &address)?;
            }
        }
        Ok(())
    }

    /// Gives a client an address for ever, which may be another's now.
    fn fix(&mut self, address: Ipv4Addr, client: Ipv6Addr) -> Result<()> {
        let (address, client) = (address.octets(), client.octets());
        let fixed = Lease::fixed(client);
        if self.lease(&address)? == Some(fixed) {
            return Ok(());
        }
        // Its own address until now, and the client that has this one, come to an end.
        if let Some(before) = absent(self.clients.get(&client, 0))? {
            self.take(&before)?;
        }
        if let Some(other) = self.take(&address)? {
            self.forget_client(&other.client, &address)?;
        }
        self.leases.insert(address, AsPod(fixed), 0)?;
        self.clients.insert(client, address, 0)?;
        Ok(())
    }

    fn lease(&self, address: &[u8; 4]) -> Result<Option<Lease>, MapError> {
        absent(self.leases.get(address, 0).map(|lease| lease.0))
    }

    /// Every lease, part by part; some are over. One that comes or goes meanwhile may be left out.
    ///
    /// # Errors
    ///
    /// If the table cannot be opened once more.
    pub fn leases(&self) -> Result<impl Iterator<Item = io::Result<Part>> + use<>> {
        Ok(batch::parts(self.table.try_clone()?))
    }

    /// Takes the lease of an address out, as it is at that moment.
    pub(super) fn take(&mut self, address: &[u8; 4]) -> Result<Option<Lease>> {
        Ok(batch::take(&self.table, address)?)
    }

    /// Puts a lease back that was taken out, unless the address has another by now.
    pub(super) fn put_back(&mut self, address: &[u8; 4], lease: &Lease) -> Result<(), MapError> {
        /// `BPF_NOEXIST` of `linux/bpf.h`.
        const IF_ABSENT: u64 = 1;
        match self.leases.insert(address, AsPod(*lease), IF_ABSENT) {
            Err(MapError::SyscallError(error))
                if error.io_error.kind() == io::ErrorKind::AlreadyExists =>
            {
                Ok(())
            }
            other => other,
        }
    }

    /// Forgets the address of a client, if it is still this one.
    pub(super) fn forget_client(
        &mut self,
        client: &[u8; 16],
        address: &[u8; 4],
    ) -> Result<(), MapError> {
        if absent(self.clients.get(client, 0))? == Some(*address) {
            absent(self.clients.remove(client))?;
        }
        Ok(())
    }

    /// One of the numbers of leases.
    pub(super) fn number(&self, number: Number) -> Result<u32, MapError> {
        self.numbers.get(&(number as u32), 0)
    }

    /// Sets one of the numbers of leases.
    pub(super) fn set_number(&mut self, number: Number, value: u32) -> Result<(), MapError> {
        self.numbers.set(number as u32, value, 0)
    }

    /// The numbers of leases of each network.
    pub(super) fn networks(&self) -> Result<BTreeMap<NetworkKey, u32>, MapError> {
        let all = self.networks.iter();
        all.map(|one| one.map(|(key, number)| (key.0, number)))
            .collect()
    }

    /// Sets a number of leases of a network.
    pub(super) fn set_network(&mut self, key: NetworkKey, number: u32) -> Result<(), MapError> {
        self.networks.insert(AsPod(key), number, 0)
    }

    /// Forgets a network.
    pub(super) fn forget_network(&mut self, began: NetworkKey) -> Result<(), MapError> {
        // The other way round a network would have none left if this process ended in between.
        absent(self.networks.remove(&AsPod(began.gone())))?;
        absent(self.networks.remove(&AsPod(began))).map(|_| ())
    }
}
