//! What any function has attached.

use std::fmt;
use std::time::SystemTime;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::family::{Descriptor, Families, Labelled, group, labelled};
use crate::group::counter::{Counter, Counts, Metric};
use crate::observe::status::AttachmentStatus;

#[derive(Debug)]
pub struct Attachments(Vec<Labelled<AttachmentStatus>>);

impl Attachments {
    pub fn of(attachments: Vec<AttachmentStatus>) -> Self {
        Self(labelled(attachments))
    }
}

impl Collector for Attachments {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families {
            encoder,
            attachments: &self.0,
        };
        families.about()?;
        for metric in metrics(&self.0) {
            families.counters(metric)?;
        }
        families.bytes()?;
        families.state()
    }
}

/// The metrics of all counters, each once.
fn metrics(attachments: &[Labelled<AttachmentStatus>]) -> Vec<&'static Metric> {
    let mut metrics = Vec::new();
    for attachment in attachments {
        for (counter, _) in attachment.status.counters.iter() {
            if !metrics.contains(&counter.metric) {
                metrics.push(counter.metric);
            }
        }
    }
    metrics
}

impl Families<'_, '_, AttachmentStatus> {
    fn about(&mut self) -> fmt::Result {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        let help = "The version of the xdptun that serves these metrics.";
        self.encoder
            .encode_descriptor("xdptun_build", help, None, MetricType::Info)?
            .encode_info(&version)?;
        let help = "What is attached: the interfaces of its group, which share its tables, \
                    and which program handles what comes in.";
        self.each(
            ("xdptun_attachment", help, None),
            MetricType::Info,
            |metric, name, status| {
                metric.encode_info(&[
                    ("interface", name),
                    ("function", status.function),
                    ("group", &group(status)),
                    ("ingress", status.ingress),
                ])
            },
        )
    }

    fn counters(&mut self, wanted: &'static Metric) -> fmt::Result {
        self.by_outcome((wanted.name, wanted.help, None), |counts| {
            let counts = counts.iter();
            Box::new(counts.filter(move |(counter, _)| counter.metric == wanted))
        })
    }

    fn bytes(&mut self) -> fmt::Result {
        let help = "Bytes of packets by how they ended, link header included, with the length that \
                    they ended with; `xdptun explain OUTCOME` tells what it means.";
        self.by_outcome(("xdptun_packet", help, Some(&Unit::Bytes)), |counts| {
            Box::new(counts.bytes())
        })
    }

    /// The values of some counters, for each attachment.
    fn by_outcome(
        &mut self,
        descriptor: Descriptor<'_>,
        values: impl Fn(&Counts) -> Box<dyn Iterator<Item = (&Counter, u64)> + '_>,
    ) -> fmt::Result {
        self.each(descriptor, MetricType::Counter, |metric, name, status| {
            for (counter, value) in values(&status.counters) {
                let labels = [
                    ("interface", name),
                    ("function", status.function),
                    ("outcome", counter.name),
                ];
                metric
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, u64, f64>(&value, None)?;
            }
            Ok(())
        })
    }

    fn state(&mut self) -> fmt::Result {
        let help = "Whether the daemon of the attachment runs.";
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

    /// One number for each attachment that has it.
    fn gauge(
        &mut self,
        descriptor: Descriptor<'_>,
        value: impl Fn(&AttachmentStatus) -> Option<f64>,
    ) -> fmt::Result {
        self.each(descriptor, MetricType::Gauge, |metric, name, status| {
            let Some(value) = value(status) else {
                return Ok(());
            };
            let labels = [("interface", name), ("function", status.function)];
            metric.encode_family(&labels)?.encode_gauge(&value)
        })
    }
}
