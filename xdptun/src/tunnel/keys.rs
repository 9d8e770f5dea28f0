//! The keys of proofs, and the networks of peers that each set is for.

use std::collections::BTreeMap;

use aya::Ebpf;
use aya::maps::{Array, LpmTrie, MapData};
use ipnet::IpNet;
use xdptun_common::tunnel::proof::{KeySet, MAX_KEY_SETS};
use xdptun_common::tunnel::veil::VeilKey;

use crate::datapath::map::absent;
use crate::datapath::network::{NetworkKey, network_key};
use crate::datapath::pod::AsPod;
use crate::error::{Context as _, Error, Kind, Result};

/// The keys of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The set for all other peers.
    pub everyone: KeySet,
    /// The sets for networks; of two that overlap, the smaller counts.
    pub of: BTreeMap<IpNet, KeySet>,
}

impl From<KeySet> for Keys {
    fn from(everyone: KeySet) -> Self {
        Self {
            everyone,
            of: BTreeMap::new(),
        }
    }
}

/// The maps of the keys. They are not pinned: each set of programs has its own.
pub struct KeyMaps {
    sets: Array<MapData, AsPod<KeySet>>,
    of: LpmTrie<MapData, [u8; 16], u32>,
    veil: Array<MapData, AsPod<VeilKey>>,
}

impl KeyMaps {
    /// The maps of a loaded object.
    ///
    /// # Errors
    ///
    /// If one is missing.
    pub fn take(ebpf: &mut Ebpf) -> Result<Self> {
        let mut map = |name| {
            let map = ebpf.take_map(name);
            map.with_context(|| format!("the object has no map {name}"))
        };
        Ok(Self {
            sets: map("KEYS")?.try_into()?,
            of: map("KEYS_OF")?.try_into()?,
            veil: map("VEIL_KEY")?.try_into()?,
        })
    }

    /// Replaces the keys while programs run. At every moment each address has either its old
    /// or its new keys.
    ///
    /// # Errors
    ///
    /// If the maps cannot be written.
    pub fn set(&mut self, keys: &Keys) -> Result<()> {
        // Sets in use stay as they are; the new ones go to the other half.
        let bank = match absent(self.of.get(&NetworkKey::new(0, [0; 16]), 0))? {
            Some(set) if set < MAX_KEY_SETS => MAX_KEY_SETS,
            _ => 0,
        };
        let (sets, of) = numbered(keys)?;
        for (index, set) in (bank..).zip(&sets) {
            self.sets.set(index, AsPod(*set), 0)?;
        }
        self.veil.set(0, AsPod(*keys.everyone.veil()), 0)?;
        // The set for all other peers last, as it tells which half is in use.
        for ((prefix_len, address), index) in of.iter().rev() {
            let network = NetworkKey::new(*prefix_len, *address);
            self.of.insert(&network, bank + index, 0)?;
        }
        let present: Vec<_> = self.of.keys().collect::<Result<_, _>>()?;
        let wanted = |key: &&NetworkKey| !of.contains_key(&(key.prefix_len(), key.data()));
        let mut gone = present.iter().filter(wanted);
        Ok(gone.try_for_each(|key| self.of.remove(key))?)
    }
}

/// A network as the map has it: prefix length and address.
type Network = (u32, [u8; 16]);

/// The different sets, and for each network the number of its set.
fn numbered(keys: &Keys) -> Result<(Vec<KeySet>, BTreeMap<Network, u32>)> {
    let mut sets = vec![keys.everyone];
    let mut of: BTreeMap<Network, u32> = [((0, [0; 16]), 0)].into();
    for (network, set) in &keys.of {
        let index = match sets.iter().position(|other| other == set) {
            Some(index) => index,
            None => {
                sets.push(*set);
                sets.len() - 1
            }
        };
        let key = network_key(*network);
        of.insert((key.prefix_len(), key.data()), u32::try_from(index)?);
    }
    if sets.len() > MAX_KEY_SETS as usize {
        return Err(Error::new(Kind::Invalid, too_many(sets.len())));
    }
    Ok((sets, of))
}

/// Why so many sets of keys are too many.
pub fn too_many(sets: usize) -> String {
    format!(
        "{sets} different secrets are too many: besides the interface's own, there is room for {} \
         of peers; let some peers share a secret",
        MAX_KEY_SETS - 1
    )
}

#[cfg(test)]
mod tests {
    use xdptun_common::tunnel::proof::ProofKey;

    use super::*;

    fn set(number: u64) -> KeySet {
        KeySet::new(&[ProofKey([number, 0])]).unwrap()
    }

    #[test]
    fn networks_with_the_same_keys_share_a_set() {
        let mut keys = Keys::from(set(0));
        let networks = [("10.0.0.1/32", 1), ("10.0.0.0/8", 0), ("2001:db8::/32", 1)];
        for (network, number) in networks {
            keys.of.insert(network.parse().unwrap(), set(number));
        }
        let (sets, of) = numbered(&keys).unwrap();
        assert_eq!(sets, [set(0), set(1)]);
        let found: Vec<(u32, u32)> = of.iter().map(|((len, _), set)| (*len, *set)).collect();
        assert_eq!(found, [(0, 0), (32, 1), (104, 0), (128, 1)]);
        // A peer that covers every address.
        keys.of.insert("::/0".parse().unwrap(), set(2));
        let (sets, of) = numbered(&keys).unwrap();
        assert_eq!(sets[of[&(0, [0; 16])] as usize], set(2));
    }

    #[test]
    fn sixty_four_sets_fit() {
        let mut keys = Keys::from(set(0));
        for number in 1..64_u8 {
            let network = IpNet::from(std::net::IpAddr::from([10, 0, 0, number]));
            keys.of.insert(network, set(number.into()));
        }
        assert_eq!(numbered(&keys).unwrap().0.len(), 64);
        keys.of.insert("10.0.1.0/24".parse().unwrap(), set(64));
        let error = numbered(&keys).unwrap_err().to_string();
        assert!(
            error.contains("65 different secrets are too many"),
            "{error}"
        );
    }
}
