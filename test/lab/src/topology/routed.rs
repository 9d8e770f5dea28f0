//! Clients behind a strict stateful router, and a server beyond it.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result};
use serde_json::Value;

use super::host::{Host, prefixed};
use crate::link::{self, End};
use crate::netns::Netns;

/// Clients with one network each, a router that masquerades them, a server.
///
/// The server has no route to the clients: it can only answer what the router
/// translated, as a host on the public Internet.
#[derive(Debug)]
pub struct Routed {
    /// Number `i` (from 0) is `10.1.i.2`, `fd00:1:i::2`.
    pub clients: Vec<Host>,
    /// The router.
    pub router: Router,
    /// `10.2.0.2`, `fd00:2::2`.
    pub server: Host,
}

impl Routed {
    /// A network with one client.
    pub fn new() -> Result<Self> {
        Self::with_clients(1)
    }

    /// A network with up to 250 clients.
    pub fn with_clients(count: u8) -> Result<Self> {
        let router = Router::new()?;
        let server = Host::new(
            "server",
            Ipv4Addr::new(10, 2, 0, 2),
            Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 2),
        )?;
        server.connect(&End {
            netns: &router.netns,
            dev: Router::WAN,
            addresses: &prefixed(router.v4, router.v6),
        })?;
        let clients = (0..count)
            .map(|number| client(&router, number))
            .collect::<Result<_>>()?;
        router.be_strict()?;
        Ok(Self {
            clients,
            router,
            server,
        })
    }

    /// The first client.
    pub fn client(&self) -> &Host {
        &self.clients[0]
    }

    /// Switches an offload on every host and on the router's interfaces.
    pub fn offload(&self, feature: &str, on: bool) -> Result<()> {
        let router = &self.router.netns;
        for (number, client) in self.clients.iter().enumerate() {
            client.offload(feature, on)?;
            link::offload(router, &Router::lan(number), feature, on)?;
        }
        self.server.offload(feature, on)?;
        link::offload(router, Router::WAN, feature, on)
    }
}

/// A router that trusts nothing it has not seen the beginning of.
#[derive(Debug)]
pub struct Router {
    /// Where it lives.
    pub netns: Netns,
    /// Its address on the server's side: what the server sees of all clients.
    pub v4: Ipv4Addr,
    /// The same for IPv6.
    pub v6: Ipv6Addr,
}

/// Packets a router refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Packets that conntrack calls invalid: outside the window, a bad
    /// checksum, a segment of a connection whose handshake it has not seen.
    pub invalid: u64,
    /// New connections from the server's side, and packets to the router
    /// itself that belong to no connection.
    pub unsolicited: u64,
}

impl Router {
    /// The interface on the server's side.
    pub const WAN: &'static str = "wan0";

    /// The interface on the side of client `number` (from 0).
    pub fn lan(number: usize) -> String {
        format!("lan{number}")
    }

    fn new() -> Result<Self> {
        let netns = Netns::new("router")?;
        netns.sysctl("net.ipv4.ip_forward", "1")?;
        netns.sysctl("net.ipv6.conf.all.forwarding", "1")?;
        Ok(Self {
            netns,
            v4: Ipv4Addr::new(10, 2, 0, 1),
            v6: Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 1),
        })
    }

    fn be_strict(&self) -> Result<()> {
        self.netns.run_with_input("nft", ["-f", "-"], RULES)?;
        // These exist once the rules made the kernel load conntrack.
        self.netns
            .sysctl("net.netfilter.nf_conntrack_tcp_loose", "0")?;
        self.netns
            .sysctl("net.netfilter.nf_conntrack_tcp_be_liberal", "0")
    }

    /// What the router refused so far.
    pub fn dropped(&self) -> Result<Dropped> {
        let text = self.netns.run("nft", ["--json", "list", "counters"])?;
        Ok(Dropped {
            invalid: counter(&text, "invalid")?,
            unsolicited: counter(&text, "unsolicited")?,
        })
    }

    /// The conntrack entries of one protocol (`tcp`, `udp`) towards a port, in
    /// the notation of `conntrack -L`.
    pub fn conntrack(&self, protocol: &str, port: u16) -> Result<Vec<String>> {
        let mut entries = Vec::new();
        for family in ["ipv4", "ipv6"] {
            let text = self.netns.run(
                "conntrack",
                [
                    "-L",
                    "-f",
                    family,
                    "-p",
                    protocol,
                    "--orig-port-dst",
                    &port.to_string(),
                ],
            )?;
            entries.extend(text.lines().map(str::to_owned));
        }
        Ok(entries)
    }
}

fn client(router: &Router, number: u8) -> Result<Host> {
    let client = Host::new(
        &format!("client{number}"),
        Ipv4Addr::new(10, 1, number, 2),
        Ipv6Addr::new(0xfd00, 1, number.into(), 0, 0, 0, 0, 2),
    )?;
    let gateway_v4 = Ipv4Addr::new(10, 1, number, 1);
    let gateway_v6 = Ipv6Addr::new(0xfd00, 1, number.into(), 0, 0, 0, 0, 1);
    client.connect(&End {
        netns: &router.netns,
        dev: &Router::lan(number.into()),
        addresses: &prefixed(gateway_v4, gateway_v6),
    })?;
    for gateway in [gateway_v4.to_string(), gateway_v6.to_string()] {
        client
            .netns
            .run("ip", ["route", "add", "default", "via", &gateway])?;
    }
    Ok(client)
}

/// Neighbour discovery is not tracked, so it reaches the input chain as
/// `untracked`; ping is let in because a person at a router would try it.
const RULES: &str = r#"
table inet lab {
    counter invalid { }
    counter unsolicited { }
    chain forward {
        type filter hook forward priority filter; policy drop;
        ct state invalid counter name invalid drop
        ct state established,related accept
        iifname "lan*" oifname "wan0" accept
        counter name unsolicited
    }
    chain input {
        type filter hook input priority filter; policy drop;
        ct state invalid counter name invalid drop
        ct state established,related,untracked accept
        meta l4proto { icmp, ipv6-icmp } accept
        counter name unsolicited
    }
    chain postrouting {
        type nat hook postrouting priority srcnat; policy accept;
        oifname "wan0" masquerade
    }
}
"#;

fn counter(json: &str, name: &str) -> Result<u64> {
    let document: Value =
        serde_json::from_str(json).context("`nft --json list counters` did not print JSON")?;
    let objects = document["nftables"].as_array();
    objects
        .into_iter()
        .flatten()
        .map(|object| &object["counter"])
        .find(|counter| counter["name"] == name)
        .and_then(|counter| counter["packets"].as_u64())
        .with_context(|| format!("no counter {name} in the rules of the router"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_named_counter() {
        let json = r#"{"nftables": [{"metainfo": {}},
            {"counter": {"name": "invalid", "packets": 3, "bytes": 120}},
            {"counter": {"name": "unsolicited", "packets": 0, "bytes": 0}}]}"#;
        assert_eq!(counter(json, "invalid").unwrap(), 3);
        assert_eq!(counter(json, "unsolicited").unwrap(), 0);
        assert!(counter(json, "other").is_err());
    }
}
