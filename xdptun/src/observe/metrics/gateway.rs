//! What the gateway carries: its sessions and bindings.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::family::{Families, Labelled, labelled_by_group};
use crate::gateway::session::State;
use crate::observe::status::GatewayStatus;

/// Of each group one attachment: its interfaces share one table.
#[derive(Debug)]
pub struct Gateways(Vec<Labelled<GatewayStatus>>);

impl Gateways {
    pub fn of(gateways: Vec<GatewayStatus>) -> Self {
        Self(labelled_by_group(gateways))
    }
}

impl Collector for Gateways {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families {
            encoder,
            attachments: &self.0,
        };
        families.sessions()?;
        families.bindings()
    }
}

impl Families<'_, '_, GatewayStatus> {
    fn sessions(&mut self) -> fmt::Result {
        let help = "Sessions of a group of interfaces by state.";
        // The counters have the name `xdptun_sessions`.
        self.each(
            ("xdptun_session_states", help, None),
            MetricType::Gauge,
            |metric, group, status| {
                for state in State::ALL.map(State::name) {
                    let count = status.session_states.get(state).copied();
                    let labels = [("group", group), ("state", state)];
                    metric
                        .encode_family(&labels)?
                        .encode_gauge(&count.unwrap_or_default())?;
                }
                Ok(())
            },
        )?;
        let help = "How many open sessions the table of a group of interfaces holds.";
        self.each(
            ("xdptun_session_table_capacity", help, None),
            MetricType::Gauge,
            |metric, group, status| {
                metric
                    .encode_family(&[("group", group)])?
                    .encode_gauge(&status.max_sessions)
            },
        )
    }

    fn bindings(&mut self) -> fmt::Result {
        let help = "Ends of inside hosts that are bound to an outside port, by all interfaces of a \
                    group.";
        self.each(
            ("xdptun_bindings", help, None),
            MetricType::Gauge,
            |metric, group, status| {
                metric
                    .encode_family(&[("group", group)])?
                    .encode_gauge(&status.bindings)
            },
        )?;
        let help = "How many bindings the table of a group of interfaces holds.";
        self.each(
            ("xdptun_binding_table_capacity", help, None),
            MetricType::Gauge,
            |metric, group, status| {
                metric
                    .encode_family(&[("group", group)])?
                    .encode_gauge(&status.max_bindings)
            },
        )
    }
}
