//! Rules of `xdptun policy`: which packets are searched, for what, and what becomes of those that
//! match.

mod error;
mod pattern;

pub use error::PolicyError;
pub use pattern::Pattern;

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use ipnet::IpNet;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use xdptun_common::policy::rule::{MAX_RULES, NAME};
use xdptun_common::policy::table::MAX_PATTERNS;

use super::peer::network;
use super::values::{one_or_some, word};

/// A rule: packets of its kind whose payload has one of its patterns.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table like [[interface.eth0.policy]]"
)]
pub struct PolicyRule {
    /// Name of the rule in `xdptun status`, metrics and the log; without one, `rule1` is the
    /// first of the interface.
    #[serde(default, deserialize_with = "name")]
    #[cfg_attr(test, schemars(title = "letters, digits, `.`, `-` and `_`"))]
    pub name: Option<RuleName>,
    /// Which packets are searched: those that come in by the interface, or leave by it.
    pub direction: PolicyDirection,
    /// Transport protocol; without it, TCP and UDP.
    #[serde(default)]
    #[cfg_attr(test, schemars(title = "`\"tcp\"`, `\"udp\"`"))]
    pub protocol: Option<PolicyProtocol>,
    /// Network or address that packets come from; without it, any.
    #[serde(default, deserialize_with = "addresses")]
    #[cfg_attr(
        test,
        schemars(
            with = "Option<String>",
            title = "network (`\"10.1.0.0/16\"`) or address"
        )
    )]
    pub from: Option<IpNet>,
    /// Network or address that packets go to; without it, any.
    #[serde(default, deserialize_with = "addresses")]
    #[cfg_attr(
        test,
        schemars(
            with = "Option<String>",
            title = "network (`\"10.1.0.0/16\"`) or address"
        )
    )]
    pub to: Option<IpNet>,
    /// Port of either end; without it, any.
    #[serde(default)]
    #[cfg_attr(test, schemars(title = "1 to 65535"))]
    pub port: Option<NonZeroU16>,
    /// Patterns of 1 to 128 bytes, up to 64: text, or bytes as `hex:00ff`. One of them has to be in
    /// the payload.
    #[serde(deserialize_with = "patterns")]
    pub contains: Vec<Pattern>,
    /// Whether ASCII letters match in either case.
    #[serde(default)]
    pub ignore_case: bool,
    /// First and last byte of the payload between which a match lies, counted from 0; without
    /// them, anywhere.
    #[serde(default)]
    #[cfg_attr(test, schemars(title = "`\"0-15\"`, `\"4-\"`", extend("unit" = "bytes")))]
    pub offset: Option<Offset>,
    /// What becomes of a packet that matches.
    pub action: PolicyAction,
    /// Whether a packet passes that the rule would drop; it is counted.
    #[serde(default)]
    pub dry_run: bool,
}

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PolicyDirection {
    /// They come in.
    In,
    /// They leave.
    Out,
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PolicyProtocol {
    /// TCP alone.
    Tcp,
    /// UDP alone.
    Udp,
}

/// What becomes of a packet that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PolicyAction {
    /// It is counted, and passes.
    Count,
    /// It is counted and logged (up to 16 lines a second for each CPU), and passes.
    Log,
    /// It is dropped.
    Drop,
    /// It is dropped; both ends of a connection get RST, the sender of a datagram an ICMP error.
    Reset,
}

/// The name of a rule: up to 32 letters, digits, `.`, `-` and `_`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RuleName(String);

/// The bytes of a payload in which a match lies, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Offset {
    /// The first.
    pub first: u16,
    /// The last; none if it does not matter.
    pub last: Option<u16>,
}

impl PolicyRule {
    /// Its name at this place among the rules of an interface, from 0 on.
    #[must_use]
    pub fn name_at(&self, place: usize) -> RuleName {
        let numbered = || RuleName(format!("rule{}", place + 1));
        self.name.clone().unwrap_or_else(numbered)
    }

    /// Checks that its parts fit each other.
    fn check(&self) -> Result<(), PolicyError> {
        match self.contains.len() {
            0 => return Err(PolicyError::NoPattern),
            1..=MAX_PATTERNS => {}
            many => return Err(PolicyError::TooManyPatterns(many)),
        }
        if let (Some(from), Some(to)) = (self.from, self.to)
            && from.addr().is_ipv4() != to.addr().is_ipv4()
        {
            return Err(PolicyError::Families { from, to });
        }
        let all = |network: &IpNet| network.addr().is_ipv6() && network.prefix_len() == 0;
        if [self.from, self.to].iter().flatten().any(all) {
            return Err(PolicyError::AllAddresses);
        }
        if self.dry_run && !self.action.drops() {
            return Err(PolicyError::NothingToTry(self.action));
        }
        if let Some(offset) = self.offset
            && let Some(last) = offset.last
        {
            let room = usize::from(last - offset.first) + 1;
            let too_long = |pattern: &&Pattern| pattern.bytes().len() > room;
            if let Some(pattern) = self.contains.iter().find(too_long) {
                return Err(PolicyError::NoRoom {
                    pattern: pattern.clone(),
                    offset,
                });
            }
        }
        Ok(())
    }
}

/// Checks the rules of an interface.
///
/// # Errors
///
/// If one contradicts itself, two have one name, or they are too many.
pub fn check_policies(rules: &[PolicyRule]) -> Result<(), PolicyError> {
    if rules.len() > MAX_RULES {
        return Err(PolicyError::TooManyRules(rules.len()));
    }
    let mut names = BTreeSet::new();
    for (place, rule) in rules.iter().enumerate() {
        rule.check()?;
        let name = rule.name_at(place);
        if !names.insert(name.clone()) {
            return Err(PolicyError::Twice(name));
        }
    }
    Ok(())
}

impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.direction)?;
        if let Some(protocol) = self.protocol {
            write!(f, " {protocol}")?;
        }
        if let Some(from) = self.from {
            write!(f, " from {from}")?;
        }
        if let Some(to) = self.to {
            write!(f, " to {to}")?;
        }
        if let Some(port) = self.port {
            write!(f, " port {port}")?;
        }
        match &self.contains[..] {
            [one] => write!(f, " contains {one}")?,
            many => write!(f, " contains one of {} patterns", many.len())?,
        }
        if self.ignore_case {
            write!(f, ", case ignored")?;
        }
        if let Some(offset) = self.offset {
            write!(f, ", offset {offset}")?;
        }
        write!(f, ": {}", self.action)?;
        match self.dry_run {
            true => write!(f, " (dry run)"),
            false => Ok(()),
        }
    }
}

impl PolicyDirection {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

impl fmt::Display for PolicyDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for PolicyProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

impl PolicyAction {
    /// Whether packets that match are dropped.
    #[must_use]
    pub const fn drops(self) -> bool {
        matches!(self, Self::Drop | Self::Reset)
    }
}

impl fmt::Display for PolicyAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Count => "count",
            Self::Log => "log",
            Self::Drop => "drop",
            Self::Reset => "reset",
        })
    }
}

impl RuleName {
    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RuleName {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let fits = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        match (1..=NAME).contains(&text.len()) && text.chars().all(fits) {
            true => Ok(Self(text.to_owned())),
            false => Err(PolicyError::NotAName(text.to_owned())),
        }
    }
}

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Offset {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let wrong = || PolicyError::NotAnOffset(text.to_owned());
        let (first, last) = text.split_once('-').ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<u16>().map_err(|_| wrong());
        let first = number(first)?;
        let last = match last {
            "" => None,
            last => Some(number(last)?),
        };
        match last {
            Some(last) if last < first => Err(wrong()),
            last => Ok(Self { first, last }),
        }
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-", self.first)?;
        match self.last {
            Some(last) => write!(f, "{last}"),
            None => Ok(()),
        }
    }
}

impl<'de> Deserialize<'de> for Offset {
    fn deserialize<D: Deserializer<'de>>(file: D) -> Result<Self, D::Error> {
        word(file, "bytes like \"0-15\" or \"4-\"")
    }
}

/// Reads a network, or an address as one of one.
///
/// # Errors
///
/// If the text is neither.
pub fn addresses_of(text: &str) -> Result<IpNet, PolicyError> {
    network(text).map_err(|_| PolicyError::NotANetwork(text.to_owned()))
}

fn name<'de, D: Deserializer<'de>>(file: D) -> Result<Option<RuleName>, D::Error> {
    let text = String::deserialize(file)?;
    text.parse().map(Some).map_err(D::Error::custom)
}

fn addresses<'de, D: Deserializer<'de>>(file: D) -> Result<Option<IpNet>, D::Error> {
    let text = String::deserialize(file)?;
    addresses_of(&text).map(Some).map_err(D::Error::custom)
}

fn patterns<'de, D: Deserializer<'de>>(file: D) -> Result<Vec<Pattern>, D::Error> {
    one_or_some(
        file,
        "a pattern like \"text\" or \"hex:00ff\", or a list of them",
    )
}

#[cfg(test)]
mod tests;
