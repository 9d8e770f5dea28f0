//! What the tunnel carries: its ports and flows.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::family::{Families, Labelled, labelled};
use crate::observe::status::InterfaceStatus;

#[derive(Debug)]
pub struct Tunnels(Vec<Labelled<InterfaceStatus>>);

impl Tunnels {
    pub fn of(interfaces: Vec<InterfaceStatus>) -> Self {
        Self(labelled(interfaces))
    }
}

impl Collector for Tunnels {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families {
            encoder,
            attachments: &self.0,
        };
        families.about()?;
        families.flows()
    }
}

impl Families<'_, '_, InterfaceStatus> {
    fn about(&mut self) -> fmt::Result {
        self.each(
            ("xdptun_tunnel", "The owned ports.", None),
            MetricType::Info,
            |metric, name, status| {
                let ports: Vec<String> = status.ports.iter().map(ToString::to_string).collect();
                metric.encode_info(&[("interface", name), ("ports", &ports.join(","))])
            },
        )
    }

    fn flows(&mut self) -> fmt::Result {
        let help = "Flows in the table by state; one counts for the interface \
                    by which it last sent.";
        self.each(
            ("xdptun_flows", help, None),
            MetricType::Gauge,
            |metric, name, status| {
                for (state, count) in &status.flow_states {
                    let labels = [("interface", name), ("state", state)];
                    metric.encode_family(&labels)?.encode_gauge(count)?;
                }
                Ok(())
            },
        )?;
        let help = "How many flows the table holds, which all of a group share.";
        self.each(
            ("xdptun_flow_table_capacity", help, None),
            MetricType::Gauge,
            |metric, name, status| {
                metric
                    .encode_family(&[("interface", name)])?
                    .encode_gauge(&status.max_flows)
            },
        )
    }
}
