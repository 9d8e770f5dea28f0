//! Whether inside hosts are translated, and get answers.

use std::net::IpAddr;

use ipnet::Ipv4Net;
use serde_json::Value;
use xdptun_common::address::ip_addr;
use xdptun_common::gateway::nat::{Nat, Network};

use super::routing;
use crate::doctor::Finding;
use crate::doctor::nftables::{Rule, Ruleset, iptables_target, is_named};
use crate::error::Result;
use crate::gateway::Pinned;
use crate::gateway::preflight::Leg;
use crate::host::ephemeral::Exposed;
use crate::host::ports::PortRange;
use crate::host::route::{WaysInto, interfaces_into, ways_to};
use crate::host::words::some_of;

pub const OUTSIDE: &str = "outside-address";
pub const ROUTES: &str = "inside-route";
pub const PORTS: &str = "outside-ports";
pub const MASQUERADE: &str = "masquerade";

/// What an interface translates.
pub struct Translation {
    pub interface: String,
    pub nat: Nat,
    /// The interfaces that lead to each inside network.
    ways: WaysInto,
}

impl Translation {
    /// That of an interface; `None` if it translates nothing.
    pub fn of(pinned: &Pinned) -> Result<Option<Self>> {
        let Some(nat) = pinned.group.maps.bindings.nat_of(pinned.ifindex)? else {
            return Ok(None);
        };
        let networks = nat.inside.iter().filter_map(Network::parts);
        let networks = networks.filter_map(|(address, prefix)| Ipv4Net::new(address, prefix).ok());
        Ok(Some(Self {
            interface: pinned.name(),
            ways: interfaces_into(networks)?,
            nat,
        }))
    }
}

pub fn check_outside(one: &Translation) -> Result<Vec<Finding>> {
    let name = &one.interface;
    if !one.nat.has_outside() {
        let what = format!(
            "{name}: it has no IPv4 address, so that packets of inside hosts are dropped; `ip \
             address` lists addresses"
        );
        return Ok(vec![Finding::fail(OUTSIDE, what)]);
    }
    let outside = ip_addr(one.nat.outside);
    let ways = ways_to([outside])?;
    let is_own = ways.values().flatten().any(|way| way.is_local);
    Ok(vec![judge_outside(name, outside, is_own)])
}

fn judge_outside(name: &str, outside: IpAddr, is_own: bool) -> Finding {
    if is_own {
        let what = format!("{name}: inside hosts get the address {outside}, which is this host's");
        return Finding::ok(OUTSIDE, what);
    }
    let what = format!(
        "{name}: inside hosts get the address {outside}, which is not this host's: answers come \
         here only if a router sends them, and what belongs to no session goes back to that router, \
         again and again, unless a route ends it"
    );
    Finding::warn(OUTSIDE, what).mend(format!("ip route add blackhole {outside}/32"))
}

pub fn check_routes(one: &Translation) -> Vec<Finding> {
    let name = &one.interface;
    let nowhere = one.ways.iter().filter(|(_, ways)| ways.is_empty());
    let nowhere: Vec<Ipv4Net> = nowhere.map(|(network, _)| *network).collect();
    vec![match &nowhere[..] {
        [] => Finding::ok(
            ROUTES,
            format!("{name}: routes lead to all inside networks"),
        ),
        nowhere => {
            let what = format!(
                "{name}: no route leads to inside network {}, so that its hosts get no answers; \
                 `ip route` lists routes",
                some_of(nowhere)
            );
            Finding::fail(ROUTES, what)
        }
    }]
}

pub fn check_forwarding(one: &Translation) -> Result<Vec<Finding>> {
    let legs = one.ways.iter().flat_map(|(network, ways)| {
        let to = IpAddr::V4(network.addr());
        ways.iter()
            .map(move |way| Leg::by(&one.interface, to, *way))
    });
    routing::check_forwarding_of(&one.interface, legs)
}

pub fn check_ports(one: &Translation) -> Result<Vec<Finding>> {
    let name = &one.interface;
    let [first, last] = one.nat.ports;
    let exposed = Exposed::among(&[PortRange::new(first, last)?])?;
    Ok(vec![match exposed {
        None => {
            let what = format!("{name}: the kernel gives sockets of this host no outside ports");
            Finding::ok(PORTS, what)
        }
        Some(exposed) => {
            let what = format!(
                "{name}: the kernel may give outside port {} to a socket of this host, whose \
                 answers then go to an inside host. Reserve the ports, or choose others \
                 (`--ports`, in a file `ports`)",
                exposed.ports()
            );
            Finding::warn(PORTS, what).mend(exposed.command())
        }
    }])
}

/// `name`: that of the interface.
pub fn check_masquerade(name: &str, ruleset: &Ruleset) -> Finding {
    let mut rules = ruleset.all_rules();
    let Some(rule) = rules.find(|rule| changes_source(ruleset, rule, name)) else {
        let what = format!("{name}: no rule of nftables changes the source of what leaves by it");
        return Finding::ok(MASQUERADE, what);
    };
    let what = format!(
        "{name}: a rule of chain `{} {}` changes the source of packets before xdptun sees them; \
         what it matches is translated by netfilter. Take it away if it matches inside hosts",
        rule.table, rule.chain
    );
    let finding = Finding::warn(MASQUERADE, what);
    // A rule that looks at more than the exit may be for other packets.
    if rule
        .statements
        .iter()
        .any(|part| part.get("match").is_some() && exit_of(part).is_none())
    {
        return finding;
    }
    finding.mend(format!("nft delete rule {rule}"))
}

/// Whether a rule translates the source of packets, as far as it tells.
fn translates_source(rule: &Rule<'_>) -> bool {
    rule.statements.iter().any(|part| {
        let target = iptables_target(part);
        let by_iptables = target.is_some_and(|name| ["MASQUERADE", "SNAT"].contains(&name));
        by_iptables || part.get("masquerade").is_some() || part.get("snat").is_some()
    })
}

/// Whether any rule does.
pub fn changes_any_source(ruleset: &Ruleset) -> bool {
    ruleset.all_rules().any(|rule| translates_source(&rule))
}

/// Whether a rule translates the source of packets that leave by an interface, as far as it tells.
fn changes_source(ruleset: &Ruleset, rule: &Rule<'_>, interface: &str) -> bool {
    let mut parts = rule.statements.iter();
    let leaves_elsewhere = parts.any(|part| {
        exit_of(part).is_some_and(|(equal, names)| {
            let names = ruleset.values(rule.table, names);
            equal != is_named(&names, interface)
        })
    });
    translates_source(rule) && !leaves_elsewhere
}

/// What a part of a rule compares the exit with, and whether they have to be equal.
fn exit_of(part: &Value) -> Option<(bool, &Value)> {
    let test = &part["match"];
    let key = test["left"]["meta"]["key"].as_str()?;
    ["oifname", "oif"]
        .contains(&key)
        .then(|| (test["op"] != "!=", &test["right"]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use xdptun_common::gateway::nat::NO_RANGES;

    use super::*;
    use crate::doctor::Level;

    fn ruleset(objects: &[Value]) -> Ruleset {
        Ruleset::parse(&json!({"nftables": objects}).to_string()).unwrap()
    }

    #[test]
    fn a_rule_that_masquerades_the_same_packets_is_found() {
        let exit = |op: &str, name: Value| json!({"match": {"op": op, "left": {"meta": {"key": "oifname"}}, "right": name}});
        for (parts, found) in [
            (vec![json!({"masquerade": null})], true),
            (
                vec![exit("==", json!("wan0")), json!({"masquerade": null})],
                true,
            ),
            (
                vec![
                    exit("==", json!("wan0")),
                    json!({"snat": {"addr": "192.0.2.1"}}),
                ],
                true,
            ),
            (
                vec![json!({"xt": {"type": "target", "name": "MASQUERADE"}})],
                true,
            ),
            (
                vec![json!({"xt": {"type": "target", "name": "LOG"}})],
                false,
            ),
            (
                vec![exit("==", json!("eth1")), json!({"masquerade": null})],
                false,
            ),
            (
                vec![exit("!=", json!("wan0")), json!({"masquerade": null})],
                false,
            ),
            (
                vec![exit("!=", json!("eth1")), json!({"masquerade": null})],
                true,
            ),
            (
                vec![exit("==", json!("wan0")), json!({"accept": null})],
                false,
            ),
        ] {
            let rule = json!({"rule": {"family": "ip", "table": "t", "chain": "c", "handle": 4, "expr": parts}});
            let finding = check_masquerade("wan0", &ruleset(&[json!({"metainfo": {}}), rule]));
            let mend = found.then_some("nft delete rule ip t c handle 4");
            let level = if found { Level::Warn } else { Level::Ok };
            assert_eq!((finding.level, finding.mend.as_deref()), (level, mend));
        }
    }

    /// The rule of a container's network.
    #[test]
    fn a_rule_for_some_packets_is_told_without_a_command() {
        let source = json!({"match": {"op": "==", "left": {"payload": {"field": "saddr"}}, "right": "172.17.0.0"}});
        let rule = json!({"rule": {"family": "ip", "table": "t", "chain": "c", "handle": 4, "expr": [source, {"masquerade": null}]}});
        let finding = check_masquerade("wan0", &ruleset(&[rule]));
        assert_eq!((finding.level, finding.mend), (Level::Warn, None));
    }

    #[test]
    fn an_inside_network_without_a_route_fails() {
        let one = |ways: &[(&str, &[u32])]| Translation {
            interface: "wan0".to_owned(),
            nat: Nat {
                outside: [0; 16],
                ports: [1024, 2047],
                filtering: 0,
                max_per_host: 1,
                reserved: NO_RANGES,
                inside: [Network::NONE; 16],
                pool: Network::NONE,
            },
            ways: ways
                .iter()
                .map(|(network, ways)| (network.parse().unwrap(), ways.iter().copied().collect()))
                .collect(),
        };
        let level = |ways| check_routes(&one(ways))[0].level;
        assert_eq!(level(&[("10.0.0.0/8", &[3])]), Level::Ok);
        assert_eq!(
            level(&[("10.0.0.0/8", &[3]), ("192.168.7.0/24", &[])]),
            Level::Fail
        );
        assert_eq!(check_outside(&one(&[])).unwrap()[0].level, Level::Fail);
    }
}
