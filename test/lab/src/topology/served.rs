//! A client and a back end, with a gateway between them that routes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::Result;

use super::host::{Family, Host, prefixed, v6};
use crate::link::{self, End};
use crate::netns::Netns;

/// A client, a gateway, and a back end behind it. Both ends send everything to the gateway, until
/// a test takes the back end's route away.
#[derive(Debug)]
pub struct Served {
    /// `192.0.2.1`, `2001:db8::1`.
    pub client: Host,
    /// It has two interfaces, [`Served::WAN`] and [`Served::LAN`].
    pub gateway: Netns,
    /// `10.5.0.5`, `fd00:5::5`.
    pub back_end: Host,
}

impl Served {
    /// The interface of the gateway towards clients.
    pub const WAN: &'static str = "eth0";
    /// The one towards the back end.
    pub const LAN: &'static str = "lan0";

    /// Makes them.
    pub fn new() -> Result<Self> {
        let gateway = Netns::new("gateway")?;
        let client = Host::new(
            "client",
            Ipv4Addr::new(192, 0, 2, 1),
            v6([0x2001, 0xdb8], 1),
        )?;
        let back_end = Host::new("back", Ipv4Addr::new(10, 5, 0, 5), v6([0xfd00, 5], 5))?;
        let net = Self {
            client,
            gateway,
            back_end,
        };
        for (host, dev, ends) in [
            (
                &net.client,
                Self::WAN,
                Family::BOTH.map(|one| net.listen(one)),
            ),
            (
                &net.back_end,
                Self::LAN,
                Family::BOTH.map(|one| net.inner(one)),
            ),
        ] {
            let [IpAddr::V4(v4), IpAddr::V6(v6)] = ends else {
                unreachable!("one of each family");
            };
            host.connect(&End {
                netns: &net.gateway,
                dev,
                addresses: &prefixed(v4, v6),
            })?;
            let routes = ends.map(|end| format!("route replace default via {end}\n"));
            host.netns
                .run_with_input("ip", ["-batch", "-"], &routes.concat())?;
        }
        for setting in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
            net.gateway.run("sysctl", ["-qw", setting])?;
        }
        Ok(net)
    }

    /// The gateway's address towards clients.
    pub fn listen(&self, family: Family) -> IpAddr {
        match family {
            Family::V4 => Ipv4Addr::new(192, 0, 2, 254).into(),
            Family::V6 => v6([0x2001, 0xdb8], 254).into(),
        }
    }

    /// The same with a port.
    pub fn listen_at(&self, family: Family, port: u16) -> SocketAddr {
        SocketAddr::new(self.listen(family), port)
    }

    /// The gateway's address towards the back end.
    pub fn inner(&self, family: Family) -> IpAddr {
        match family {
            Family::V4 => Ipv4Addr::new(10, 5, 0, 254).into(),
            Family::V6 => v6([0xfd00, 5], 254).into(),
        }
    }

    /// Takes the back end's route to the client away.
    pub fn strand_back_end(&self) -> Result<()> {
        for family in ["-4", "-6"] {
            self.back_end
                .netns
                .run("ip", [family, "route", "delete", "default"])?;
        }
        Ok(())
    }

    /// Leaves checksums to the kernels, so that captures show those of the wire.
    pub fn complete_checksums(&self) -> Result<()> {
        for host in [&self.client, &self.back_end] {
            host.offload("tx", false)?;
        }
        for dev in [Self::WAN, Self::LAN] {
            link::offload(&self.gateway, dev, "tx", false)?;
        }
        Ok(())
    }
}
