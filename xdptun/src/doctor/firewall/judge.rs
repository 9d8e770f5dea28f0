//! The verdict of the rules of a chain for one datagram.
//!
//! A condition that the doctor cannot judge (an address, a rate) counts as not met, unless
//! its rule names the port: such a rule is meant for these datagrams.

use serde_json::Value;

use super::ruleset::{BaseChain, Datagram, Hook, Ruleset};

/// How deep chains can jump, as in the kernel (`NFT_JUMP_STACK_SIZE`).
const MAX_DEPTH: usize = 16;

/// Whether a condition is met.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Met {
    Yes,
    No,
    Unknown,
}

impl Met {
    pub const fn from_bool(met: bool) -> Self {
        if met { Self::Yes } else { Self::No }
    }

    const fn not(self) -> Self {
        match self {
            Self::Yes => Self::No,
            Self::No => Self::Yes,
            Self::Unknown => Self::Unknown,
        }
    }
}

/// The verdict of a rule for packets that it matches.
pub enum Verdict<'a> {
    Accept,
    Drop,
    Return,
    Jump(&'a str),
    Goto(&'a str),
}

impl<'a> Verdict<'a> {
    pub fn read(statement: &'a Value) -> Option<Self> {
        let (name, value) = statement.as_object()?.iter().next()?;
        let target = || value["target"].as_str();
        Some(match name.as_str() {
            // A program in user space decides about queued packets; assume it accepts.
            "accept" | "queue" => Self::Accept,
            "drop" | "reject" => Self::Drop,
            "return" => Self::Return,
            "jump" => Self::Jump(target()?),
            "goto" => Self::Goto(target()?),
            _ => return None,
        })
    }
}

/// One datagram on its way through a base chain and the chains that it calls.
pub struct Walk<'a> {
    pub ruleset: &'a Ruleset,
    pub chain: &'a BaseChain,
    pub datagram: &'a Datagram<'a>,
}

impl Walk<'_> {
    /// Whether a chain accepts the datagram; `None` if it returns to its caller without a
    /// verdict.
    pub fn follow(&self, name: &str, depth: usize) -> Option<bool> {
        if depth > MAX_DEPTH {
            return None;
        }
        for statements in self.ruleset.rules(self.chain, name) {
            match self.verdict(statements) {
                None => {}
                Some(Verdict::Accept) => return Some(true),
                Some(Verdict::Drop) => return Some(false),
                Some(Verdict::Return) => return None,
                Some(Verdict::Goto(target)) => return self.follow(target, depth + 1),
                Some(Verdict::Jump(target)) => {
                    let verdict = self.follow(target, depth + 1);
                    if verdict.is_some() {
                        return verdict;
                    }
                }
            }
        }
        None
    }

    /// The verdict of a rule for the datagram, if the rule applies.
    fn verdict<'r>(&self, statements: &'r [Value]) -> Option<Verdict<'r>> {
        let mut certain = true;
        let mut names_port = false;
        for statement in statements {
            let verdict = Verdict::read(statement).or_else(|| self.look_up(&statement["vmap"]));
            if let Some(verdict) = verdict {
                let meant = names_port && matches!(verdict, Verdict::Accept);
                return (certain || meant).then_some(verdict);
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
    fn look_up<'r>(&self, map: &'r Value) -> Option<Verdict<'r>> {
        let elements = map["data"]["set"].as_array()?;
        elements.iter().find_map(|element| {
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
        let values = || self.ruleset.values(self.chain, right);
        let among = |wanted: &str| Met::from_bool(values().iter().any(|value| *value == wanted));
        let protocol = || {
            let is_udp = |value: &&Value| **value == "udp" || **value == 17;
            Met::from_bool(values().iter().any(is_udp))
        };
        if let Some(payload) = left.get("payload") {
            let field = payload["field"].as_str().unwrap_or_default();
            return match payload["protocol"].as_str() {
                Some("udp" | "th") if field == self.datagram.end.field() => {
                    self.ruleset.ports(self.chain, right, self.datagram.port)
                }
                Some("ip") if field == "protocol" => protocol(),
                Some("ip6") if field == "nexthdr" => protocol(),
                Some("tcp" | "sctp" | "dccp" | "icmp" | "icmpv6" | "igmp") => Met::No,
                _ => Met::Unknown,
            };
        }
        match left["meta"]["key"].as_str() {
            Some("l4proto") => return protocol(),
            Some("iif" | "iifname") if self.datagram.hook == Hook::Input => {
                return self.interface(&values());
            }
            Some("oif" | "oifname") if self.datagram.hook == Hook::Output => {
                return self.interface(&values());
            }
            _ => {}
        }
        match left["ct"]["key"].as_str() {
            Some("state") => among("new"),
            _ => Met::Unknown,
        }
    }

    /// Whether the names, or prefixes of names, include the datagram's interface.
    fn interface(&self, names: &[&Value]) -> Met {
        let is_meant = |name: &str| match name.strip_suffix('*') {
            Some(prefix) => self.datagram.interface.starts_with(prefix),
            None => name == self.datagram.interface,
        };
        Met::from_bool(names.iter().filter_map(|name| name.as_str()).any(is_meant))
    }
}

/// Whether an expression is a port of UDP.
fn is_port(expression: &Value) -> bool {
    let payload = &expression["payload"];
    (payload["protocol"] == "udp" || payload["protocol"] == "th")
        && (payload["field"] == "dport" || payload["field"] == "sport")
}
