//! What the programs and maps of the gateway are set up with.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use xdptun_common::gateway::nat::Nat;
use xdptun_common::gateway::timer::Timers;
use xdptun_common::wire::Protocol;

use super::cut::CutOrder;

/// What the programs and maps of the gateway are set up with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What is forwarded, by the names of the interfaces by which sessions may begin.
    pub rules: BTreeMap<String, Vec<Rule>>,
    /// What is translated, by the names of the interfaces that lead outside.
    pub nats: BTreeMap<String, Nat>,
    /// How many bindings there may be at once.
    pub max_bindings: u32,
    /// How many sessions may be open at once.
    pub max_sessions: u32,
    /// How long sessions live without a packet.
    pub timers: Timers,
    /// The last order to end the sessions that no rule has any more.
    pub cut: CutOrder,
}

/// Ports that are forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The listen address; 0.0.0.0 or `::` stands for any of this host's of that family.
    pub address: IpAddr,
    /// The first and the last port.
    pub ports: (u16, u16),
    /// The protocols.
    pub protocols: &'static [Protocol],
    /// The back ends of the first port; those of the others have as much higher ports.
    pub back_ends: Vec<BackEnd>,
}

/// Where packets of a rule go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackEnd {
    /// Its address and port.
    pub to: SocketAddr,
    /// How many clients it gets, as a share of the sum of all weights.
    pub weight: u16,
    /// What it sees as the source.
    pub source: Source,
}

/// The source that a back end sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The client's.
    Kept,
    /// This address, with a port of this range.
    Address(IpAddr, [u16; 2]),
    /// An address of this host, and there is none now: no route leads to the back end.
    Unreachable,
}
