//! The input of one iteration.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use xdptun_common::attachment::IngressMode;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::sent::SentSegment;
use xdptun_common::tunnel::state::Flow;

use super::hex;
use crate::path::Family;
use crate::program::{Config, Program, Skb};

/// One of the configurations that programs are fuzzed under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    /// Every address is a peer, no splitter, XDP not in front of tc.
    Open,
    /// Only the configured peers, a splitter, the stack's XDP in front of tc.
    Guarded,
    /// As `Open`, but callers must prove that they know a secret.
    Hidden,
}

impl Setup {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Open, Self::Guarded, Self::Hidden];

    /// The settings of the programs.
    #[must_use]
    pub fn config(self) -> Config {
        let guarded = self == Self::Guarded;
        let config = Config::default();
        Config {
            peers_only: guarded,
            ingress: if guarded {
                IngressMode::XdpGeneric
            } else {
                IngressMode::Tc
            },
            // As absent as the interface that answers leave by.
            near_end: if guarded { config.ifindex - 1 } else { 0 },
            hidden: self == Self::Hidden,
            ..config
        }
    }

    /// Whether packets from and to an address are ours, by its network.
    #[must_use]
    pub fn is_peer(self, address: IpAddr) -> bool {
        let network = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()) >> 2,
            IpAddr::V6(address) => address.to_bits() >> 2,
        };
        let known = Family::ALL.map(Family::peer);
        self != Self::Guarded
            || known.iter().any(|peer| {
                peer.is_ipv4() == address.is_ipv4() && network(*peer) == network(address)
            })
    }
}

/// A packet and all that the program finds when it meets it.
#[derive(Clone)]
pub struct Scene {
    /// The program.
    pub program: Program,
    /// How it is configured.
    pub setup: Setup,
    /// The flow table.
    pub flows: BTreeMap<FlowKey, Flow>,
    /// The segment that left of late, if one did.
    pub sent: Option<SentSegment>,
    /// The packet's metadata.
    pub skb: Skb,
    /// Whether the packet belongs to an interface with an MTU of 1500, rather
    /// than to the loopback.
    pub narrow: bool,
    /// Whether replies may be sent.
    pub may_reply: bool,
    /// The packet.
    pub frame: Vec<u8>,
    /// The same packet before it was damaged.
    pub intact: Vec<u8>,
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:?} in setup {:?}, mark {:#x}, GSO size {}, {}, {}",
            self.program,
            self.setup,
            self.skb.mark,
            self.skb.gso_size,
            if self.narrow { "MTU 1500" } else { "loopback" },
            if self.may_reply {
                "replies go"
            } else {
                "replies are withheld"
            },
        )?;
        for (key, flow) in &self.flows {
            writeln!(f, "flow {} > {}: {flow:?}", key.local(), key.remote())?;
        }
        write!(f, "{} bytes: {}", self.frame.len(), hex(&self.frame))
    }
}
