//! The verdict of the rules of a chain for one datagram.
//!
//! A condition that the doctor cannot judge (an address, a rate) counts as not met, unless
//! its rule names the port: such a rule is meant for these datagrams.

use serde_json::Value;

use super::datagram::Datagram;
use super::met::Met;
use crate::doctor::nftables::{BaseChain, MAX_DEPTH, Ruleset, Verdict, is_named};

/// One datagram on its way through a base chain and the chains that it calls.
pub struct Walk<'a> {
    pub ruleset: &'a Ruleset,
    pub chain: &'a BaseChain<'a>,
    pub datagram: &'a Datagram<'a>,
}

/// What becomes of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Passes,
    Dropped {
        /// Whether a rule that names its port drops it.
        on_purpose: bool,
    },
}

impl<'a> Walk<'a> {
    /// What the chain does with the datagram.
    pub fn fate(&self) -> Fate {
        let by_policy = match self.chain.drops_by_policy {
            true => Fate::Dropped { on_purpose: false },
            false => Fate::Passes,
        };
        self.follow(self.chain.name, 0).unwrap_or(by_policy)
    }

    /// What a chain does with it; `None` if it returns to its caller without a verdict.
    fn follow(&self, name: &str, depth: usize) -> Option<Fate> {
        if depth > MAX_DEPTH {
            return None;
        }
        let rules = self.ruleset.all_rules();
        let rules = rules.filter(|rule| rule.table == self.chain.table && rule.chain == name);
        for rule in rules {
            let Some((verdict, names_port)) = self.verdict(rule.statements) else {
                continue;
            };
            match verdict {
                Verdict::Accept => return Some(Fate::Passes),
                Verdict::Drop => {
                    return Some(Fate::Dropped {
                        on_purpose: names_port,
                    });
                }
                Verdict::Return => return None,
                Verdict::Goto(target) => {
                    let fate = self.follow(target, depth + 1);
                    return fate.map(|fate| fate.for_rule(names_port));
                }
                Verdict::Jump(target) => {
                    if let Some(fate) = self.follow(target, depth + 1) {
                        return Some(fate.for_rule(names_port));
                    }
                }
            }
        }
        None
    }

    /// The verdict of a rule for the datagram, if the rule applies, and whether it names the port.
    fn verdict(&self, statements: &'a [Value]) -> Option<(Verdict<'a>, bool)> {
        let mut certain = true;
        let mut names_port = false;
        for statement in statements {
            let verdict = Verdict::read(statement).or_else(|| self.look_up(&statement["vmap"]));
            if let Some(verdict) = verdict {
                let meant = names_port && matches!(verdict, Verdict::Accept);
                return (certain || meant).then_some((verdict, names_port));
            }
            match self.statement(statement) {
                Met::Yes => names_port |= is_port(&statement["match"]["left"]),
                Met::No => return None,
                Met::Unknown => certain = false,
            }
        }
        None
    }

    /// The verdict of a verdict map for the datagram.
    fn look_up(&self, map: &'a Value) -> Option<Verdict<'a>> {
        let elements = self.ruleset.values(self.chain.table, map.get("data")?);
        elements.into_iter().find_map(|element| {
            let [key, verdict] = element.as_array()?.as_slice() else {
                return None;
            };
            let met = self.condition(&map["key"], key) == Met::Yes;
            met.then(|| Verdict::read(verdict))?
        })
    }

    fn statement(&self, statement: &Value) -> Met {
        let Some(condition) = statement.get("match") else {
            let harmless = ["counter", "log", "mangle", "notrack", "vmap"];
            let is_harmless = harmless.iter().any(|name| statement.get(name).is_some());
            return if is_harmless { Met::Yes } else { Met::Unknown };
        };
        let met = self.condition(&condition["left"], &condition["right"]);
        match condition["op"].as_str() {
            Some("==" | "in") => met,
            Some("!=") => met.not(),
            _ => Met::Unknown,
        }
    }

    fn condition(&self, left: &Value, right: &Value) -> Met {
        let values = || self.ruleset.values(self.chain.table, right);
        let among = |wanted: &str| Met::from_bool(values().iter().any(|value| *value == wanted));
        let protocol = || {
            let is_udp = |value: &&Value| **value == "udp" || **value == 17;
            Met::from_bool(values().iter().any(is_udp))
        };
        if let Some(payload) = left.get("payload") {
            let field = payload["field"].as_str().unwrap_or_default();
            return match payload["protocol"].as_str() {
                Some("udp" | "th") if field == self.datagram.field() => {
                    Met::by_ports(&values(), self.datagram.port)
                }
                Some("ip") if field == "protocol" => protocol(),
                Some("ip6") if field == "nexthdr" => protocol(),
                Some("tcp" | "sctp" | "dccp" | "icmp" | "icmpv6" | "igmp") => Met::No,
                _ => Met::Unknown,
            };
        }
        match left["meta"]["key"].as_str() {
            Some("l4proto") => return protocol(),
            // What stops either family is told.
            Some("nfproto") => return Met::Yes,
            Some("iif" | "iifname") if self.datagram.hook.is_inbound() => {
                return Met::from_bool(is_named(&values(), self.datagram.interface));
            }
            Some("oif" | "oifname") if !self.datagram.hook.is_inbound() => {
                return Met::from_bool(is_named(&values(), self.datagram.interface));
            }
            _ => {}
        }
        match left["ct"]["key"].as_str() {
            Some("state") => among(self.datagram.state()),
            _ => Met::Unknown,
        }
    }
}

impl Fate {
    /// The same, of the rule that called the chain.
    fn for_rule(self, names_port: bool) -> Self {
        match self {
            Self::Dropped { on_purpose } => Self::Dropped {
                on_purpose: on_purpose || names_port,
            },
            Self::Passes => Self::Passes,
        }
    }
}

/// Whether an expression is a port of UDP.
fn is_port(expression: &Value) -> bool {
    let payload = &expression["payload"];
    (payload["protocol"] == "udp" || payload["protocol"] == "th")
        && (payload["field"] == "dport" || payload["field"] == "sport")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::firewall::datagram::{Hook, Role};

    fn chain(name: &str, base: &str) -> String {
        format!(r#"{{"chain": {{"family": "inet", "table": "filter", "name": "{name}"{base}}}}}"#)
    }

    fn rule(chain: &str, statements: &str) -> String {
        format!(
            r#"{{"rule": {{"family": "inet", "table": "filter", "chain": "{chain}", "handle": 1,
            "expr": [{statements}]}}}}"#
        )
    }

    fn equal(left: &str, right: &str) -> String {
        format!(r#"{{"match": {{"op": "==", "left": {left}, "right": {right}}}}}"#)
    }

    fn port(protocol: &str, right: &str) -> String {
        let left = format!(r#"{{"payload": {{"protocol": "{protocol}", "field": "dport"}}}}"#);
        equal(&left, right)
    }

    /// Whether UDP to ports 8000 to 8001 gets through an input chain with the policy
    /// to drop and these rules.
    fn passes(rules: &[String]) -> bool {
        let base = r#", "type": "filter", "hook": "input", "policy": "drop""#;
        let mut objects = vec![chain("input", base), chain("other", "")];
        objects.extend(rules.iter().cloned());
        let text = format!(r#"{{"nftables": [{}]}}"#, objects.join(","));
        let ruleset = Ruleset::parse(&text).unwrap();
        let chains = ruleset.base_chains(&["filter"], "input", "eth0");
        assert_eq!(chains.len(), 1);
        let datagram = Datagram {
            hook: Hook::Input,
            interface: "eth0",
            port: "8000-8001".parse().unwrap(),
            role: Role::Server,
        };
        let walk = Walk {
            ruleset: &ruleset,
            chain: &chains[0],
            datagram: &datagram,
        };
        walk.fate() == Fate::Passes
    }

    const ACCEPT: &str = r#"{"accept": null}"#;
    const DROP: &str = r#"{"drop": null}"#;

    #[test]
    fn conditions_are_judged_as_far_as_they_can_be() {
        let address = r#"{"payload": {"protocol": "ip", "field": "saddr"}}"#;
        let address = equal(address, r#""203.0.113.7""#);
        let meta = |key: &str| format!(r#"{{"meta": {{"key": "{key}"}}}}"#);
        let state = equal(
            r#"{"ct": {"key": "state"}}"#,
            r#"["established", "related"]"#,
        );
        let state = state.replace("==", "in");
        let counter = r#"{"counter": {"packets": 0, "bytes": 0}}"#.to_owned();
        let unlike = |text: String| text.replace("==", "!=");
        for (conditions, expected) in [
            (vec![], true),
            (vec![port("udp", r#"{"range": [8000, 8001]}"#)], true),
            (
                vec![port("th", r#"{"set": [22, {"range": [8000, 9000]}]}"#)],
                true,
            ),
            (vec![port("udp", "8000")], false),
            (vec![port("tcp", r#"{"range": [8000, 8001]}"#)], false),
            (vec![port("udp", "53")], false),
            (vec![unlike(port("udp", "53"))], true),
            (
                vec![counter.clone(), equal(&meta("l4proto"), r#""udp""#)],
                true,
            ),
            (
                vec![equal(&meta("l4proto"), r#"{"set": ["tcp", "icmp"]}"#)],
                false,
            ),
            (vec![equal(&meta("iifname"), r#""eth*""#)], true),
            (vec![equal(&meta("iifname"), r#""lo""#)], false),
            (vec![equal(&meta("oifname"), r#""eth0""#)], false),
            (vec![state], false),
            (vec![address.clone()], false),
            (
                vec![address.clone(), port("udp", r#"{"range": [1, 65535]}"#)],
                true,
            ),
        ] {
            let mut statements = conditions.clone();
            statements.push(ACCEPT.to_owned());
            let accepting = rule("input", &statements.join(","));
            assert_eq!(passes(&[accepting]), expected, "{conditions:?}");
        }
        // What may match does not drop.
        let dropping = rule("input", &[address, DROP.to_owned()].join(","));
        assert!(passes(&[dropping, rule("input", ACCEPT)]));
        assert!(!passes(&[rule("input", DROP), rule("input", ACCEPT)]));
    }

    #[test]
    fn chains_are_followed() {
        let jump = r#"{"jump": {"target": "other"}}"#;
        let goto = r#"{"goto": {"target": "other"}}"#;
        let returning = r#"{"return": null}"#;
        let accept = || rule("input", ACCEPT);
        assert!(passes(&[rule("input", jump), rule("other", ACCEPT)]));
        assert!(!passes(&[
            rule("input", jump),
            rule("other", DROP),
            accept()
        ]));
        assert!(passes(&[
            rule("input", jump),
            rule("other", returning),
            accept()
        ]));
        assert!(!passes(&[rule("input", goto), accept()]));
        // The kernel refuses such a loop, but the walk must end for any text.
        assert!(!passes(&[rule("input", goto), rule("other", goto)]));
        let map = |value: &str| {
            format!(
                r#"{{"vmap": {{"key": {{"meta": {{"key": "l4proto"}}}},
                "data": {{"set": [["tcp", {ACCEPT}], ["udp", {value}]]}}}}}}"#
            )
        };
        assert!(passes(&[rule("input", &map(ACCEPT))]));
        assert!(!passes(&[rule("input", &map(DROP)), accept()]));
        let named = format!(
            r#"{{"map": {{"family": "inet", "table": "filter", "name": "m",
            "elem": [["tcp", {ACCEPT}], ["udp", {DROP}]]}}}}"#
        );
        let by_name = r#"{"vmap": {"key": {"meta": {"key": "l4proto"}}, "data": "@m"}}"#;
        assert!(!passes(&[named, rule("input", by_name), accept()]));
        let of_family = equal(r#"{"meta": {"key": "nfproto"}}"#, r#""ipv4""#);
        let dropping = rule("input", &[of_family, DROP.to_owned()].join(","));
        assert!(!passes(&[dropping, accept()]));
    }

    #[test]
    fn sets_have_names() {
        let set = r#"{"set": {"family": "inet", "table": "filter", "name": "tunnels",
            "elem": [51820, {"range": [8000, 8010]}]}}"#;
        let statements = [port("udp", r#""@tunnels""#), ACCEPT.to_owned()].join(",");
        assert!(passes(&[set.to_owned(), rule("input", &statements)]));
        assert!(!passes(&[rule("input", &statements)]));
    }
}
