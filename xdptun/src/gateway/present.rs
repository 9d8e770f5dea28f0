//! Rules as the maps have them at this moment.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;

use xdptun_common::address::ip_addr;
use xdptun_common::gateway::rule::BackEnd;
use xdptun_common::wire::Protocol;

use super::maps::Maps;
use crate::error::Result;

/// Ports that are forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentRule {
    /// The listen address; 0.0.0.0 or `::` stands for any of this host's of that family.
    pub address: IpAddr,
    /// The first and the last port.
    pub ports: (u16, u16),
    /// The protocol; a rule for two is there twice.
    pub protocol: Protocol,
    /// The back ends of the first port, each as often as its weight.
    pub places: Vec<BackEnd>,
}

/// What is forwarded of the packets that come in by an interface, by its index, in the order
/// of the rules.
///
/// # Errors
///
/// If a map cannot be read.
pub fn rules_of(maps: &Maps, interface: u32) -> Result<Vec<PresentRule>> {
    let mut rules: BTreeMap<(u32, u8, IpAddr), PresentRule> = BTreeMap::new();
    let set = maps.set_of(interface)?;
    for (key, listen) in maps.listen()? {
        if Some(key.set()) != set {
            continue;
        }
        let (address, protocol) = (ip_addr(key.address()), key.protocol());
        match rules.entry((listen.first, protocol.0, address)) {
            // The keys of a rule are in the order of ports.
            Entry::Occupied(mut found) => found.get_mut().ports.1 = key.port(),
            Entry::Vacant(vacant) => {
                vacant.insert(PresentRule {
                    address,
                    ports: (key.port(), key.port()),
                    protocol,
                    places: maps.back_ends(&listen)?,
                });
            }
        }
    }
    Ok(rules.into_values().collect())
}
