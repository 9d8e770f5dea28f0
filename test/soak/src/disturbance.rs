//! The disturbances.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use xdptun_lab::topology::Router;
use xdptun_lab::{Host, Netns, link};
use xdptun_test_net::mode::Mode;

use crate::change;
use crate::forgery::Burst;
use crate::path;
use crate::world::World;

/// Kinds of disturbances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The router forgets all connections.
    ConntrackFlushed,
    /// The same, and then gives other ports.
    PortsRebound,
    /// A client has new sockets while the router lets no SYN pass.
    SynBlocked,
    /// An interface of the router is down for a while.
    RouterLinkDown,
    /// A client's interface is down for a while.
    ClientLinkDown,
    /// The server's interface is down for a while.
    ServerLinkDown,
    /// xdptun ends and restarts, without its state.
    Restarted,
    /// The daemon is killed, and started again.
    DaemonKilled,
    /// A new daemon takes over from the one that runs.
    DaemonReplaced,
    /// The router sends forged segments of the flows.
    SegmentsForged,
    /// Checksum offloads of a host are switched.
    OffloadSwitched,
    /// Some segments overtake others on the path.
    Reordered,
    /// The path to the server carries smaller packets for a while.
    PathNarrowed,
    /// A client's interface has a smaller MTU for a while.
    ClientNarrowed,
    /// A client has other addresses.
    ClientRoamed,
    /// The router's rules are flushed and loaded again.
    RulesReloaded,
    /// A host, or the router, has another Ethernet address for a while.
    MacChanged,
    /// A host has a second address for a while.
    AddressAdded,
    /// The segmentation offloads of a host are off for a while, and GRO is on.
    GsoSwitched,
    /// A host's interface has other queueing disciplines for a while.
    QdiscReplaced,
    /// A host's interface is in another network namespace for a while.
    InterfaceMoved,
    /// The daemon stands still for a while.
    DaemonFrozen,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 22] = [
        Self::ConntrackFlushed,
        Self::PortsRebound,
        Self::SynBlocked,
        Self::RouterLinkDown,
        Self::ClientLinkDown,
        Self::ServerLinkDown,
        Self::Restarted,
        Self::DaemonKilled,
        Self::DaemonReplaced,
        Self::SegmentsForged,
        Self::OffloadSwitched,
        Self::Reordered,
        Self::PathNarrowed,
        Self::ClientNarrowed,
        Self::ClientRoamed,
        Self::RulesReloaded,
        Self::MacChanged,
        Self::AddressAdded,
        Self::GsoSwitched,
        Self::QdiscReplaced,
        Self::InterfaceMoved,
        Self::DaemonFrozen,
    ];

    /// The kind of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// As it is called in reports; the names do not change.
    pub fn name(self) -> &'static str {
        match self {
            Self::ConntrackFlushed => "conntrack_flushed",
            Self::PortsRebound => "ports_rebound",
            Self::SynBlocked => "syn_blocked",
            Self::RouterLinkDown => "router_link_down",
            Self::ClientLinkDown => "client_link_down",
            Self::ServerLinkDown => "server_link_down",
            Self::Restarted => "restarted",
            Self::DaemonKilled => "daemon_killed",
            Self::DaemonReplaced => "daemon_replaced",
            Self::SegmentsForged => "segments_forged",
            Self::OffloadSwitched => "offload_switched",
            Self::Reordered => "reordered",
            Self::PathNarrowed => "path_narrowed",
            Self::ClientNarrowed => "client_narrowed",
            Self::ClientRoamed => "client_roamed",
            Self::RulesReloaded => "rules_reloaded",
            Self::MacChanged => "mac_changed",
            Self::AddressAdded => "address_added",
            Self::GsoSwitched => "gso_switched",
            Self::QdiscReplaced => "qdisc_replaced",
            Self::InterfaceMoved => "interface_moved",
            Self::DaemonFrozen => "daemon_frozen",
        }
    }
}

/// One disturbance, with all that was drawn for it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the kinds say what the fields are")]
pub enum Disturbance {
    ConntrackFlushed,
    PortsRebound {
        ports: RangeInclusive<u16>,
    },
    SynBlocked {
        client: usize,
        pause: Duration,
    },
    RouterLinkDown {
        dev: String,
        pause: Duration,
    },
    ClientLinkDown {
        client: usize,
        pause: Duration,
    },
    ServerLinkDown {
        pause: Duration,
    },
    Restarted {
        peer: usize,
        pause: Duration,
        mode: Mode,
    },
    DaemonKilled {
        peer: usize,
        pause: Duration,
    },
    DaemonReplaced {
        peer: usize,
    },
    SegmentsForged(Burst),
    OffloadSwitched {
        peer: usize,
        feature: &'static str,
        on: bool,
    },
    Reordered {
        pause: Duration,
    },
    PathNarrowed {
        mtu: u32,
        pause: Duration,
    },
    ClientNarrowed {
        client: usize,
        mtu: u32,
        pause: Duration,
    },
    ClientRoamed {
        client: usize,
        host: u8,
    },
    RulesReloaded {
        pause: Duration,
    },
    MacChanged {
        peer: usize,
        at_router: bool,
        pause: Duration,
    },
    AddressAdded {
        peer: usize,
        pause: Duration,
    },
    GsoSwitched {
        peer: usize,
        pause: Duration,
    },
    QdiscReplaced {
        peer: usize,
        pause: Duration,
    },
    InterfaceMoved {
        peer: usize,
        pause: Duration,
    },
    DaemonFrozen {
        peer: usize,
        pause: Duration,
    },
}

impl Disturbance {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::ConntrackFlushed => Kind::ConntrackFlushed,
            Self::PortsRebound { .. } => Kind::PortsRebound,
            Self::SynBlocked { .. } => Kind::SynBlocked,
            Self::RouterLinkDown { .. } => Kind::RouterLinkDown,
            Self::ClientLinkDown { .. } => Kind::ClientLinkDown,
            Self::ServerLinkDown { .. } => Kind::ServerLinkDown,
            Self::Restarted { .. } => Kind::Restarted,
            Self::DaemonKilled { .. } => Kind::DaemonKilled,
            Self::DaemonReplaced { .. } => Kind::DaemonReplaced,
            Self::SegmentsForged(_) => Kind::SegmentsForged,
            Self::OffloadSwitched { .. } => Kind::OffloadSwitched,
            Self::Reordered { .. } => Kind::Reordered,
            Self::PathNarrowed { .. } => Kind::PathNarrowed,
            Self::ClientNarrowed { .. } => Kind::ClientNarrowed,
            Self::ClientRoamed { .. } => Kind::ClientRoamed,
            Self::RulesReloaded { .. } => Kind::RulesReloaded,
            Self::MacChanged { .. } => Kind::MacChanged,
            Self::AddressAdded { .. } => Kind::AddressAdded,
            Self::GsoSwitched { .. } => Kind::GsoSwitched,
            Self::QdiscReplaced { .. } => Kind::QdiscReplaced,
            Self::InterfaceMoved { .. } => Kind::InterfaceMoved,
            Self::DaemonFrozen { .. } => Kind::DaemonFrozen,
        }
    }

    /// Lets it happen; returns when the path is as it should be again.
    pub fn apply(&self, world: &mut World) -> Result<()> {
        let net = &world.net;
        match self {
            Self::ConntrackFlushed => {
                world.ledger.ports_change_hands();
                net.router.forget()
            }
            Self::PortsRebound { ports } => {
                world.ledger.ports_change_hands();
                net.router.masquerade_to(ports)?;
                net.router.forget()
            }
            Self::SynBlocked { client, pause } => {
                net.router.hold(&[Router::SYN])?;
                // Their flows have yet to open.
                world.clients[*client].renew()?;
                thread::sleep(*pause);
                net.router.release()
            }
            Self::RouterLinkDown { dev, pause } => {
                // Masquerading forgets with the interface.
                world.ledger.ports_change_hands();
                interrupt(&net.router.netns, dev, *pause)
            }
            Self::ClientLinkDown { client, pause } => {
                interrupt(&net.clients[*client].netns, Host::DEV, *pause)
            }
            Self::ServerLinkDown { pause } => interrupt(&net.server.netns, Host::DEV, *pause),
            Self::Restarted { peer, pause, mode } => {
                let peer = &mut world.peers[*peer];
                let gate = Arc::clone(&peer.gate);
                // Without xdptun the host would send plain UDP.
                let _closed = gate.close();
                peer.detach()?;
                thread::sleep(*pause);
                peer.attach(*mode)
            }
            Self::DaemonKilled { peer, pause } => {
                let peer = &mut world.peers[*peer];
                peer.kill()?;
                thread::sleep(*pause);
                peer.revive()
            }
            Self::DaemonReplaced { peer } => world.peers[*peer].replace(),
            Self::SegmentsForged(burst) => burst.send(net),
            Self::OffloadSwitched { peer, feature, on } => {
                world.peers[*peer].host.offload(feature, *on)
            }
            Self::Reordered { pause } => path::reorder(world, *pause),
            Self::PathNarrowed { mtu, pause } => path::narrow(world, *mtu, *pause),
            Self::ClientNarrowed { client, mtu, pause } => {
                path::narrow_client(world, *client, *mtu, *pause)
            }
            Self::ClientRoamed { client, host } => {
                world.net.readdress(u8::try_from(*client)?, *host)
            }
            Self::RulesReloaded { pause } => change::rules(world, *pause),
            Self::MacChanged {
                peer,
                at_router,
                pause,
            } => change::mac(world, *peer, *at_router, *pause),
            Self::AddressAdded { peer, pause } => change::address(world, *peer, *pause),
            Self::GsoSwitched { peer, pause } => change::gso(world, *peer, *pause),
            Self::QdiscReplaced { peer, pause } => change::qdiscs(world, *peer, *pause),
            Self::InterfaceMoved { peer, pause } => change::moved(world, *peer, *pause),
            Self::DaemonFrozen { peer, pause } => change::frozen(world, *peer, *pause),
        }
    }
}

/// Takes an interface down for a while.
fn interrupt(netns: &Netns, dev: &str, pause: Duration) -> Result<()> {
    let down = link::down(netns, dev)?;
    thread::sleep(pause);
    down.up()
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().name())?;
        match self {
            Self::ConntrackFlushed => Ok(()),
            Self::PortsRebound { ports } => write!(f, " to {ports:?}"),
            Self::SynBlocked { client, pause } | Self::ClientLinkDown { client, pause } => {
                write!(f, " client {client} for {pause:?}")
            }
            Self::RouterLinkDown { dev, pause } => write!(f, " {dev} for {pause:?}"),
            Self::ServerLinkDown { pause } | Self::RulesReloaded { pause } => {
                write!(f, " for {pause:?}")
            }
            Self::Restarted { peer, pause, mode } => write!(
                f,
                " peer {peer} after {pause:?}, --ingress {} --tc {}",
                mode.ingress, mode.tc
            ),
            Self::DaemonKilled { peer, pause } => write!(f, " peer {peer} after {pause:?}"),
            Self::MacChanged {
                peer,
                at_router,
                pause,
            } => {
                let end = if *at_router {
                    "router's end"
                } else {
                    "own end"
                };
                write!(f, " peer {peer}, {end}, for {pause:?}")
            }
            Self::AddressAdded { peer, pause }
            | Self::GsoSwitched { peer, pause }
            | Self::QdiscReplaced { peer, pause }
            | Self::InterfaceMoved { peer, pause }
            | Self::DaemonFrozen { peer, pause } => write!(f, " peer {peer} for {pause:?}"),
            Self::DaemonReplaced { peer } => write!(f, " peer {peer}"),
            Self::SegmentsForged(burst) => {
                let to = if burst.to_server { "server" } else { "clients" };
                write!(f, " {} {:?} to the {to}", burst.count, burst.kind)
            }
            Self::OffloadSwitched { peer, feature, on } => {
                let on = if *on { "on" } else { "off" };
                write!(f, " peer {peer} {feature} {on}")
            }
            Self::Reordered { pause } => write!(f, " for {pause:?}"),
            Self::PathNarrowed { mtu, pause } => write!(f, " to {mtu} for {pause:?}"),
            Self::ClientNarrowed { client, mtu, pause } => {
                write!(f, " client {client} to {mtu} for {pause:?}")
            }
            Self::ClientRoamed { client, host } => write!(f, " client {client} to host {host}"),
        }
    }
}
