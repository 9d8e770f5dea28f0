//! Hosts with private addresses behind a gateway, and hosts that have no route to them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::Result;

use super::host::{Host, prefixed, v6};
use crate::link::{self, End};
use crate::netns::Netns;

/// Three inside hosts, a gateway, the router of its provider, and two outside hosts.
///
/// The router knows no route to inside hosts: it can only answer what has the gateway's own
/// address.
#[derive(Debug)]
pub struct Inside {
    /// `192.168.7.2`, behind [`Inside::LAN`].
    pub a: Host,
    /// `192.168.7.3`, on the same link.
    pub b: Host,
    /// `192.168.8.2`, behind [`Inside::SECOND_LAN`].
    pub c: Host,
    /// It leads outside by [`Inside::WAN`].
    pub gateway: Netns,
    /// The router beyond: [`Inside::OUT`] leads to the outside hosts.
    pub router: Netns,
    /// `198.51.100.5` and `203.0.113.5`.
    pub outside: [Host; 2],
}

impl Inside {
    /// The interface of the gateway that leads outside, and that of the router to the gateway.
    pub const WAN: &'static str = "wan0";
    /// The interface of the gateway to the first two inside hosts, a bridge.
    pub const LAN: &'static str = "lan0";
    /// The interface of the gateway to the third.
    pub const SECOND_LAN: &'static str = "lan1";
    /// The interfaces of the router to the outside hosts.
    pub const OUT: [&'static str; 2] = ["out0", "out1"];
    /// The network of the first two inside hosts.
    pub const NETWORK: &'static str = "192.168.7.0/24";
    /// The network of the third.
    pub const SECOND_NETWORK: &'static str = "192.168.8.0/24";
    /// The outside address of the gateway.
    pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
    /// The router's address on that link.
    pub const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

    /// Makes them.
    pub fn new() -> Result<Self> {
        let inside = |label: &str, third, last: u8| {
            let v4 = Ipv4Addr::new(192, 168, third, last);
            Host::new(label, v4, v6([0xfd00, third.into()], last.into()))
        };
        let outside = |label: &str, v4: [u8; 4], network| {
            Host::new(label, v4.into(), v6([0x2001, 0xdb8, network], 5))
        };
        let net = Self {
            a: inside("a", 7, 2)?,
            b: inside("b", 7, 3)?,
            c: inside("c", 8, 2)?,
            gateway: Netns::new("gateway")?,
            router: Netns::new("router")?,
            outside: [
                outside("first", [198, 51, 100, 5], 1)?,
                outside("second", [203, 0, 113, 5], 2)?,
            ],
        };
        for router in [&net.gateway, &net.router] {
            router.sysctl("net.ipv4.ip_forward", "1")?;
            router.sysctl("net.ipv6.conf.all.forwarding", "1")?;
        }
        net.connect_inside()?;
        net.connect_outside()?;
        Ok(net)
    }

    fn connect_inside(&self) -> Result<()> {
        let gateway = &self.gateway;
        // With snooping it would join a group, and tell so to inside hosts at some time.
        let bridge = ["type", "bridge", "mcast_snooping", "0"];
        gateway.run("ip", [&["link", "add", Self::LAN][..], &bridge].concat())?;
        for (host, port) in [(&self.a, "port0"), (&self.b, "port1")] {
            host.connect(&End {
                netns: gateway,
                dev: port,
                addresses: &[],
            })?;
            gateway.run("ip", ["link", "set", port, "master", Self::LAN])?;
        }
        link::configure(&End {
            netns: gateway,
            dev: Self::LAN,
            addresses: &prefixed(Ipv4Addr::new(192, 168, 7, 1), v6([0xfd00, 7], 1)),
        })?;
        link::wait_up(gateway, Self::LAN)?;
        self.c.connect(&End {
            netns: gateway,
            dev: Self::SECOND_LAN,
            addresses: &prefixed(Ipv4Addr::new(192, 168, 8, 1), v6([0xfd00, 8], 1)),
        })?;
        for (host, router) in [
            (&self.a, "192.168.7.1"),
            (&self.b, "192.168.7.1"),
            (&self.c, "192.168.8.1"),
        ] {
            route_by_default(&host.netns, router)?;
        }
        Ok(())
    }

    fn connect_outside(&self) -> Result<()> {
        link::veth(
            &End {
                netns: &self.gateway,
                dev: Self::WAN,
                addresses: &[format!("{}/24", Self::ADDRESS)],
            },
            &End {
                netns: &self.router,
                dev: Self::WAN,
                addresses: &[format!("{}/24", Self::ROUTER)],
            },
        )?;
        route_by_default(&self.gateway, &Self::ROUTER.to_string())?;
        for (host, dev) in self.outside.iter().zip(Self::OUT) {
            let [a, b, c, _] = host.v4.octets();
            let router = Ipv4Addr::new(a, b, c, 1);
            host.connect(&End {
                netns: &self.router,
                dev,
                addresses: &[format!("{router}/24")],
            })?;
            route_by_default(&host.netns, &router.to_string())?;
        }
        Ok(())
    }

    /// The gateway's outside address with a port.
    #[must_use]
    pub fn outside_at(port: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Self::ADDRESS), port)
    }

    /// Gives the gateway another outside address in the place of the one it has, as a DHCP client
    /// does.
    pub fn readdress(&self, old: Ipv4Addr, new: Ipv4Addr) -> Result<()> {
        let (dev, router) = (Self::WAN, Self::ROUTER);
        let batch = format!(
            "address delete {old}/24 dev {dev}\naddress add {new}/24 dev {dev}\n\
             route add default via {router}\n"
        );
        self.gateway.run_with_input("ip", ["-batch", "-"], &batch)?;
        Ok(())
    }

    /// Leaves checksums to the kernels, so that captures show those of the wire.
    pub fn complete_checksums(&self) -> Result<()> {
        let [first, second] = &self.outside;
        for host in [&self.a, &self.b, &self.c, first, second] {
            host.offload("tx", false)?;
        }
        let of_gateway = ["port0", "port1", Self::LAN, Self::SECOND_LAN, Self::WAN];
        for dev in of_gateway {
            link::offload(&self.gateway, dev, "tx", false)?;
        }
        let [first, second] = Self::OUT;
        for dev in [first, second, Self::WAN] {
            link::offload(&self.router, dev, "tx", false)?;
        }
        Ok(())
    }
}

fn route_by_default(netns: &Netns, router: &str) -> Result<()> {
    netns.run("ip", ["route", "add", "default", "via", router])?;
    Ok(())
}
