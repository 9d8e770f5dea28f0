//! Chains, rules and sets.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::value::is_named;
use crate::error::{Context as _, Result, bail};

/// A table: chains see the sets and chains of their own one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Table<'a> {
    pub family: &'a str,
    pub name: &'a str,
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.family, self.name)
    }
}

impl<'a> Table<'a> {
    /// The one that a chain, a rule or a set is in.
    fn of(object: &'a Value) -> Option<Self> {
        Some(Self {
            family: object["family"].as_str()?,
            name: object["table"].as_str()?,
        })
    }
}

/// A chain on a hook.
pub struct BaseChain<'a> {
    pub table: Table<'a>,
    pub name: &'a str,
    /// The verdict for what no rule decides.
    pub drops_by_policy: bool,
}

/// A rule of a chain.
#[derive(Clone, Copy)]
pub struct Rule<'a> {
    pub table: Table<'a>,
    pub chain: &'a str,
    handle: u64,
    pub statements: &'a [Value],
}

/// As `nft delete rule` takes it.
impl fmt::Display for Rule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} handle {}", self.table, self.chain, self.handle)
    }
}

/// The tool whose rules they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// nft, or an iptables that makes rules of nft.
    Nft,
    IptablesLegacy,
}

/// All rules of a network namespace.
pub struct Ruleset {
    pub(super) objects: Vec<Value>,
    pub tool: Tool,
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
        Ok(Self {
            objects,
            tool: Tool::Nft,
        })
    }

    /// The chains of these types (`filter`, `nat`) on a hook of IP, or of this device. Chains of
    /// bridges are left out.
    pub fn base_chains(&self, kinds: &[&str], hook: &str, device: &str) -> Vec<BaseChain<'_>> {
        let chains = self.objects.iter().filter_map(|object| object.get("chain"));
        let is_meant = |chain: &&Value| {
            let kind = chain["type"].as_str().unwrap_or_default();
            kinds.contains(&kind) && chain["hook"] == hook && is_on(chain, device)
        };
        let chains = chains.filter(is_meant).filter_map(|chain| {
            Some(BaseChain {
                table: Table::of(chain)?,
                name: chain["name"].as_str()?,
                drops_by_policy: chain["policy"] == "drop",
            })
        });
        chains
            .filter(|chain| ["ip", "ip6", "inet", "netdev"].contains(&chain.table.family))
            .collect()
    }

    /// The names of its tables, as its chains name them.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        let chains = self.objects.iter().filter_map(|object| object.get("chain"));
        chains.filter_map(|chain| chain["table"].as_str())
    }

    /// Leaves out tables of a family.
    pub fn remove(&mut self, family: &str, tables: &BTreeSet<String>) {
        let is_removed = |object: &Value| {
            let mut kinds = object
                .as_object()
                .into_iter()
                .flat_map(|kinds| kinds.values());
            kinds.any(|of_table| {
                let table = Table::of(of_table);
                table.is_some_and(|table| table.family == family && tables.contains(table.name))
            })
        };
        self.objects.retain(|object| !is_removed(object));
    }

    pub fn all_rules(&self) -> impl Iterator<Item = Rule<'_>> {
        let rules = self.objects.iter().filter_map(|object| object.get("rule"));
        rules.filter_map(|rule| {
            Some(Rule {
                table: Table::of(rule)?,
                chain: rule["chain"].as_str()?,
                handle: rule["handle"].as_u64()?,
                statements: rule["expr"].as_array()?,
            })
        })
    }

    /// The single values of an expression, or of the set or map that it names. Those of a map are
    /// pairs.
    pub fn values<'a>(&'a self, table: Table<'_>, expression: &'a Value) -> Vec<&'a Value> {
        if let Some(name) = expression.as_str().and_then(|text| text.strip_prefix('@')) {
            let elements = self.elements(table, name);
            return elements.map_or_else(Vec::new, |elements| self.values(table, elements));
        }
        let elements = expression.get("set").unwrap_or(expression);
        match elements.as_array() {
            Some(elements) => elements.iter().map(without_comment).collect(),
            None => vec![elements],
        }
    }

    /// The elements of a set or map; `None` if it is empty.
    fn elements(&self, table: Table<'_>, name: &str) -> Option<&Value> {
        self.objects.iter().find_map(|object| {
            let set = object.get("set").or_else(|| object.get("map"))?;
            let is_meant = set["name"] == *name && Table::of(set) == Some(table);
            is_meant.then(|| set.get("elem"))?
        })
    }
}

/// Whether a chain sees packets of a device. One that names no device sees those of all.
fn is_on(chain: &Value, device: &str) -> bool {
    match &chain["dev"] {
        Value::Null => true,
        Value::Array(names) => is_named(&names.iter().collect::<Vec<_>>(), device),
        name => is_named(&[name], device),
    }
}

/// An element of a set without its timeout, comment and counter.
fn without_comment(element: &Value) -> &Value {
    element["elem"].get("val").unwrap_or(element)
}
