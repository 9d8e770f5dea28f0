//! Metrics for Prometheus, in the OpenMetrics text format.
//!
//! Each scrape makes them from a [`Status`] of the whole network namespace. The names of
//! counters are those of `xdptun status`, as values of the label `outcome`.

mod serve;

pub use serve::{PATH, bind, serve};

use std::fmt;
use std::time::SystemTime;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use xdptun_common::tunnel::outcome::{Outcome, Sent};

use crate::observe::status::{FlowStatus, InterfaceStatus, Status};
use crate::tunnel::maps::TX_LOST_IN_QUEUE;

/// The content type of the text that [`render`] writes.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics for a status.
///
/// # Errors
///
/// None that depends on the data.
pub fn render(status: Status) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Exposition::of(status)));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Exposition(Vec<Labelled>);

/// An attachment and the value of its label `interface`.
#[derive(Debug)]
struct Labelled {
    name: String,
    status: InterfaceStatus,
}

impl Exposition {
    /// Labels have to be unique. If several attachments have interfaces of one name (all but
    /// one of them gone), the latest counts.
    fn of(mut status: Status) -> Self {
        let interfaces = &mut status.interfaces;
        interfaces.sort_by(|a, b| (&a.name, a.attached).cmp(&(&b.name, b.attached)));
        interfaces.dedup_by(|older, latest| older.name == latest.name);
        let labelled = status.interfaces.into_iter().map(|status| Labelled {
            name: escaped(&status.name),
            status,
        });
        Self(labelled.collect())
    }
}

/// The value of a label: the library does not escape it.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"")
}

impl Collector for Exposition {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families {
            encoder,
            interfaces: &self.0,
        };
        families.about()?;
        families.packets()?;
        families.flows()?;
        families.attachments()
    }
}

struct Families<'a, 'e> {
    encoder: DescriptorEncoder<'e>,
    interfaces: &'a [Labelled],
}

impl Families<'_, '_> {
    fn about(&mut self) -> fmt::Result {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        let help = "The xdptun that tells this.";
        self.encoder
            .encode_descriptor("xdptun_build", help, None, MetricType::Info)?
            .encode_info(&version)?;
        let help = "What is attached: the owned ports, and what restores inbound data.";
        self.each(
            ("xdptun_attachment", help, None),
            MetricType::Info,
            |metric, name, status| {
                let ports: Vec<String> = status.ports.iter().map(ToString::to_string).collect();
                metric.encode_info(&[
                    ("interface", name),
                    ("ingress", status.ingress),
                    ("ports", &ports.join(",")),
                ])
            },
        )
    }

    fn packets(&mut self) -> fmt::Result {
        let outcomes = Outcome::ALL.iter().map(|outcome| outcome.name());
        self.counters(
            "xdptun_packets",
            "Packets by how they ended; `xdptun explain OUTCOME` tells what it means.",
            outcomes,
        )?;
        let sent = Sent::ALL.iter().map(|sent| sent.name());
        self.counters(
            "xdptun_control_segments",
            "Segments without data, sent or withheld; `xdptun explain OUTCOME` tells more.",
            sent,
        )?;
        let help = "Datagrams lost while they waited with the daemon for a handshake.";
        self.each(
            ("xdptun_queue_lost_datagrams", help, None),
            MetricType::Counter,
            |metric, name, status| {
                let lost = status.counters.get(TX_LOST_IN_QUEUE);
                counter(metric, &[("interface", name)], lost)
            },
        )
    }

    fn flows(&mut self) -> fmt::Result {
        let help = "Flows in the table by state.";
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
        let help = "How many flows the table holds.";
        self.gauge(("xdptun_flow_table_capacity", help, None), |status| {
            Some(status.max_flows.into())
        })?;
        let help = "Payload that the flows in the table have carried; \
                    less again when one leaves it.";
        self.each(
            ("xdptun_flows_payload", help, Some(&Unit::Bytes)),
            MetricType::Gauge,
            |metric, name, status| {
                let bytes = |of: fn(&FlowStatus) -> u64| status.flows.iter().map(of).sum::<u64>();
                for (direction, bytes) in [
                    ("receive", bytes(|flow| flow.rx_bytes)),
                    ("transmit", bytes(|flow| flow.tx_bytes)),
                ] {
                    let labels = [("interface", name), ("direction", direction)];
                    metric.encode_family(&labels)?.encode_gauge(&bytes)?;
                }
                Ok(())
            },
        )
    }

    fn attachments(&mut self) -> fmt::Result {
        let help = "Whether the daemon of the attachment lives.";
        self.gauge(("xdptun_daemon_up", help, None), |status| {
            Some(status.daemon.is_some().into())
        })?;
        let help = "MTU of the interface; none if it is gone.";
        let unit = Some(&Unit::Bytes);
        self.gauge(("xdptun_interface_mtu", help, unit), |status| {
            status.mtu.map(f64::from)
        })?;
        let help = "When the attachment was made, in Unix time.";
        let unit = Some(&Unit::Seconds);
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        self.gauge(("xdptun_attachment_start_time", help, unit), |status| {
            // In whole seconds: the difference of two clocks would vary below that.
            Some(now.saturating_sub(status.attached).as_secs_f64().round())
        })
    }

    /// A family of counters that are told apart by their names.
    fn counters(
        &mut self,
        name: &str,
        help: &str,
        outcomes: impl Iterator<Item = &'static str> + Clone,
    ) -> fmt::Result {
        self.each(
            (name, help, None),
            MetricType::Counter,
            |metric, interface, status| {
                for outcome in outcomes.clone() {
                    let labels = [("interface", interface), ("outcome", outcome)];
                    counter(metric, &labels, status.counters.get(outcome))?;
                }
                Ok(())
            },
        )
    }

    /// One number for each interface that has it.
    fn gauge(
        &mut self,
        descriptor: Descriptor<'_>,
        value: impl Fn(&InterfaceStatus) -> Option<f64>,
    ) -> fmt::Result {
        self.each(descriptor, MetricType::Gauge, |metric, name, status| {
            let Some(value) = value(status) else {
                return Ok(());
            };
            let labels = [("interface", name)];
            metric.encode_family(&labels)?.encode_gauge(&value)
        })
    }

    fn each(
        &mut self,
        (name, help, unit): Descriptor<'_>,
        kind: MetricType,
        samples: impl Fn(&mut MetricEncoder<'_>, &str, &InterfaceStatus) -> fmt::Result,
    ) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, unit, kind)?;
        for Labelled { name, status } in self.interfaces {
            samples(&mut metric, name, status)?;
        }
        Ok(())
    }
}

/// Name, help and unit; the name is without the suffixes of unit and kind.
type Descriptor<'a> = (&'a str, &'a str, Option<&'a Unit>);

fn counter(
    metric: &mut MetricEncoder<'_>,
    labels: &impl EncodeLabelSet,
    value: Option<&u64>,
) -> fmt::Result {
    metric
        .encode_family(labels)?
        .encode_counter::<NoLabelSet, u64, f64>(value.unwrap_or(&0), None)
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::time::Duration;

    use super::*;
    use crate::observe::status::{SCHEMA, by_state};

    fn attachment(name: &str, ifindex: u32, attached_s: u64, disguised: u64) -> InterfaceStatus {
        InterfaceStatus {
            name: name.to_owned(),
            ifindex,
            group: vec![name.to_owned()],
            ports: vec!["443".parse().unwrap(), "8000-8010".parse().unwrap()],
            peers: Vec::new(),
            secret: false,
            mtu: (disguised != 0).then_some(1500),
            wireguard_mtu: None,
            ingress: "tc",
            hooks: Vec::new(),
            daemon: None,
            attached: Duration::from_secs(attached_s),
            max_flows: 65536,
            counters: [("tx_disguised", disguised)].into(),
            flow_states: by_state(iter::empty()),
            flows: Vec::new(),
        }
    }

    fn rendered(interfaces: Vec<InterfaceStatus>) -> String {
        render(Status {
            schema: SCHEMA,
            interfaces,
            service: None,
        })
        .unwrap()
    }

    fn assert_holds(text: &str, line: &str) {
        let count = text.lines().filter(|found| *found == line).count();
        assert_eq!(count, 1, "{line}\n{text}");
    }

    #[test]
    fn counters_and_what_is_attached() {
        let text = rendered(vec![attachment("eth0", 2, 60, 7)]);
        for line in [
            r#"xdptun_packets_total{interface="eth0",outcome="tx_disguised"} 7"#,
            r#"xdptun_attachment_info{interface="eth0",ingress="tc",ports="443,8000-8010"} 1"#,
            r#"xdptun_interface_mtu_bytes{interface="eth0"} 1500.0"#,
            r#"xdptun_daemon_up{interface="eth0"} 0.0"#,
        ] {
            assert_holds(&text, line);
        }
    }

    /// Two lines with the same labels would void the whole scrape.
    #[test]
    fn of_one_name_the_latest_counts() {
        let text = rendered(vec![
            attachment("eth0", 2, 60, 0),
            attachment("eth0", 7, 5, 7),
            attachment("eth1", 3, 1, 1),
        ]);
        let line = r#"xdptun_packets_total{interface="eth0",outcome="tx_disguised"} 7"#;
        assert_holds(&text, line);
        let disguised = text.matches("outcome=\"tx_disguised\"").count();
        assert_eq!(disguised, 2, "{text}");
        // Gone: there is no MTU.
        let gone = rendered(vec![attachment("eth0", 2, 60, 0)]);
        assert!(!gone.contains("xdptun_interface_mtu_bytes{"), "{gone}");
    }

    #[test]
    fn names_of_interfaces_are_escaped() {
        let text = rendered(vec![attachment(r#"a"b\c"#, 2, 60, 0)]);
        let line = r#"xdptun_daemon_up{interface="a\"b\\c"} 0.0"#;
        assert_holds(&text, line);
    }
}
