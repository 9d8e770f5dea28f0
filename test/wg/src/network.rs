//! What is between the hosts.

use std::net::IpAddr;

use anyhow::Result;
use xdptun_lab::{Direct, Family, Host, Routed};

use crate::gateway::Gateway;

/// The network between the hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Between {
    /// One wire, as in the reference measurement.
    Wire,
    /// A strict router that translates the client's address.
    StrictRouter,
    /// A [`Gateway`], whose address of this family is all that peer 1 knows of peer 2.
    Gateway(Family),
}

/// A network with both hosts in it.
#[derive(Debug)]
pub(crate) enum Network {
    Wire(Direct),
    Routed(Routed),
    Gateway(Gateway),
}

impl Network {
    pub(crate) fn new(between: Between) -> Result<Self> {
        Ok(match between {
            Between::Wire => Self::Wire(Direct::new()?),
            Between::StrictRouter => Self::Routed(Routed::new()?),
            Between::Gateway(family) => Self::Gateway(Gateway::new(family)?),
        })
    }

    /// The host of peer 1, then that of peer 2.
    pub(crate) fn hosts(&self) -> [&Host; 2] {
        match self {
            Self::Wire(net) => [&net.a, &net.b],
            Self::Routed(net) => [net.client(), &net.server],
            Self::Gateway(gateway) => gateway.hosts(),
        }
    }

    /// The address at which peer 1 reaches peer 2.
    pub(crate) fn endpoint(&self) -> IpAddr {
        match self {
            Self::Wire(_) | Self::Routed(_) => {
                let [_, server] = self.hosts();
                server.v4.into()
            }
            Self::Gateway(gateway) => gateway.listen().ip(),
        }
    }
}
