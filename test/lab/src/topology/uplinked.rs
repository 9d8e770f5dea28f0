//! A client, and a server with two uplinks that answers by the other one.

use std::net::Ipv4Addr;

use anyhow::Result;

use super::host::{Host, prefixed, v6};
use super::multihomed::accept_any_way;
use crate::link::{self, End};
use crate::netns::Netns;

/// A client behind a router, which has two links to the server: packets to the server's
/// address arrive by the first, the default route of the server is the second.
///
/// The router neither translates nor filters.
#[derive(Debug)]
pub struct Uplinked {
    /// `10.8.0.2`, `fd00:8::2`.
    pub client: Host,
    /// The router between them: `lan0` leads to the client, [`Uplinked::UPLINKS`] to the
    /// server.
    pub router: Netns,
    /// `10.7.0.2`, `fd00:7::2`, of the network of its `eth0`; the second uplink is `eth1`.
    pub server: Host,
}

impl Uplinked {
    /// The interfaces of the router to the server's `eth0` and `eth1`.
    pub const UPLINKS: [&'static str; 2] = ["up0", "up1"];

    /// Makes the network.
    pub fn new() -> Result<Self> {
        let router = Netns::new("router")?;
        accept_any_way(&router)?;
        router.sysctl("net.ipv4.ip_forward", "1")?;
        router.sysctl("net.ipv6.conf.all.forwarding", "1")?;
        let client = Host::new("client", Ipv4Addr::new(10, 8, 0, 2), v6([0xfd00, 8], 2))?;
        client.connect(&End {
            netns: &router,
            dev: "lan0",
            addresses: &prefixed(Ipv4Addr::new(10, 8, 0, 1), v6([0xfd00, 8], 1)),
        })?;
        let server = Host::new("server", Ipv4Addr::new(10, 7, 0, 2), v6([0xfd00, 7], 2))?;
        accept_any_way(&server.netns)?;
        let [first, second] = Self::UPLINKS;
        server.connect(&End {
            netns: &router,
            dev: first,
            addresses: &prefixed(Ipv4Addr::new(10, 7, 0, 1), v6([0xfd00, 7], 1)),
        })?;
        link::veth(
            &End {
                netns: &server.netns,
                dev: "eth1",
                addresses: &prefixed(Ipv4Addr::new(10, 7, 1, 2), v6([0xfd00, 7, 1], 2)),
            },
            &End {
                netns: &router,
                dev: second,
                addresses: &prefixed(Ipv4Addr::new(10, 7, 1, 1), v6([0xfd00, 7, 1], 1)),
            },
        )?;
        for (host, gateways) in [
            (&client, ["10.8.0.1", "fd00:8::1"]),
            (&server, ["10.7.1.1", "fd00:7:1::1"]),
        ] {
            for gateway in gateways {
                let default = ["route", "add", "default", "via", gateway];
                host.netns.run("ip", default)?;
            }
        }
        Ok(Self {
            client,
            router,
            server,
        })
    }
}
