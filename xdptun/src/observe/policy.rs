//! What the policy has attached, and how often its rules match.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::rates::carried::{growth, per_second};
use super::rates::{Drops, drops, passed};
use super::status::AttachmentStatus;
use crate::error::Result;
use crate::policy::{Pinned, PresentRule};

/// The policy on an interface.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyStatus {
    /// What is attached.
    #[serde(flatten)]
    pub attachment: AttachmentStatus,
    /// Its rules, those for packets that come in first, each list in its order.
    pub rules: Vec<RuleStatus>,
}

/// A rule, and how often it has matched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleStatus {
    /// Its name.
    pub name: String,
    /// `in` or `out`.
    pub direction: &'static str,
    /// What it does with which packets, in words.
    pub rule: String,
    /// `count`, `log`, `drop` or `reset`.
    pub action: String,
    /// Whether packets pass that it would drop.
    pub dry_run: bool,
    /// The patterns: text, or bytes as `hex:00ff`.
    pub contains: Vec<String>,
    /// Packets of the interface that matched it, since the rule is there.
    pub hits: u64,
}

/// The rates of the policy on one interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyRates {
    /// The function, `policy`.
    pub function: &'static str,
    /// The interface's name.
    pub name: String,
    /// Its index.
    pub ifindex: u32,
    /// Packets per second by counter; those that moved, without dropped ones.
    pub packets_per_s: BTreeMap<&'static str, f64>,
    /// The counters of dropped packets that moved.
    pub drops: BTreeMap<&'static str, Drops>,
    /// The rules that matched, by name.
    pub rules: BTreeMap<String, Hits>,
}

/// How often a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Hits {
    /// Packets per second.
    pub per_s: f64,
    /// Packets since the rule is there.
    pub total: u64,
}

impl AsRef<AttachmentStatus> for PolicyStatus {
    fn as_ref(&self) -> &AttachmentStatus {
        &self.attachment
    }
}

impl PolicyStatus {
    /// Reads what is attached to an interface.
    ///
    /// # Errors
    ///
    /// If maps cannot be read.
    pub fn read(pinned: &Pinned) -> Result<Self> {
        let rules = pinned
            .group
            .maps
            .rules_of(pinned.ifindex, pinned.attachment.row)?;
        Ok(Self {
            attachment: AttachmentStatus::read(pinned)?,
            rules: rules.into_iter().map(RuleStatus::of).collect(),
        })
    }
}

impl RuleStatus {
    fn of(rule: PresentRule) -> Self {
        let PresentRule { name, policy, hits } = rule;
        let contains = policy.contains.iter();
        Self {
            name,
            direction: policy.direction.name(),
            rule: policy.to_string(),
            action: policy.action.to_string(),
            dry_run: policy.dry_run,
            contains: contains.map(|pattern| pattern.written()).collect(),
            hits,
        }
    }
}

impl PolicyRates {
    /// The rates between two readings.
    pub fn between(then: Option<&PolicyStatus>, now: &PolicyStatus, interval: Duration) -> Self {
        let rules = now.rules.iter().filter_map(|rule| {
            let mut before = then.iter().flat_map(|then| &then.rules);
            let before = before.find(|one| one.name == rule.name);
            let moved = growth(before.map(|one| one.hits), rule.hits);
            let hits = Hits {
                per_s: per_second(moved, interval),
                total: rule.hits,
            };
            (moved > 0).then(|| (rule.name.clone(), hits))
        });
        Self {
            function: now.attachment.function,
            name: now.attachment.name.clone(),
            ifindex: now.attachment.ifindex,
            packets_per_s: passed(then, now, interval),
            drops: drops(then, now, interval),
            rules: rules.collect(),
        }
    }
}
