//! What NAT64 carries: its clients.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::family::{Families, Labelled, labelled_by_group};
use crate::nat64::session::State;
use crate::observe::nat64::Nat64Status;

/// The attachment of NAT64.
#[derive(Debug)]
pub struct Nat64s(Vec<Labelled<Nat64Status>>);

impl Nat64s {
    pub fn of(all: Vec<Nat64Status>) -> Self {
        Self(labelled_by_group(all))
    }
}

impl Collector for Nat64s {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families {
            encoder,
            attachments: &self.0,
        };
        let help = "IPv6 clients that have an IPv4 address, by what is known of them.";
        families.each(
            ("xdptun_nat64_clients", help, None),
            MetricType::Gauge,
            |metric, group, status| {
                for state in State::ALL.map(State::name) {
                    let count = status.client_states.get(state).copied();
                    let labels = [("group", group), ("state", state)];
                    metric
                        .encode_family(&labels)?
                        .encode_gauge(&count.unwrap_or_default())?;
                }
                Ok(())
            },
        )?;
        let help = "How many IPv6 clients can have an IPv4 address.";
        families.each(
            ("xdptun_nat64_pool_size", help, None),
            MetricType::Gauge,
            |metric, group, status| {
                metric
                    .encode_family(&[("group", group)])?
                    .encode_gauge(&status.max_clients)
            },
        )
    }
}
