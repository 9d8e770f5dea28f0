//! A gateway between the hosts.

use std::net::SocketAddr;

use anyhow::Result;
use xdptun_lab::{Capture, Family, Host, Netns, Served};

use crate::TUNNEL_PORT;
use crate::crossing::Crossing;

/// A gateway with a wire to the client and one to the server. It routes, and knows nothing of the
/// tunnel until [`Forwarding`](crate::Forwarding) starts there.
#[derive(Debug)]
pub struct Gateway {
    net: Served,
    family: Family,
}

impl Gateway {
    /// Its interfaces: towards the client, towards the server.
    pub const DEVS: [&'static str; 2] = [Served::WAN, Served::LAN];

    pub(crate) fn new(family: Family) -> Result<Self> {
        let net = Served::new()?;
        Ok(Self { net, family })
    }

    /// The network that it is in, to change that.
    pub fn net(&self) -> &Served {
        &self.net
    }

    /// Where it lives.
    pub fn netns(&self) -> &Netns {
        &self.net.gateway
    }

    /// The hosts behind its interfaces: the client, the server.
    pub fn hosts(&self) -> [&Host; 2] {
        [&self.net.client, &self.net.back_end]
    }

    /// The end of peer 1.
    pub fn client(&self) -> SocketAddr {
        self.net.client.socket(self.family, TUNNEL_PORT)
    }

    /// The end that peer 1 takes for peer 2's.
    pub fn listen(&self) -> SocketAddr {
        self.net.listen_at(self.family, TUNNEL_PORT)
    }

    /// The end of peer 2.
    pub fn back_end(&self) -> SocketAddr {
        self.net.back_end.socket(self.family, TUNNEL_PORT)
    }

    /// Watches both wires at the gateway's ends. A frame that was received there is not lost before
    /// it is sent on: there is no queue between.
    pub fn watch(&self) -> Result<[Capture<Crossing>; 2]> {
        let [wan, lan] =
            Self::DEVS.map(|dev| Capture::fold(self.netns(), dev, Crossing::new(), Crossing::add));
        Ok([wan?, lan?])
    }
}
