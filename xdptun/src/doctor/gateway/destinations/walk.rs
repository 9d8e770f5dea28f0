//! The rules that change the destination of packets, and of which.

use std::collections::BTreeMap;

use serde_json::Value;

use super::condition::Packets;
use super::ends::Ends;
use crate::doctor::nftables::{BaseChain, MAX_DEPTH, Rule, Table, Verdict, iptables_target};

/// A rule, and the ends whose packets it sends elsewhere.
pub type Found<'a> = (Rule<'a>, Ends);

/// The rules that may change the destination of packets to some of these ends. Earlier rules that
/// accept or drop such packets are not looked at.
pub fn rules_for<'a>(packets: Packets<'a>, ends: &Ends) -> Vec<Found<'a>> {
    let mut chains = BTreeMap::<_, Vec<Rule<'a>>>::new();
    for rule in packets.ruleset.all_rules() {
        chains
            .entry((rule.table, rule.chain))
            .or_default()
            .push(rule);
    }
    let walk = Walk { packets, chains };
    let mut found = Vec::new();
    let chains = packets
        .ruleset
        .base_chains(&["nat"], "prerouting", packets.interface);
    for BaseChain { table, name, .. } in chains {
        if table.family != "ip6" {
            walk.follow(table, name, ends, 0, &mut found);
        }
    }
    found
}

struct Walk<'a> {
    packets: Packets<'a>,
    chains: BTreeMap<(Table<'a>, &'a str), Vec<Rule<'a>>>,
}

impl<'a> Walk<'a> {
    /// Adds the rules of a chain, and of those that it calls.
    fn follow(
        &self,
        table: Table<'a>,
        chain: &str,
        ends: &Ends,
        depth: usize,
        found: &mut Vec<Found<'a>>,
    ) {
        if depth > MAX_DEPTH {
            return;
        }
        for rule in self.chains.get(&(table, chain)).into_iter().flatten() {
            let mut ends = ends.clone();
            for statement in rule.statements {
                if let Some(condition) = statement.get("match") {
                    ends = self.packets.meeting(table, condition, &ends);
                }
                if ends.is_empty() {
                    break;
                }
                if let Some(sent) = self.sent_elsewhere(table, statement, &ends) {
                    found.push((*rule, sent));
                }
                for (chain, ends) in self.calls(table, statement, &ends) {
                    self.follow(table, chain, &ends, depth + 1, found);
                }
            }
        }
    }

    /// The ends whose packets get another destination by a statement.
    fn sent_elsewhere(&self, table: Table<'_>, statement: &Value, ends: &Ends) -> Option<Ends> {
        if iptables_target(statement).is_some_and(|name| ["DNAT", "REDIRECT"].contains(&name)) {
            return Some(ends.clone());
        }
        let target = statement
            .get("dnat")
            .or_else(|| statement.get("redirect"))?;
        if target["family"] == "ip6" {
            return None;
        }
        let maps = ["addr", "port"]
            .into_iter()
            .filter_map(|part| target[part].get("map"));
        let ends = maps.fold(ends.clone(), |ends, map| {
            let keys = self.pairs(table, map).map(|(key, _)| key);
            self.packets.selected(&map["key"], keys, &ends)
        });
        (!ends.is_empty()).then_some(ends)
    }

    /// The chains that a statement calls, and for which ends.
    fn calls(&self, table: Table<'_>, statement: &'a Value, ends: &Ends) -> Vec<(&'a str, Ends)> {
        if let Some(chain) = Verdict::read(statement).and_then(called) {
            return vec![(chain, ends.clone())];
        }
        let Some(map) = statement.get("vmap") else {
            return Vec::new();
        };
        let calls = self.pairs(table, map).filter_map(|(key, verdict)| {
            let chain = called(Verdict::read(verdict)?)?;
            let ends = self.packets.selected(&map["key"], [key], ends);
            (!ends.is_empty()).then_some((chain, ends))
        });
        calls.collect()
    }

    /// The keys and values of a map.
    fn pairs<'v>(
        &self,
        table: Table<'_>,
        map: &'v Value,
    ) -> impl Iterator<Item = (&'v Value, &'v Value)>
    where
        'a: 'v,
    {
        let pairs = self.packets.ruleset.values(table, &map["data"]).into_iter();
        pairs.filter_map(|pair| match pair.as_array()?.as_slice() {
            [key, value] => Some((key, value)),
            _ => None,
        })
    }
}

/// The chain that a verdict names.
fn called(verdict: Verdict<'_>) -> Option<&str> {
    match verdict {
        Verdict::Jump(chain) | Verdict::Goto(chain) => Some(chain),
        Verdict::Accept | Verdict::Drop | Verdict::Return => None,
    }
}
