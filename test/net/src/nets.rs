//! Networks beyond those of the laboratory.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::Result;
use xdptun_lab::link::{self, End};
use xdptun_lab::{Family, Host, Netns, Routed};

use crate::PORT;

/// Two hosts with a router between them that neither translates nor filters,
/// and that can hold the tunnel's packets back.
#[derive(Debug)]
pub struct Plain(pub Routed);

impl Plain {
    /// Makes the network.
    pub fn new() -> Result<Self> {
        let net = Routed::new()?;
        net.router.netns.run("nft", ["flush", "ruleset"])?;
        let routes = "route add default via 10.2.0.1\nroute add default via fd00:2::1\n";
        let server = &net.server.netns;
        server.run_with_input("ip", ["-batch", "-"], routes)?;
        Ok(Self(net))
    }

    /// From now on the router drops every packet of [`PORT`] that would pass.
    pub fn hold(&self) -> Result<()> {
        let matches = ["dport", "sport"].map(|end| format!("th {end} {PORT}"));
        self.0.router.hold(&matches.each_ref().map(String::as_str))
    }

    /// Ends what [`Plain::hold`] began.
    pub fn release(&self) -> Result<()> {
        self.0.router.release()
    }
}

/// A host beyond the strict router, beside the server, that never has xdptun.
#[derive(Debug)]
pub struct Bystander {
    /// Where it lives.
    pub netns: Netns,
}

impl Bystander {
    const V4: [u8; 4] = [10, 3, 0, 2];
    const V6: [u16; 8] = [0xfd00, 3, 0, 0, 0, 0, 0, 2];

    /// Connects it to the router, which lets the clients reach it.
    pub fn new(net: &Routed) -> Result<Self> {
        let netns = Netns::new("bystander")?;
        let own = ["10.3.0.2/24".to_owned(), "fd00:3::2/64".to_owned()];
        let routers = ["10.3.0.1/24".to_owned(), "fd00:3::1/64".to_owned()];
        let router = &net.router.netns;
        link::veth(
            &End {
                netns: &netns,
                dev: Host::DEV,
                addresses: &own,
            },
            &End {
                netns: router,
                dev: "lan9",
                addresses: &routers,
            },
        )?;
        for gateway in ["10.3.0.1", "fd00:3::1"] {
            netns.run("ip", ["route", "add", "default", "via", gateway])?;
        }
        router.run_with_input(
            "nft",
            ["-f", "-"],
            "insert rule inet lab forward iifname \"lan0\" oifname \"lan9\" accept",
        )?;
        Ok(Self { netns })
    }

    /// Its address of one family with a port.
    pub fn socket(&self, family: Family, port: u16) -> SocketAddr {
        let address: IpAddr = match family {
            Family::V4 => Self::V4.into(),
            Family::V6 => Self::V6.into(),
        };
        SocketAddr::new(address, port)
    }
}

/// Gives a host another address of each family, which no flow has; in their order.
pub fn second_address(host: &Host, number: u8) -> [IpAddr; 2] {
    let addresses = [
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)),
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number.into())),
    ];
    let [v4, v6] = addresses;
    let dev = Host::DEV;
    let commands = format!("address add {v4}/24 dev {dev}\naddress add {v6}/64 dev {dev} nodad\n");
    host.netns
        .run_with_input("ip", ["-batch", "-"], &commands)
        .unwrap();
    addresses
}
