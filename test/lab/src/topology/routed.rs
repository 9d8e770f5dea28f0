//! Clients behind a strict stateful router, and a server beyond it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use anyhow::{Context, Result};
use serde_json::Value;

use super::host::{Family, Host, prefixed};
use crate::link::{self, End};
use crate::netns::Netns;

/// Clients with one network each, a router that masquerades them, a server.
///
/// The server has no route to the clients: it can only answer what the router
/// translated, as a host on the public Internet.
#[derive(Debug)]
pub struct Routed {
    /// Number `i` (from 0) is `10.1.i.2`, `fd00:1:i::2` at first.
    pub clients: Vec<Host>,
    /// The router that the clients are connected to.
    pub router: Router,
    /// A second one between that and the server, as carriers have them; it sees
    /// the first as its only client. See [`Routed::behind_two`].
    pub carrier: Option<Router>,
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
        let router = Router::new("router", Router::FIRST)?;
        Self::connect(count, router, None)
    }

    /// A network with one client and two routers in series, each of which
    /// masquerades what comes from the client's side.
    pub fn behind_two() -> Result<Self> {
        let carrier = Router::new("carrier", Router::FIRST)?;
        let router = Router::new("router", Router::SECOND)?;
        let (v4, v6) = (Ipv4Addr::new(10, 4, 0, 1), v6([0xfd00, 4], 1));
        link::veth(
            &End {
                netns: &router.netns,
                dev: Router::WAN,
                addresses: &prefixed(router.v4, router.v6),
            },
            &End {
                netns: &carrier.netns,
                dev: &Router::lan(0),
                addresses: &prefixed(v4, v6),
            },
        )?;
        set_default_route(&router.netns, [v4.into(), v6.into()])?;
        Self::connect(1, router, Some(carrier))
    }

    fn connect(count: u8, router: Router, carrier: Option<Router>) -> Result<Self> {
        let server = Host::new("server", Ipv4Addr::new(10, 2, 0, 2), v6([0xfd00, 2], 2))?;
        let last = carrier.as_ref().unwrap_or(&router);
        server.connect(&End {
            netns: &last.netns,
            dev: Router::WAN,
            addresses: &prefixed(last.v4, last.v6),
        })?;
        let clients = (0..count)
            .map(|number| client(&router, number))
            .collect::<Result<_>>()?;
        let net = Self {
            clients,
            router,
            carrier,
            server,
        };
        for router in net.routers() {
            router.be_strict()?;
        }
        Ok(net)
    }

    /// Every router, in the order in which the client's packets meet them.
    pub fn routers(&self) -> impl Iterator<Item = &Router> {
        [&self.router].into_iter().chain(&self.carrier)
    }

    /// The address that the server sees instead of the clients'.
    pub fn seen_address(&self, family: Family) -> IpAddr {
        let last = self.carrier.as_ref().unwrap_or(&self.router);
        match family {
            Family::V4 => last.v4.into(),
            Family::V6 => last.v6.into(),
        }
    }

    /// Gives a client its default routes, as its network manager does when the
    /// interface is up again.
    pub fn route_client(&self, number: u8) -> Result<()> {
        set_default_route(&self.clients[usize::from(number)].netns, gateways(number))
    }

    /// Gives a client other addresses in its network, as when it roams: host number `host`
    /// from now on. Sockets that are bound to the old ones cannot send any more.
    pub fn readdress(&mut self, number: u8, host: u8) -> Result<()> {
        let client = &mut self.clients[usize::from(number)];
        let [old, new] = [
            prefixed(client.v4, client.v6),
            prefixed(
                Ipv4Addr::new(10, 1, number, host),
                v6([0xfd00, 1, number.into()], host.into()),
            ),
        ];
        let dev = Host::DEV;
        let batch = format!(
            "address del {} dev {dev}\naddress del {} dev {dev}\n\
             address add {} dev {dev}\naddress add {} dev {dev} nodad\n",
            old[0], old[1], new[0], new[1]
        );
        client.netns.run_with_input("ip", ["-batch", "-"], &batch)?;
        client.v4 = Ipv4Addr::new(10, 1, number, host);
        client.v6 = v6([0xfd00, 1, number.into()], host.into());
        self.route_client(number)
    }

    /// Makes a client's interface anew, as when a dongle is pulled out and put in
    /// again.
    pub fn replug(&self, number: u8) -> Result<()> {
        let client = &self.clients[usize::from(number)];
        client.netns.run("ip", ["link", "delete", Host::DEV])?;
        plug_in(client, &self.router, number)
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
        if let Some(carrier) = &self.carrier {
            link::offload(&carrier.netns, &Router::lan(0), feature, on)?;
        }
        for router in self.routers() {
            link::offload(&router.netns, Router::WAN, feature, on)?;
        }
        self.server.offload(feature, on)
    }
}

/// A router that trusts nothing it has not seen the beginning of.
#[derive(Debug)]
pub struct Router {
    /// Where it lives.
    pub netns: Netns,
    /// Its address on the server's side, which stands for all clients there.
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

    /// The first segment of a connection, for [`Router::hold`].
    pub const SYN: &'static str = "tcp flags & (syn | ack) == syn";

    /// The interface on the side of client `number` (from 0).
    pub fn lan(number: usize) -> String {
        format!("lan{number}")
    }

    /// The addresses of one that the server is connected to.
    const FIRST: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(10, 2, 0, 1), v6([0xfd00, 2], 1));

    /// Those of one with another between.
    const SECOND: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(10, 4, 0, 2), v6([0xfd00, 4], 2));

    fn new(label: &str, (v4, v6): (Ipv4Addr, Ipv6Addr)) -> Result<Self> {
        let netns = Netns::new(label)?;
        netns.sysctl("net.ipv4.ip_forward", "1")?;
        netns.sysctl("net.ipv6.conf.all.forwarding", "1")?;
        Ok(Self { netns, v4, v6 })
    }

    fn be_strict(&self) -> Result<()> {
        self.rules(RULES)?;
        // These exist once the rules made the kernel load conntrack.
        self.set_loose(false)?;
        self.set_liberal(false)
    }

    fn rules(&self, rules: &str) -> Result<()> {
        self.netns.run_with_input("nft", ["-f", "-"], rules)?;
        Ok(())
    }

    /// Whether a connection may be tracked from its middle on
    /// (`nf_conntrack_tcp_loose`); at first not.
    pub fn set_loose(&self, loose: bool) -> Result<()> {
        let key = "net.netfilter.nf_conntrack_tcp_loose";
        self.netns.sysctl(key, &u8::from(loose).to_string())
    }

    /// Whether segments outside the window are valid
    /// (`nf_conntrack_tcp_be_liberal`); at first not.
    pub fn set_liberal(&self, liberal: bool) -> Result<()> {
        let key = "net.netfilter.nf_conntrack_tcp_be_liberal";
        self.netns.sysctl(key, &u8::from(liberal).to_string())
    }

    /// After how long without a packet an established connection is forgotten.
    pub fn set_patience(&self, seconds: u32) -> Result<()> {
        let key = "net.netfilter.nf_conntrack_tcp_timeout_established";
        self.netns.sysctl(key, &seconds.to_string())
    }

    /// From now on invalid packets of clients are only counted: they pass, with
    /// addresses that nobody translates.
    pub fn let_invalid_pass(&self) -> Result<()> {
        self.rules("delete element inet lab refused { invalid : drop }")
    }

    /// From now on new connections get these source ports.
    pub fn masquerade_to(&self, ports: &RangeInclusive<u16>) -> Result<()> {
        let (first, last) = (ports.start(), ports.end());
        self.rules(&format!(
            "flush chain inet lab postrouting
             add rule inet lab postrouting oifname wan0 meta l4proto {{ tcp, udp }} \
                 masquerade to :{first}-{last}"
        ))
    }

    /// Forgets every connection, as when it is switched off and on again.
    pub fn forget(&self) -> Result<()> {
        self.netns.run("conntrack", ["--flush"])?;
        Ok(())
    }

    /// From now on drops every packet between client and server that one of
    /// these expressions (of nft) matches.
    pub fn hold(&self, matches: &[&str]) -> Result<()> {
        self.drop_at("hold", "forward priority filter", matches)
    }

    /// Ends what [`Router::hold`] began.
    pub fn release(&self) -> Result<()> {
        self.rules("delete table inet hold")
    }

    /// From now on loses every packet that one of these expressions matches before conntrack
    /// sees it, as a bad link to the router does.
    pub fn lose(&self, matches: &[&str]) -> Result<()> {
        self.drop_at("loss", "prerouting priority raw", matches)
    }

    /// Ends what [`Router::lose`] began.
    pub fn lose_nothing(&self) -> Result<()> {
        self.rules("delete table inet loss")
    }

    fn drop_at(&self, table: &str, hook: &str, matches: &[&str]) -> Result<()> {
        let drops: String = matches
            .iter()
            .map(|what| format!("{what} drop\n"))
            .collect();
        self.rules(&format!(
            "table inet {table} {{
                chain drops {{
                    type filter hook {hook}; policy accept;
                    {drops}
                }}
            }}"
        ))
    }

    /// Its address of one family on the server's side.
    pub fn address(&self, family: Family) -> IpAddr {
        match family {
            Family::V4 => self.v4.into(),
            Family::V6 => self.v6.into(),
        }
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
        v6([0xfd00, 1, number.into()], 2),
    )?;
    plug_in(&client, router, number)?;
    Ok(client)
}

/// Connects a client to its router.
fn plug_in(client: &Host, router: &Router, number: u8) -> Result<()> {
    let [v4, v6] = gateways(number);
    client.connect(&End {
        netns: &router.netns,
        dev: &Router::lan(number.into()),
        addresses: &[format!("{v4}/24"), format!("{v6}/64")],
    })?;
    set_default_route(&client.netns, [v4, v6])
}

/// The addresses of the router that a client sees.
fn gateways(number: u8) -> [IpAddr; 2] {
    [
        Ipv4Addr::new(10, 1, number, 1).into(),
        v6([0xfd00, 1, number.into()], 1).into(),
    ]
}

fn set_default_route(netns: &Netns, gateways: [IpAddr; 2]) -> Result<()> {
    let routes = gateways.map(|gateway| format!("route replace default via {gateway}\n"));
    netns.run_with_input("ip", ["-batch", "-"], &routes.concat())?;
    Ok(())
}

/// Host number `host` of the network that begins with these words.
const fn v6<const N: usize>(network: [u16; N], host: u16) -> Ipv6Addr {
    let mut words = [0; 8];
    let mut index = 0;
    while index < N {
        words[index] = network[index];
        index += 1;
    }
    words[7] = host;
    let [a, b, c, d, e, f, g, h] = words;
    Ipv6Addr::new(a, b, c, d, e, f, g, h)
}

/// Neighbour discovery is not tracked, so it reaches the input chain as
/// `untracked`; ping is let in because a person at a router would try it.
const RULES: &str = r#"
table inet lab {
    counter invalid { }
    counter unsolicited { }
    map refused {
        type ct_state : verdict
        elements = { invalid : drop }
    }
    chain forward {
        type filter hook forward priority filter; policy drop;
        ct state invalid counter name invalid
        ct state vmap @refused
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
