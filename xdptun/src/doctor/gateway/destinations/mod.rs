//! Whether rules of netfilter send packets to outside ports elsewhere. They get none: xdptun is at
//! the ingress of tc, which comes before every chain of IP.

mod condition;
mod ends;
mod walk;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use xdptun_common::address::ip_addr;
use xdptun_common::wire::Protocol;

use self::condition::Packets;
use self::ends::Ends;
use self::walk::{Found, rules_for};
use super::inside::Translation;
use crate::doctor::Finding;
use crate::doctor::nftables::Ruleset;
use crate::error::Result;
use crate::gateway::session::protocol_name;
use crate::host::listeners::Servers;
use crate::host::ports::PortRange;
use crate::host::words::some_of;

pub const CHECK: &str = "destination-rules";

pub fn check(one: &Translation, ruleset: &Ruleset) -> Result<Vec<Finding>> {
    let [first, last] = one.nat.ports;
    let lent = PortRange::new(first, last)?;
    let outside = one.nat.has_outside().then(|| ip_addr(one.nat.outside));
    let packets = Packets {
        interface: &one.interface,
        to: match outside {
            Some(IpAddr::V4(address)) => Some(address),
            _ => None,
        },
        ruleset,
    };
    let servers = Servers::read()?;
    let address = outside.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
    // Packets to a port with a socket are left to netfilter. Docker's proxy has such sockets.
    let is_taken = |protocol, port| one.nat.lends(port) && !servers.has(address, port, protocol);
    let found = rules_for(packets, &Ends::at(lent));
    Ok(vec![judge(&one.interface, lent, found, is_taken)])
}

/// `is_taken`: whether xdptun takes packets to a port from netfilter.
fn judge(
    name: &str,
    lent: PortRange,
    found: Vec<Found<'_>>,
    is_taken: impl Fn(Protocol, u16) -> bool,
) -> Finding {
    let mut rules = BTreeSet::new();
    let mut taken = Vec::new();
    for (rule, ends) in found {
        let ends = ends.filter(&is_taken);
        if !ends.is_empty() {
            rules.insert(format!("`{rule}`"));
            taken.push(ends);
        }
    }
    if taken.is_empty() {
        let what =
            format!("{name}: xdptun takes no packets from DNAT and redirect rules of nftables");
        return Finding::ok(CHECK, what);
    }
    let taken = Ends::union(taken);
    let rules: Vec<String> = rules.into_iter().collect();
    let instead = widest_without(lent, &taken);
    let instead = instead.map_or(String::new(), |ports| format!(", such as {ports}"));
    let what = format!(
        "{name}: a rule of nftables would send packets to {} elsewhere, as far as it can be read \
         ({}), but xdptun comes first: they go to inside hosts, or are dropped \
         (`in_drop_filtered`). Choose outside ports that no such rule has{instead} (`--ports`, in a \
         file `ports`)",
        some_of(&names_of(&taken)),
        some_of(&rules)
    );
    Finding::warn(CHECK, what)
}

/// As `8080/tcp`.
fn names_of(ends: &Ends) -> Vec<String> {
    let named = Ends::PROTOCOLS.into_iter().flat_map(|protocol| {
        let ports = ends.ports(protocol).into_iter();
        ports.map(move |range| format!("{range}/{}", protocol_name(protocol)))
    });
    named.collect()
}

/// The widest part of a range without these ends.
fn widest_without(range: PortRange, ends: &Ends) -> Option<PortRange> {
    let is_free = |protocol| {
        let taken = ends.ports(protocol);
        move |port| !taken.iter().any(|range| range.contains(port))
    };
    let [tcp, udp] = Ends::PROTOCOLS.map(is_free);
    let free = Ends::at(range).filter(|_, port| tcp(port) && udp(port));
    let free = free.ports(Protocol::TCP).into_iter();
    free.max_by_key(PortRange::count)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::doctor::Level;

    fn rule(table: [&str; 2], chain: &str, handle: u64, statements: &[Value]) -> Value {
        let [family, table] = table;
        json!({"rule": {"family": family, "table": table, "chain": chain, "handle": handle,
            "expr": statements}})
    }

    fn equal(key: &Value, value: Value) -> Value {
        json!({"match": {"op": "==", "left": key, "right": value}})
    }

    fn finding(objects: &[Value], is_taken: impl Fn(Protocol, u16) -> bool) -> Finding {
        let base = |family: &str, kind: &str, hook: &str| {
            json!({"chain": {"family": family, "table": "t", "name": hook, "type": kind,
                "hook": hook}})
        };
        let mut all = vec![
            base("ip", "nat", "prerouting"),
            base("ip", "nat", "output"),
            base("ip6", "nat", "prerouting"),
            base("inet", "filter", "prerouting"),
        ];
        all.extend_from_slice(objects);
        let ruleset = Ruleset::parse(&json!({"nftables": all}).to_string()).unwrap();
        let packets = Packets {
            interface: "wan0",
            to: Some(Ipv4Addr::new(192, 0, 2, 7)),
            ruleset: &ruleset,
        };
        let lent: PortRange = "1000-1999".parse().unwrap();
        let found = rules_for(packets, &Ends::at(lent));
        judge("wan0", lent, found, is_taken)
    }

    const IP: [&str; 2] = ["ip", "t"];

    fn tcp_port() -> Value {
        json!({"payload": {"protocol": "tcp", "field": "dport"}})
    }

    #[test]
    fn a_rule_for_outside_ports_is_named() {
        let port = |port: u16| equal(&tcp_port(), json!(port));
        let dnat = json!({"dnat": {"addr": "10.5.0.2", "port": 80}});
        let redirect = json!({"redirect": null});
        let xt = |name: &str| json!({"xt": {"type": "target", "name": name}});
        let (any, v6) = (["inet", "t"], ["ip6", "t"]);
        let mapped = json!({"dnat": {"addr": {"map": {"key": tcp_port(), "data": "@m"}}}});
        let none = vec![xt("LOG"), json!({"counter": {"packets": 1}})];
        for (table, chain, statements, ports) in [
            (
                IP,
                "prerouting",
                vec![port(1100), dnat.clone()],
                Some("1100/tcp"),
            ),
            (
                IP,
                "prerouting",
                vec![port(1100), redirect.clone()],
                Some("1100/tcp"),
            ),
            (
                IP,
                "prerouting",
                vec![port(1100), xt("DNAT")],
                Some("1100/tcp"),
            ),
            (
                IP,
                "prerouting",
                vec![port(1100), xt("REDIRECT")],
                Some("1100/tcp"),
            ),
            (
                IP,
                "prerouting",
                vec![redirect.clone()],
                Some("1000-1999/tcp, 1000-1999/udp"),
            ),
            (IP, "prerouting", vec![mapped], Some("1300/tcp")),
            (IP, "prerouting", vec![port(80), dnat.clone()], None),
            (IP, "prerouting", none, None),
            (IP, "output", vec![port(1100), dnat.clone()], None),
            (IP, "unused", vec![port(1100), dnat.clone()], None),
            (any, "prerouting", vec![port(1100), dnat.clone()], None),
            (v6, "prerouting", vec![port(1100), dnat], None),
        ] {
            let map = json!({"map": {"family": "ip", "table": "t", "name": "m",
                "elem": [[80, "10.5.0.2"], [1300, "10.5.0.3"]]}});
            let rule = rule(table, chain, 7, &statements);
            let found = finding(&[map, rule], |_, _| true);
            assert_eq!(
                found.level == Level::Warn,
                ports.is_some(),
                "{statements:?}: {found:?}"
            );
            if let Some(ports) = ports {
                assert!(
                    found
                        .what
                        .contains(&format!("packets to {ports} elsewhere")),
                    "{found:?}"
                );
                assert!(
                    found.what.contains("(`ip t prerouting handle 7`)"),
                    "{found:?}"
                );
            }
        }
    }

    /// As those of containers and NodePorts.
    #[test]
    fn rules_of_called_chains_are_found() {
        let jump = |chain: &str| json!({"jump": {"target": chain}});
        let dnat = || json!({"xt": {"type": "target", "name": "DNAT"}});
        let port = |port: u16| equal(&tcp_port(), json!(port));
        let protocol = json!({"meta": {"key": "l4proto"}});
        let local = equal(&json!({"fib": {"result": "type"}}), json!("local"));
        let pair = |port: u16, chain: &str| json!([{"concat": ["tcp", port]}, jump(chain)]);
        let vmap = json!({"vmap": {"key": {"concat": [protocol, tcp_port()]},
            "data": {"set": [pair(1300, "first"), pair(80, "second")]}}});
        let objects = [
            rule(IP, "prerouting", 1, &[local, jump("local")]),
            rule(IP, "local", 2, &[port(1200), jump("first")]),
            rule(IP, "local", 3, &[port(80), jump("second")]),
            rule(IP, "prerouting", 4, &[vmap]),
            rule(IP, "first", 5, &[dnat()]),
            rule(IP, "second", 6, &[dnat()]),
            // The kernel refuses such a loop, but the walk must end for any text.
            rule(IP, "prerouting", 7, &[port(1400), jump("prerouting")]),
        ];
        let found = finding(&objects, |_, _| true);
        assert!(
            found
                .what
                .contains("packets to 1200/tcp, 1300/tcp elsewhere"),
            "{found:?}"
        );
        assert!(found.what.contains("(`ip t first handle 5`)"), "{found:?}");
    }

    #[test]
    fn other_ports_are_proposed_if_there_are_any() {
        let redirect = |ports: Value| {
            let ports = equal(&tcp_port(), ports);
            rule(IP, "prerouting", 7, &[ports, json!({"redirect": null})])
        };
        let told = |ports: Value| finding(&[redirect(ports)], |_, _| true).what;
        assert!(told(json!(1100)).contains(", such as 1101-1999 (`--ports`"));
        assert!(!told(json!({"range": [1, 2000]})).contains("such as"));
        // A server has one of two ports.
        let two = [redirect(json!({"set": [1100, 1900]}))];
        let found = finding(&two, |_, port| port != 1100);
        assert!(
            found.what.contains("packets to 1900/tcp elsewhere"),
            "{found:?}"
        );
        assert!(found.what.contains("such as 1000-1899 "), "{found:?}");
        let found = finding(&two, |_, _| false);
        assert_eq!(found.level, Level::Ok);
    }
}
