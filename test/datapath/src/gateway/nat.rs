//! What the gateway translates, and its bindings.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use aya::maps::{HashMap, MapError};
use xdptun_common::address::address_bytes;
use xdptun_common::gateway::nat::{
    Binding, Filtering, HostKey, InsideKey, MAX_INSIDE, NO_RANGES, Nat, Network, OutsideKey,
};
use xdptun_common::wire::Protocol;

use crate::gateway::{Gateway, within};
use crate::kernel::Record;

/// What an interface translates: a row of the map `NATS`, for people.
#[derive(Clone, Copy, Debug)]
pub struct NatRow {
    /// The address that inside hosts get outside, if there is one now.
    pub outside: Option<IpAddr>,
    /// The first and the last port that it lends.
    pub ports: [u16; 2],
    /// Which packets from outside reach an inside end that is bound.
    pub filtering: Filtering,
    /// How many ends of one inside host may be bound at once.
    pub max_per_host: u32,
    /// The inside network, and the length of its prefix.
    pub inside: (Ipv4Addr, u8),
    /// The pool of NAT64, likewise.
    pub pool: Option<(Ipv4Addr, u8)>,
}

impl From<NatRow> for Nat {
    fn from(row: NatRow) -> Self {
        let mut inside = [Network::NONE; MAX_INSIDE];
        let (address, prefix) = row.inside;
        // The last place: all of them are looked at.
        inside[MAX_INSIDE - 1] = Network::new(address, prefix);
        Self {
            outside: row.outside.map_or([0; 16], address_bytes),
            ports: row.ports,
            filtering: row.filtering as u32,
            max_per_host: row.max_per_host,
            reserved: NO_RANGES,
            inside,
            pool: row.pool.map_or(Network::NONE, |(address, prefix)| {
                Network::new(address, prefix)
            }),
        }
    }
}

impl Gateway {
    /// Sets what an interface translates.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn set_nat(&mut self, interface: u32, row: NatRow) {
        let mut nats: HashMap<_, u32, Record<Nat>> = within(&mut self.ebpf, "NATS");
        nats.insert(interface, Record(row.into()), 0)
            .expect("the interfaces can be written");
    }

    /// The binding of an outside end, which may be over.
    #[must_use]
    pub fn binding(&self, outside: SocketAddr, protocol: Protocol) -> Option<Binding> {
        let key = OutsideKey::new(outside.into(), protocol);
        self.bindings.get(&Record(key), 0).ok().map(|found| found.0)
    }

    /// The outside port of an inside end, by a binding that may be over.
    #[must_use]
    pub fn outside_port(
        &self,
        inside: SocketAddr,
        outside: IpAddr,
        protocol: Protocol,
    ) -> Option<u16> {
        let key = InsideKey::new(inside.into(), address_bytes(outside), protocol);
        let port = self.outside_ports.get(&Record(key), 0).ok()?;
        Some(u16::try_from(port).expect("a port"))
    }

    /// How many outside ends are bound, and of how many inside ends the port is known.
    ///
    /// # Panics
    ///
    /// If the maps cannot be read.
    #[must_use]
    pub fn bindings(&self) -> [usize; 2] {
        const ALONE: &str = "no other process writes to the map";
        let bindings: Result<Vec<_>, _> = self.bindings.keys().collect();
        let outside_ports: Result<Vec<_>, _> = self.outside_ports.keys().collect();
        [
            bindings.expect(ALONE).len(),
            outside_ports.expect(ALONE).len(),
        ]
    }

    /// How many bindings the programs have made for an inside host.
    #[must_use]
    pub fn made_for(&self, host: IpAddr) -> u32 {
        let key = HostKey::made(address_bytes(host));
        self.hosts.get(&Record(key), 0).unwrap_or(0)
    }

    /// Removes a binding of an inside host, as the daemon does when its time has passed.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn unbind(&mut self, inside: SocketAddr, outside: SocketAddr, protocol: Protocol) {
        const THERE: &str = "the binding was there a moment ago";
        let outside_key = OutsideKey::new(outside.into(), protocol);
        self.bindings.remove(&Record(outside_key)).expect(THERE);
        let inside_key = InsideKey::new(inside.into(), address_bytes(outside.ip()), protocol);
        self.outside_ports.remove(&Record(inside_key)).expect(THERE);
        let gone = HostKey::made(address_bytes(inside.ip())).gone();
        let number = self.hosts.get(&Record(gone), 0).unwrap_or(0);
        self.hosts
            .insert(Record(gone), number + 1, 0)
            .expect("the map has room");
    }

    /// Lets all bindings end so many ticks sooner.
    ///
    /// # Panics
    ///
    /// If the map cannot be written.
    pub fn age_bindings(&mut self, ticks: u32) {
        let entries: Result<Vec<_>, MapError> = self.bindings.iter().collect();
        for (key, Record(mut binding)) in entries.expect("no other process writes to the map") {
            binding.until = binding.until.wrapping_sub(ticks);
            self.bindings
                .insert(key, Record(binding), 0)
                .expect("the binding was there a moment ago");
        }
    }
}
