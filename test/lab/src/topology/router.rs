//! A strict stateful router.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use anyhow::{Context, Result};
use serde_json::Value;

use super::host::{Family, v6};
use crate::netns::Netns;

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

    /// The addresses of a router that the server is connected to.
    pub(super) const FIRST: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(10, 2, 0, 1), v6([0xfd00, 2], 1));

    /// The addresses of a router with another one between it and the server.
    pub(super) const SECOND: (Ipv4Addr, Ipv6Addr) =
        (Ipv4Addr::new(10, 4, 0, 2), v6([0xfd00, 4], 2));

    pub(super) fn new(label: &str, (v4, v6): (Ipv4Addr, Ipv6Addr)) -> Result<Self> {
        let netns = Netns::new(label)?;
        netns.sysctl("net.ipv4.ip_forward", "1")?;
        netns.sysctl("net.ipv6.conf.all.forwarding", "1")?;
        Ok(Self { netns, v4, v6 })
    }

    /// Flushes all rules and loads those that it had at first, at once, as a reload of its
    /// firewall does. It forgets no connection.
    pub fn reload_rules(&self) -> Result<()> {
        self.rules(&format!("flush ruleset\n{RULES}"))
    }

    pub(super) fn be_strict(&self) -> Result<()> {
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
    /// addresses that no router translates.
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

    /// Ends [`Router::hold`].
    pub fn release(&self) -> Result<()> {
        self.rules("delete table inet hold")
    }

    /// From now on loses every packet that one of these expressions matches before conntrack
    /// sees it, as a bad link to the router does.
    pub fn lose(&self, matches: &[&str]) -> Result<()> {
        self.drop_at("loss", "prerouting priority raw", matches)
    }

    /// Ends [`Router::lose`].
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

    /// The packets that the router has refused so far.
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
