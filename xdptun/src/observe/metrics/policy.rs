//! How often each rule of the policy has matched.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::family::{Families, Labelled, labelled};
use crate::observe::policy::PolicyStatus;

#[derive(Debug)]
pub struct Policies(Vec<Labelled<PolicyStatus>>);

impl Policies {
    pub fn of(policies: Vec<PolicyStatus>) -> Self {
        Self(labelled(policies))
    }
}

impl Collector for Policies {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families {
            encoder,
            attachments: &self.0,
        };
        let help = "Packets that matched a rule of the policy, since the rule is there.";
        families.each(
            ("xdptun_policy_hits", help, None),
            MetricType::Counter,
            |metric, name, status| {
                for rule in &status.rules {
                    let labels = [
                        ("interface", name),
                        ("direction", rule.direction),
                        ("rule", &*super::family::escaped(&rule.name)),
                        ("action", &rule.action),
                    ];
                    metric
                        .encode_family(&labels)?
                        .encode_counter::<NoLabelSet, u64, f64>(&rule.hits, None)?;
                }
                Ok(())
            },
        )
    }
}
