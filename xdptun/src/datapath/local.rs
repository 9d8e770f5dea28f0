//! The map with the addresses of this host.

use std::collections::BTreeMap;

use aya::Ebpf;
use aya::maps::{LpmTrie, MapData};
use xdptun_common::address::Local;

use super::network::{NetworkKey, network_key};
use crate::error::{Context as _, Result};
use crate::host::addresses::Addresses;

/// The map `LOCAL`. It is not pinned: each set of programs has its own, filled before they
/// run.
pub struct LocalMap {
    map: LpmTrie<MapData, [u8; 16], u32>,
    /// Its keys: prefix length and address.
    present: BTreeMap<(u32, [u8; 16]), Local>,
}

impl LocalMap {
    /// The map of a loaded object.
    ///
    /// # Errors
    ///
    /// If it is missing.
    pub fn take(ebpf: &mut Ebpf) -> Result<Self> {
        let map = ebpf.take_map("LOCAL");
        Ok(Self {
            map: map.context("the object has no map LOCAL")?.try_into()?,
            present: BTreeMap::new(),
        })
    }

    /// Sets the addresses. Those that stay are in the map all the time.
    ///
    /// # Errors
    ///
    /// If the map cannot be written; it may be full.
    pub fn set(&mut self, addresses: &Addresses) -> Result<()> {
        let wanted: BTreeMap<_, _> = addresses
            .iter()
            .map(|(network, kind)| {
                let key = network_key(*network);
                ((key.prefix_len(), key.data()), *kind)
            })
            .collect();
        for (network, kind) in &wanted {
            if self.present.get(network) != Some(kind) {
                self.map
                    .insert(&NetworkKey::new(network.0, network.1), *kind as u32, 0)
                    .context("cannot write the addresses of this host")?;
                self.present.insert(*network, *kind);
            }
        }
        let gone = self.present.keys().filter(|had| !wanted.contains_key(*had));
        for gone in gone.copied().collect::<Vec<_>>() {
            self.map
                .remove(&NetworkKey::new(gone.0, gone.1))
                .context("cannot write the addresses of this host")?;
            self.present.remove(&gone);
        }
        Ok(())
    }
}
