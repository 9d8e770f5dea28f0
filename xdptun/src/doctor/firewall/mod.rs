//! Whether this host's own netfilter lets UDP of the owned ports through.
//!
//! Netfilter sees datagrams both ways, so its UDP rules apply.

mod datagram;
mod judge;
mod met;

use self::datagram::{Datagram, Hook, Role};
use self::judge::{Fate, Walk};
use self::met::Met;
use super::nftables::{self, BaseChain, Ruleset, Tool, Verdict, iptables};
use super::{Finding, Subject};
use crate::error::{Result, bail};
use crate::host::ports::PortRange;

const CHECK: &str = "firewall";

pub fn check(subject: &Subject) -> Result<Vec<Finding>> {
    if subject.ports.is_empty() {
        let what = format!(
            "{}: no port is attached here; name a port with --port",
            subject.name()
        );
        return Ok(vec![Finding::warn(CHECK, what)]);
    }
    let mut findings = Vec::new();
    let mut rulesets = Vec::new();
    let mut add = |whose: &str, read: Result<Vec<Ruleset>>| match read {
        Ok(read) => rulesets.extend(read),
        Err(error) => {
            let name = subject.name();
            let what = format!("{name}: the rules of {whose} were not checked: {error:#}");
            findings.push(Finding::warn(CHECK, what));
        }
    };
    add("iptables-legacy", iptables::list());
    add("nftables", of_nft());
    let all_were_read = findings.is_empty();
    let forwards = subject.forwards()?;
    for port in &subject.ports {
        let place = Place {
            interface: subject.name(),
            port: *port,
            forwards,
        };
        let stopping = rulesets.iter().flat_map(|ruleset| place.judge(ruleset));
        let stopping: Vec<Finding> = stopping.collect();
        if stopping.is_empty() && all_were_read {
            findings.push(place.passes());
        }
        findings.extend(stopping);
    }
    Ok(findings)
}

/// The rules of nftables. Those that an iptables made with matches of its own it lists itself: nft
/// leaves out what they match.
fn of_nft() -> Result<Vec<Ruleset>> {
    let Some(mut ruleset) = nftables::list()? else {
        bail!(Other, "nft is not installed; install nftables");
    };
    let mut rulesets = iptables::instead_of(&mut ruleset)?;
    rulesets.push(ruleset);
    Ok(rulesets)
}

/// Whose datagrams are judged.
struct Place<'a> {
    interface: &'a str,
    port: PortRange,
    /// Whether the tunnel carries datagrams of other hosts.
    forwards: bool,
}

/// What a chain keeps from working.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    Both,
    One(Role),
}

impl Lost {
    /// What a chain stops, by its fate for each role. The doctor does not know whether this host calls
    /// or is called. So a policy may drop one role, except inbound datagrams of peers that call; a rule
    /// that names the port may drop none.
    fn judge(hook: Hook, server: Fate, client: Fate) -> Option<Self> {
        let is_needed = hook.is_inbound();
        match (server, client) {
            (Fate::Dropped { .. }, Fate::Dropped { .. }) => Some(Self::Both),
            (Fate::Dropped { on_purpose }, Fate::Passes) => {
                (on_purpose || is_needed).then_some(Self::One(Role::Server))
            }
            (Fate::Passes, Fate::Dropped { on_purpose }) => {
                on_purpose.then_some(Self::One(Role::Client))
            }
            (Fate::Passes, Fate::Passes) => None,
        }
    }

    /// The role that needs a rule.
    const fn role(self) -> Role {
        match self {
            Self::Both => Role::Server,
            Self::One(role) => role,
        }
    }
}

impl Place<'_> {
    fn datagram(&self, hook: Hook, role: Role) -> Datagram<'_> {
        Datagram {
            hook,
            interface: self.interface,
            port: self.port,
            role,
        }
    }

    fn judge(&self, ruleset: &Ruleset) -> Vec<Finding> {
        let mut findings = Vec::new();
        let hooks = Hook::ALL.into_iter();
        for hook in hooks.filter(|hook| self.forwards || !hook.is_forward()) {
            // Chains of the type `route` are those of output that may change the route.
            for chain in ruleset.base_chains(&["filter", "route"], hook.name(), self.interface) {
                let fate = |role| {
                    let walk = Walk {
                        ruleset,
                        chain: &chain,
                        datagram: &self.datagram(hook, role),
                    };
                    walk.fate()
                };
                if let Some(lost) = Lost::judge(hook, fate(Role::Server), fate(Role::Client)) {
                    findings.push(self.stops(ruleset, &chain, hook, lost));
                }
            }
        }
        findings
    }

    fn passes(&self) -> Finding {
        let Self {
            interface, port, ..
        } = self;
        let what = format!(
            "{interface}: no chain of netfilter was found that drops all UDP of port {port}, in or out"
        );
        Finding::ok(CHECK, what)
    }

    fn stops(&self, ruleset: &Ruleset, chain: &BaseChain<'_>, hook: Hook, lost: Lost) -> Finding {
        let Self {
            interface, port, ..
        } = self;
        let name = format!("{} {}", chain.table, chain.name);
        let hook_name = hook.name();
        let field = self.datagram(hook, lost.role()).field();
        let what = if hook.is_inbound() && !hook.is_forward() && accepts_tcp(ruleset, chain, *port)
        {
            format!(
                "{interface}: chain `{name}` accepts TCP port {port}, but netfilter sees UDP \
                 here, and the chain drops UDP"
            )
        } else if hook.is_forward() {
            format!(
                "{interface}: chain `{name}` drops forwarded UDP with {field} {port}: hosts behind \
                 this one lose it"
            )
        } else {
            let drops = match (lost, hook.is_inbound()) {
                (Lost::Both, _) => format!("drops UDP port {port}"),
                (Lost::One(Role::Server), true) => {
                    format!("drops UDP to port {port}: no peer can call this host")
                }
                (Lost::One(Role::Client), true) => {
                    format!("drops UDP from port {port}: no answer of a peer gets in")
                }
                (Lost::One(Role::Server), false) => {
                    format!("drops UDP from port {port}: no answer of this host gets out")
                }
                (Lost::One(Role::Client), false) => {
                    format!("drops UDP to port {port}: this host can call no peer")
                }
            };
            format!("{interface}: chain `{name}` on hook {hook_name} {drops}")
        };
        Finding::warn(CHECK, what).mend(accept(ruleset.tool, chain, field, *port))
    }
}

/// Whether a rule in the table of a chain accepts TCP to a port.
fn accepts_tcp(ruleset: &Ruleset, chain: &BaseChain<'_>, port: PortRange) -> bool {
    let mut rules = ruleset.all_rules().filter(|rule| rule.table == chain.table);
    rules.any(|rule| {
        let names_port = rule.statements.iter().any(|statement| {
            let left = &statement["match"]["left"]["payload"];
            let values = || ruleset.values(chain.table, &statement["match"]["right"]);
            left["protocol"] == "tcp"
                && left["field"] == "dport"
                && Met::by_ports(&values(), port) == Met::Yes
        });
        let accepts = |statement| matches!(Verdict::read(statement), Some(Verdict::Accept));
        names_port && rule.statements.iter().any(accepts)
    })
}

/// The command that lets UDP of a port through a chain, for the tool that made the
/// chain.
fn accept(tool: Tool, chain: &BaseChain<'_>, field: &str, port: PortRange) -> String {
    let BaseChain { table, name, .. } = chain;
    let iptables = match (table.family, tool) {
        ("ip", Tool::Nft) => Some("iptables"),
        ("ip6", Tool::Nft) => Some("ip6tables"),
        ("ip", Tool::IptablesLegacy) => Some("iptables-legacy"),
        ("ip6", Tool::IptablesLegacy) => Some("ip6tables-legacy"),
        _ => None,
    };
    match iptables {
        Some(iptables) if is_standard(table.name, name) => {
            let range = port.to_string().replace('-', ":");
            let table = match table.name {
                "filter" => String::new(),
                other => format!("-t {other} "),
            };
            format!("{iptables} {table}-I {name} -p udp --{field} {range} -j ACCEPT")
        }
        _ => format!("nft insert rule {table} {name} udp {field} {port} accept"),
    }
}

/// Whether a table has this chain in any iptables.
fn is_standard(table: &str, chain: &str) -> bool {
    let (tables, chains) = (
        ["raw", "mangle", "filter", "security"],
        ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
    );
    tables.contains(&table) && chains.contains(&chain)
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    /// Policies that drop take a rule for one role; the other is none's business unless a rule names it.
    #[test]
    fn a_rule_for_one_role_is_enough_unless_another_drops_on_purpose() {
        use Fate::{Dropped, Passes};
        let (rest, named) = (Dropped { on_purpose: false }, Dropped { on_purpose: true });
        let (server, client) = (Lost::One(Role::Server), Lost::One(Role::Client));
        for (hook, fates, expected) in [
            (Hook::Output, [rest, rest], Some(Lost::Both)),
            (Hook::Output, [Passes, rest], None),
            (Hook::Output, [rest, Passes], None),
            (Hook::Egress, [Passes, named], Some(client)),
            (Hook::Postrouting, [named, Passes], Some(server)),
            (Hook::Input, [rest, Passes], Some(server)),
            (Hook::Input, [Passes, rest], None),
            (Hook::Prerouting, [Passes, named], Some(client)),
            (Hook::Ingress, [Passes, Passes], None),
        ] {
            assert_eq!(Lost::judge(hook, fates[0], fates[1]), expected, "{hook:?}");
        }
    }

    fn judged(text: &str) -> Vec<(Level, Option<String>)> {
        judged_if(false, text)
    }

    /// `forwards`: whether the tunnel carries datagrams of other hosts.
    fn judged_if(forwards: bool, text: &str) -> Vec<(Level, Option<String>)> {
        let ruleset = Ruleset::parse(text).unwrap();
        let place = Place {
            interface: "eth0",
            port: "8000-8001".parse().unwrap(),
            forwards,
        };
        let findings = place.judge(&ruleset).into_iter();
        findings
            .map(|finding| (finding.level, finding.mend))
            .collect()
    }

    #[test]
    fn what_stops_has_a_rule_that_lets_through() {
        let chain = |family: &str, name: &str, hook: &str| {
            format!(
                r#"{{"nftables": [{{"chain": {{"family": "{family}", "table": "filter",
                "name": "{name}", "type": "filter", "hook": "{hook}", "policy": "drop"}}}}]}}"#
            )
        };
        for (family, name, hook, mend) in [
            (
                "inet",
                "in",
                "input",
                "nft insert rule inet filter in udp dport 8000-8001 accept",
            ),
            (
                "ip",
                "INPUT",
                "input",
                "iptables -I INPUT -p udp --dport 8000:8001 -j ACCEPT",
            ),
            (
                "ip6",
                "OUTPUT",
                "output",
                "ip6tables -I OUTPUT -p udp --sport 8000:8001 -j ACCEPT",
            ),
        ] {
            let found = judged(&chain(family, name, hook));
            assert_eq!(found, [(Level::Warn, Some(mend.to_owned()))]);
        }
        assert_eq!(judged(r#"{"nftables": []}"#), []);
        let forward = chain("inet", "f", "forward");
        assert_eq!(judged(&forward), []);
        let mends = ["dport", "sport"].map(|field| {
            let mend = format!("nft insert rule inet filter f udp {field} 8000-8001 accept");
            (Level::Warn, Some(mend))
        });
        assert_eq!(judged_if(true, &forward), mends);
    }
}
