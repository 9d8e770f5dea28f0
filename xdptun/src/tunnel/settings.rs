//! What the programs and maps of the tunnel are set up with.

use ipnet::IpNet;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::config::{Phantuns, peer};

use super::keys::Keys;
use crate::config::Veil;
use crate::host::ports::PortRange;

/// Which peers run phantun and not xdptun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhantunPeers {
    /// Whether all of them do.
    pub all: bool,
    /// Whether those in `networks` do, though there may be none yet: a host name may lead to some.
    pub some: bool,
    /// Their networks.
    pub networks: Vec<IpNet>,
}

impl PhantunPeers {
    /// What the programs are told.
    #[must_use]
    pub const fn choice(&self) -> Phantuns {
        match self {
            Self { all: true, .. } => Phantuns::All,
            Self { some: true, .. } => Phantuns::Some,
            Self { .. } => Phantuns::None,
        }
    }

    /// What the `PEERS` map says of a network.
    #[must_use]
    pub fn kind_of(&self, network: &IpNet) -> u32 {
        match self.all || self.networks.contains(network) {
            true => peer::PHANTUN,
            false => peer::XDPTUN,
        }
    }
}

/// What the programs and maps of the tunnel are set up with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Owned ports.
    pub ports: Vec<PortRange>,
    /// Networks of peers.
    pub peers: Vec<IpNet>,
    /// Whether the programs leave all other addresses alone.
    pub only_peers: bool,
    /// Which of them are phantuns.
    pub phantuns: PhantunPeers,
    /// Capacity of the flow table.
    pub max_flows: u32,
    /// The keys of the secrets that callers must know, if any.
    pub keys: Option<Keys>,
    /// Whether payloads are veiled by such a key, and what length short datagrams are padded to.
    pub veil: Option<Veil>,
}

impl Settings {
    /// Whether they are for a flow: one of its ports is owned, and the other end is a peer.
    #[must_use]
    pub fn carry(&self, flow: &FlowKey) -> bool {
        let (local, remote) = (flow.local(), flow.remote());
        let owns = |port| self.ports.iter().any(|range| range.contains(port));
        let is_peer = |network: &IpNet| network.contains(&remote.ip());
        (owns(local.port()) || owns(remote.port()))
            && (!self.only_peers || self.peers.iter().any(is_peer))
    }

    /// Whether peers have keys of their own.
    #[must_use]
    pub fn has_own_keys(&self) -> bool {
        self.keys.as_ref().is_some_and(|keys| !keys.of.is_empty())
    }

    /// Whether these settings need other programs than `before`. Ports, peers and keys can
    /// change while programs run; everything else, and whether there are keys or phantuns at all, is
    /// fixed when programs are loaded.
    #[must_use]
    pub fn take_other_programs(&self, before: &Self) -> bool {
        let fixed = |settings: &Self| {
            let hidden = settings.keys.is_some();
            let phantuns = settings.phantuns.choice();
            (
                settings.only_peers,
                settings.max_flows,
                hidden,
                // Where peers have keys of their own, the programs look for the veil's.
                settings.veil.map(|veil| (veil, settings.has_own_keys())),
                phantuns,
            )
        };
        fixed(self) != fixed(before)
    }
}
