//! An interface, or a group of interfaces, before it is started or changed.

use std::path::PathBuf;

use nix::net::if_::if_nametoindex;

use crate::error::Result;
use crate::host::addresses;
use crate::tunnel::resolve::Names;
use crate::tunnel::{Pinned, Plan};

/// What it takes to start or change an interface, or a group of interfaces.
pub struct Prepared {
    pub interfaces: Vec<String>,
    pub plan: Plan,
    pub names: Names,
}

impl Prepared {
    /// The interfaces, for a message.
    pub fn name(&self) -> String {
        self.interfaces.join(", ")
    }

    /// Adds interfaces with the same plan.
    pub fn add(&mut self, other: Self) {
        self.interfaces.extend(other.interfaces);
    }

    /// The pins of the group that the first interface is in, if it is there and in one.
    pub fn pins(&self) -> Result<Option<PathBuf>> {
        match self.ifindex() {
            Some(ifindex) => Pinned::group(ifindex),
            None => Ok(None),
        }
    }

    /// The routing table of the VRF that the first interface is in. Two VRFs may use the same
    /// addresses for different hosts.
    pub fn vrf(&self) -> Option<u32> {
        addresses::vrf_of(self.ifindex()?).ok().flatten()
    }

    /// Index of the first interface, if it is there.
    pub fn ifindex(&self) -> Option<u32> {
        let first = self.interfaces.first()?;
        if_nametoindex(first.as_str()).ok()
    }
}
