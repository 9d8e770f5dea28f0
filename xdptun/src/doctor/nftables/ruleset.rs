//! Chains, rules and sets.

use std::fmt;

use serde_json::Value;

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

    /// The chains of a type (`filter`, `nat`) on a hook of IP. Chains of bridges and devices are
    /// left out.
    pub fn base_chains(&self, kind: &str, hook: &str) -> Vec<BaseChain<'_>> {
        let chains = self.objects.iter().filter_map(|object| object.get("chain"));
        let chains = chains.filter(|chain| chain["type"] == kind && chain["hook"] == hook);
        let chains = chains.filter_map(|chain| {
            Some(BaseChain {
                table: Table::of(chain)?,
                name: chain["name"].as_str()?,
                drops_by_policy: chain["policy"] == "drop",
            })
        });
        chains
            .filter(|chain| ["ip", "ip6", "inet"].contains(&chain.table.family))
            .collect()
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

/// An element of a set without its timeout, comment and counter.
fn without_comment(element: &Value) -> &Value {
    element["elem"].get("val").unwrap_or(element)
}
