//! Metrics for Prometheus, in the OpenMetrics text format.
//!
//! Each scrape makes them from a [`Status`] of the whole network namespace. The names of
//! counters are those of `xdptun status`, as values of the label `outcome`.

mod attachments;
mod family;
mod serve;
mod tunnel;

pub use serve::{PATH, bind, serve};

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use crate::observe::status::{AttachmentStatus, Status};
use attachments::Attachments;
use tunnel::Tunnels;

/// The content type of the text that [`render`] writes.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics for a status.
///
/// # Errors
///
/// None that depends on the data.
pub fn render(status: Status) -> Result<String, fmt::Error> {
    let attachments = status.interfaces.iter().map(|one| one.attachment.clone());
    write(vec![
        Box::new(Attachments::of(attachments.collect())),
        Box::new(Tunnels::of(status.interfaces)),
    ])
}

/// The metrics that any function has, for attachments of any.
///
/// # Errors
///
/// None that depends on the data.
pub fn render_attachments(attachments: Vec<AttachmentStatus>) -> Result<String, fmt::Error> {
    write(vec![Box::new(Attachments::of(attachments))])
}

fn write(collectors: Vec<Box<dyn Collector>>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    for collector in collectors {
        registry.register_collector(collector);
    }
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::time::Duration;

    use super::*;
    use crate::observe::status::{InterfaceStatus, SCHEMA, by_state};
    use crate::tunnel::counters::with_values;

    fn attachment(name: &str, ifindex: u32, attached_s: u64, disguised: u64) -> InterfaceStatus {
        InterfaceStatus {
            attachment: AttachmentStatus {
                function: "tunnel",
                name: name.to_owned(),
                ifindex,
                group: vec![name.to_owned()],
                mtu: (disguised != 0).then_some(1500),
                ingress: "tc",
                hooks: Vec::new(),
                daemon: None,
                attached: Duration::from_secs(attached_s),
                counters: with_values(&[("tx_disguised", disguised)]),
            },
            ports: vec!["443".parse().unwrap(), "8000-8010".parse().unwrap()],
            peers: Vec::new(),
            secret: false,
            wireguard_mtu: None,
            max_flows: 65536,
            flow_states: by_state(iter::empty()),
            flows: Vec::new(),
        }
    }

    fn rendered(interfaces: Vec<InterfaceStatus>) -> String {
        render(Status {
            gateways: Vec::new(),
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
        let mut attachment = attachment("eth0", 2, 60, 7);
        attachment.attachment.group.push("eth1".to_owned());
        let text = rendered(vec![attachment]);
        for line in [
            r#"xdptun_packets_total{interface="eth0",function="tunnel",outcome="tx_disguised"} 7"#,
            r#"xdptun_attachment_info{interface="eth0",function="tunnel",group="eth0,eth1",ingress="tc"} 1"#,
            r#"xdptun_tunnel_info{interface="eth0",ports="443,8000-8010"} 1"#,
            r#"xdptun_interface_mtu_bytes{interface="eth0",function="tunnel"} 1500.0"#,
            r#"xdptun_daemon_up{interface="eth0",function="tunnel"} 0.0"#,
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
        let line =
            r#"xdptun_packets_total{interface="eth0",function="tunnel",outcome="tx_disguised"} 7"#;
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
        let line = r#"xdptun_daemon_up{interface="a\"b\\c",function="tunnel"} 0.0"#;
        assert_holds(&text, line);
        assert!(text.contains(r#",group="a\"b\\c","#), "{text}");
    }
}
