//! VRFs, the routing table of each, and the interfaces in them.

use std::collections::BTreeMap;

use futures_util::TryStreamExt as _;
use rtnetlink::Handle;
use rtnetlink::packet_route::link::{InfoData, InfoVrf, LinkAttribute, LinkInfo, LinkMessage};

use crate::error::{Context as _, Result};

/// `RT_TABLE_LOCAL` of `linux/rtnetlink.h`: where the kernel keeps the addresses of all
/// interfaces that are in no VRF.
const LOCAL_TABLE: u32 = 255;

/// The packets that the kernel looks up in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// All packets that come in by the interface.
    Always,
    /// Packets that a rule chooses (`ip rule`), for instance by a mark, as for TPROXY.
    ByRule,
}

/// The VRFs of this host.
#[derive(Debug, Default)]
pub struct Vrfs {
    /// By device, the bridge, bond or VRF that it is part of.
    controllers: BTreeMap<u32, u32>,
    /// By device, the table of a VRF.
    tables: BTreeMap<u32, u32>,
}

impl Vrfs {
    /// Asks the kernel for all devices.
    pub async fn list(handle: &Handle) -> Result<Self> {
        let links: Vec<LinkMessage> = handle
            .link()
            .get()
            .execute()
            .try_collect()
            .await
            .context("cannot list the interfaces")?;
        let mut vrfs = Self::default();
        for link in links {
            let index = link.header.index;
            if let Some(table) = table_of_vrf(&link) {
                vrfs.tables.insert(index, table);
            }
            let controller = link
                .attributes
                .iter()
                .find_map(|attribute| match attribute {
                    LinkAttribute::Controller(index) => Some(*index),
                    _ => None,
                });
            vrfs.controllers
                .extend(controller.map(|controller| (index, controller)));
        }
        Ok(vrfs)
    }

    /// The packets of an interface that the kernel looks up in a table; `None` if the table
    /// belongs to a VRF that the interface is not in.
    pub fn use_of(&self, table: u32, interface: u32) -> Option<Use> {
        if table == LOCAL_TABLE || self.table_over(interface) == Some(table) {
            return Some(Use::Always);
        }
        let is_of_vrf = self.tables.values().any(|of_vrf| *of_vrf == table);
        (!is_of_vrf).then_some(Use::ByRule)
    }

    /// The table of the VRF above an interface, perhaps with a bridge or bond in between.
    pub fn table_over(&self, interface: u32) -> Option<u32> {
        // The kernel stacks no more devices (`MAX_NEST_DEV`).
        const DEPTH: usize = 8;
        let above = |device: &u32| self.controllers.get(device).copied();
        std::iter::successors(Some(interface), above)
            .take(DEPTH)
            .find_map(|device| self.tables.get(&device).copied())
    }
}

/// The routing table of a VRF; `None` if the device is something else.
fn table_of_vrf(device: &LinkMessage) -> Option<u32> {
    let infos = device
        .attributes
        .iter()
        .filter_map(|attribute| match attribute {
            LinkAttribute::LinkInfo(infos) => Some(infos),
            _ => None,
        });
    infos.flatten().find_map(|info| match info {
        LinkInfo::Data(InfoData::Vrf(data)) => data.iter().find_map(|data| match data {
            InfoVrf::TableId(table) => Some(*table),
            _ => None,
        }),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_asked_for_what_belongs_to_it() {
        // 2 in bond 3 in VRF 4, 5 in bridge 6, 7 alone, 8 in VRF 9.
        let vrfs = Vrfs {
            controllers: [(2, 3), (3, 4), (5, 6), (8, 9)].into(),
            tables: [(4, 10), (9, 20)].into(),
        };
        for (interface, uses) in [
            (2, [Some(Use::Always), None]),
            (3, [Some(Use::Always), None]),
            (5, [None, None]),
            (7, [None, None]),
            (8, [None, Some(Use::Always)]),
        ] {
            assert_eq!([10, 20].map(|table| vrfs.use_of(table, interface)), uses);
            assert_eq!(vrfs.use_of(LOCAL_TABLE, interface), Some(Use::Always));
            assert_eq!(vrfs.use_of(100, interface), Some(Use::ByRule));
        }
    }

    #[test]
    fn a_loop_of_controllers_ends() {
        // Read while they changed.
        let vrfs = Vrfs {
            controllers: [(1, 2), (2, 1)].into(),
            tables: [(4, 10)].into(),
        };
        assert_eq!(vrfs.table_over(1), None);
    }
}
