//! Whether this host's own netfilter lets UDP of the owned ports through.
//!
//! Netfilter sees datagrams both ways, so its UDP rules apply.

mod datagram;
mod judge;
mod met;

use self::datagram::{Datagram, Hook};
use self::judge::Walk;
use self::met::Met;
use super::nftables::{self, BaseChain, Ruleset, Verdict};
use super::{Finding, Subject};
use crate::error::Result;
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
    let Some(ruleset) = nftables::list()? else {
        let what = "nft is not installed, so the rules of netfilter were not checked";
        return Ok(vec![Finding::warn(CHECK, what)]);
    };
    let judged = subject
        .ports
        .iter()
        .flat_map(|port| judge(&ruleset, subject.name(), *port));
    Ok(judged.collect())
}

fn judge(ruleset: &Ruleset, interface: &str, port: PortRange) -> Vec<Finding> {
    let mut findings = Vec::new();
    for hook in [Hook::Input, Hook::Output] {
        for chain in ruleset.base_chains("filter", hook.name()) {
            let stopped = hook.ends().iter().all(|end| {
                let datagram = Datagram {
                    hook,
                    interface,
                    port,
                    end: *end,
                };
                let walk = Walk {
                    ruleset,
                    chain: &chain,
                    datagram: &datagram,
                };
                walk.drops()
            });
            if stopped {
                let tcp = accepts_tcp(ruleset, &chain, port);
                findings.push(stops(&chain, hook, interface, port, tcp));
            }
        }
    }
    if findings.is_empty() {
        let what = format!(
            "{interface}: no rule of netfilter was found that drops UDP port {port}, in or out"
        );
        findings.push(Finding::ok(CHECK, what));
    }
    findings
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

fn stops(
    chain: &BaseChain<'_>,
    hook: Hook,
    interface: &str,
    port: PortRange,
    tcp: bool,
) -> Finding {
    let chain_name = format!("{} {}", chain.table, chain.name);
    let what = if tcp {
        format!(
            "{interface}: chain `{chain_name}` accepts TCP port {port}, but netfilter sees UDP \
             here, and the chain drops UDP"
        )
    } else {
        match hook {
            Hook::Input => format!(
                "{interface}: chain `{chain_name}` drops UDP port {port}, unless an \
                 earlier rule lets answers in"
            ),
            Hook::Output => format!("{interface}: chain `{chain_name}` drops UDP port {port}"),
        }
    };
    Finding::warn(CHECK, what).mend(accept(chain, hook, port))
}

/// The command that lets UDP of a port through a chain, for the tool that made the
/// chain.
fn accept(chain: &BaseChain<'_>, hook: Hook, port: PortRange) -> String {
    let end = match hook {
        Hook::Input => "dport",
        Hook::Output => "sport",
    };
    let BaseChain { table, name, .. } = chain;
    let iptables = match table.family {
        "ip" => Some("iptables"),
        "ip6" => Some("ip6tables"),
        _ => None,
    };
    let is_standard = table.name == "filter" && ["INPUT", "OUTPUT"].contains(name);
    match iptables {
        Some(iptables) if is_standard => {
            let range = port.to_string().replace('-', ":");
            format!("{iptables} -I {name} -p udp --{end} {range} -j ACCEPT")
        }
        _ => format!("nft insert rule {table} {name} udp {end} {port} accept"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn judged(text: &str) -> Vec<(Level, Option<String>)> {
        let ruleset = Ruleset::parse(text).unwrap();
        let findings = judge(&ruleset, "eth0", "8000-8001".parse().unwrap());
        findings
            .into_iter()
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
        assert_eq!(judged(r#"{"nftables": []}"#), [(Level::Ok, None)]);
    }
}
