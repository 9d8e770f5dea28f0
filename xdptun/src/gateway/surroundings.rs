//! What a plan needs to know of this host beside its configuration, and which changes: routes and
//! addresses.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use crate::config::{Forward, Nat};
use crate::error::Result;
use crate::host::first_address::first_addresses;
use crate::host::route::{Way, Ways, WaysInto, interfaces_into, ways_to};

/// Routes and addresses as they were last seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The way to each back end, if there is one.
    pub ways: Ways,
    /// The interfaces that lead to each inside network.
    pub inside: WaysInto,
    /// The outside address of each interface that translates, if it has one.
    pub outside: BTreeMap<String, Ipv4Addr>,
}

impl Surroundings {
    /// Asks the kernel.
    ///
    /// # Errors
    ///
    /// If it does not tell.
    pub fn of<'a>(
        forwards: impl Iterator<Item = &'a Forward>,
        nats: &BTreeMap<String, Nat>,
    ) -> Result<Self> {
        let back_ends = forwards.flat_map(|forward| &forward.to);
        let inside = nats.values().flat_map(|nat| &nat.inside);
        let following = nats.iter().filter(|(_, nat)| nat.outside.is_none());
        let mut outside = first_addresses(following.map(|(name, _)| name))?;
        let named = nats.iter();
        let named = named.filter_map(|(name, nat)| Some((name.clone(), nat.outside?)));
        outside.extend(named);
        Ok(Self {
            ways: ways_to(back_ends.map(|to| to.address))?,
            inside: interfaces_into(inside.map(|inside| inside.network()))?,
            outside,
        })
    }

    /// The interfaces that lead to the inside networks of a translation.
    pub fn inside_of<'a>(&'a self, nat: &'a Nat) -> impl Iterator<Item = u32> + Clone + 'a {
        let networks = nat.inside.iter();
        let found = networks.filter_map(|inside| self.inside.get(&inside.network()));
        found.flatten().copied()
    }

    /// The way to an address, if it is a back end's.
    pub fn way(&self, to: IpAddr) -> Option<Way> {
        self.ways.get(&to).copied().flatten()
    }
}
