//! What the configuration asks for.

use std::collections::BTreeMap;

use xdptun_common::policy::rule::MAX_RULES;

use crate::config::{Config, GroChoice, IngressChoice, InterfaceConfig, PolicyRule, TcChoice};
use crate::error::{Result, bail};
use crate::group::{Options, Trace};

/// What the configuration asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The rules, by the names of the interfaces.
    pub rules: BTreeMap<String, Vec<PolicyRule>>,
    /// How the programs are attached.
    pub tc: TcChoice,
}

/// What the maps are set up with: the rules of each interface, by its name.
pub type Settings = BTreeMap<String, Vec<PolicyRule>>;

impl Plan {
    /// The plan for a configuration; `None` if it has no rules.
    ///
    /// # Errors
    ///
    /// If the rules are too many, of [kind](crate::error::Kind) `Invalid`.
    pub fn of(config: &Config) -> Result<Option<Self>> {
        let all = config.interfaces.iter();
        let with_rules = all.filter(|(_, interface)| interface.has_policy());
        // `Config::parse` has checked that all have the same.
        let Some((_, InterfaceConfig { tc, .. })) = with_rules.clone().next() else {
            return Ok(None);
        };
        let rules = with_rules.map(|(name, one)| (name.clone(), one.policy.clone()));
        let plan = Self {
            rules: rules.collect(),
            tc: *tc,
        };
        let mut lists: Vec<&Vec<PolicyRule>> = Vec::new();
        for list in plan.rules.values() {
            if !lists.contains(&list) {
                lists.push(list);
            }
        }
        let rules: usize = lists.iter().map(|list| list.len()).sum();
        if rules > MAX_RULES {
            bail!(
                Invalid,
                "{rules} rules of all interfaces with different rules are too many; there is room \
                 for {MAX_RULES}"
            );
        }
        Ok(Some(plan))
    }

    /// The names of the interfaces that have rules.
    pub fn interfaces(&self) -> impl Iterator<Item = &String> {
        self.rules.keys()
    }

    /// What the policy does on an interface, in words; none if that has no rules.
    #[must_use]
    pub fn does_on(&self, interface: &str) -> Option<String> {
        self.rules.get(interface).map(|rules| match rules.len() {
            1 => "searches payloads by 1 rule".to_owned(),
            many => format!("searches payloads by {many} rules"),
        })
    }

    /// How programs are attached and set up.
    #[must_use]
    pub fn options(&self) -> Options<Settings> {
        Options {
            ingress: IngressChoice::Tc,
            gro: GroChoice::Off,
            tc: self.tc,
            trace: Trace::Off,
            record: None,
            settings: self.rules.clone(),
        }
    }
}
