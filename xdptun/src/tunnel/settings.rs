//! What the programs and maps of the tunnel are set up with.

use ipnet::IpNet;

use super::keys::Keys;
use crate::host::ports::PortRange;

/// What the programs and maps of the tunnel are set up with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Owned ports.
    pub ports: Vec<PortRange>,
    /// Networks of peers.
    pub peers: Vec<IpNet>,
    /// Whether the programs leave all other addresses alone.
    pub only_peers: bool,
    /// Capacity of the flow table.
    pub max_flows: u32,
    /// The keys of the secrets that callers must know, if any.
    pub keys: Option<Keys>,
}

impl Settings {
    /// Whether these settings need other programs than `before`. Ports, peers and keys can
    /// change while programs run; everything else, and whether there are keys at all, is
    /// fixed when programs are loaded.
    #[must_use]
    pub fn take_other_programs(&self, before: &Self) -> bool {
        let fixed = |settings: &Self| {
            let hidden = settings.keys.is_some();
            (settings.only_peers, settings.max_flows, hidden)
        };
        fixed(self) != fixed(before)
    }
}
