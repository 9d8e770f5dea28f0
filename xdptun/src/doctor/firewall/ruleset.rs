//! The ruleset of nftables, as `nft -j list ruleset` prints it (libnftables-json(5)).

use serde_json::Value;

use super::verdict::{Met, Verdict};
use crate::error::{Context as _, Result, bail};
use crate::host::ports::PortRange;

/// A hook of netfilter that sees this host's own datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    Input,
    Output,
}

impl Hook {
    const fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
        }
    }

    /// The ends of a datagram that can have the owned port.
    pub const fn ends(self) -> &'static [End] {
        match self {
            // Unasked datagrams only; answers come in through connection tracking.
            Self::Input => &[End::Destination],
            Self::Output => &[End::Source, End::Destination],
        }
    }
}

/// The end of a datagram that has the owned port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Source,
    Destination,
}

impl End {
    pub const fn field(self) -> &'static str {
        match self {
            Self::Source => "sport",
            Self::Destination => "dport",
        }
    }
}

/// The first UDP datagram of a conversation.
pub struct Datagram<'a> {
    pub hook: Hook,
    /// The interface that it comes from or goes to.
    pub interface: &'a str,
    pub port: PortRange,
    pub end: End,
}

/// A chain on a hook.
pub struct BaseChain {
    pub family: String,
    pub table: String,
    pub name: String,
    /// The verdict for what no rule decides.
    pub drops_by_policy: bool,
}

/// All rules of a network namespace.
pub struct Ruleset {
    objects: Vec<Value>,
}

impl Ruleset {
    /// Reads what `nft -j list ruleset` printed.
    ///
    /// # Errors
    ///
    /// If the text is something else.
    pub fn parse(text: &str) -> Result<Self> {
        let mut value: Value = serde_json::from_str(text).context("nft did not print JSON")?;
        let objects = value["nftables"].take();
        let Value::Array(objects) = objects else {
            bail!(Other, "nft printed no ruleset");
        };
        Ok(Self { objects })
    }

    /// The filter chains of a hook.
    pub fn base_chains(&self, hook: Hook) -> Vec<BaseChain> {
        let chains = self.objects.iter().filter_map(|object| object.get("chain"));
        chains
            .filter(|chain| chain["hook"] == hook.name() && is_of_this_host(chain))
            .filter_map(|chain| {
                let text = |key: &str| Some(chain[key].as_str()?.to_owned());
                Some(BaseChain {
                    family: text("family")?,
                    table: text("table")?,
                    name: text("name")?,
                    drops_by_policy: chain["policy"] == "drop",
                })
            })
            .collect()
    }

    /// Whether a rule in the table of a chain accepts TCP to a port.
    pub fn accepts_tcp(&self, chain: &BaseChain, port: PortRange) -> bool {
        let rules = self.objects.iter().filter_map(|object| object.get("rule"));
        rules
            .filter(|rule| rule["family"] == *chain.family && rule["table"] == *chain.table)
            .filter_map(|rule| rule["expr"].as_array())
            .any(|statements| {
                let names_port = statements.iter().any(|statement| {
                    let left = &statement["match"]["left"]["payload"];
                    left["protocol"] == "tcp"
                        && left["field"] == "dport"
                        && self.ports(chain, &statement["match"]["right"], port) == Met::Yes
                });
                let accepts = |statement| matches!(Verdict::read(statement), Some(Verdict::Accept));
                names_port && statements.iter().any(accepts)
            })
    }

    pub fn rules<'a>(
        &'a self,
        of: &'a BaseChain,
        name: &'a str,
    ) -> impl Iterator<Item = &'a [Value]> {
        self.objects
            .iter()
            .filter_map(|object| object.get("rule"))
            .filter(move |rule| {
                rule["family"] == *of.family && rule["table"] == *of.table && rule["chain"] == *name
            })
            .filter_map(|rule| Some(rule["expr"].as_array()?.as_slice()))
    }

    /// The single values of an expression.
    pub fn values<'a>(&'a self, chain: &BaseChain, expression: &'a Value) -> Vec<&'a Value> {
        if let Some(name) = expression.as_str().and_then(|text| text.strip_prefix('@')) {
            let set = self.objects.iter().find_map(|object| {
                let set = object.get("set")?;
                let is_meant = set["family"] == *chain.family
                    && set["table"] == *chain.table
                    && set["name"] == *name;
                is_meant.then_some(&set["elem"])
            });
            return set.map_or_else(Vec::new, |elements| self.values(chain, elements));
        }
        let elements = expression.get("set").unwrap_or(expression);
        match elements.as_array() {
            Some(elements) => elements.iter().collect(),
            None => vec![elements],
        }
    }

    /// Whether all of the owned ports are among those of an expression.
    pub fn ports(&self, chain: &BaseChain, expression: &Value, owned: PortRange) -> Met {
        let (first, last) = owned.bounds();
        let mut overlaps = false;
        for value in self.values(chain, expression) {
            let number = |value: &Value| u16::try_from(value.as_u64()?).ok();
            let bounds = match value["range"].as_array().map(Vec::as_slice) {
                Some([low, high]) => number(low).zip(number(high)),
                _ => number(value).map(|port| (port, port)),
            };
            let Some((low, high)) = bounds else {
                return Met::Unknown;
            };
            if low <= first && last <= high {
                return Met::Yes;
            }
            overlaps |= low <= last && first <= high;
        }
        if overlaps { Met::Unknown } else { Met::No }
    }
}

/// Whether a chain filters packets of this host; chains of bridges and devices see others.
fn is_of_this_host(chain: &Value) -> bool {
    chain["type"] == "filter"
        && chain["family"]
            .as_str()
            .is_some_and(|family| ["ip", "ip6", "inet"].contains(&family))
}
