//! Metrics for Prometheus, in the OpenMetrics text format, or in that of Prometheus for who asks for it.
//!
//! Each scrape makes them from a [`Status`] of the whole network namespace. The names of
//! counters are those of `xdptun status`, as values of the label `outcome`.

mod attachments;
mod family;
mod gateway;
mod nat64;
mod plain;
mod policy;
mod serve;
mod tunnel;

pub use serve::{PATH, bind, serve};

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use self::nat64::Nat64s;
use crate::observe::status::{AttachmentStatus, Status};
use attachments::Attachments;
use gateway::Gateways;
use policy::Policies;
use tunnel::Tunnels;

/// The content type of the text that [`render`] writes.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics for a status.
///
/// # Errors
///
/// None that depends on the data.
pub fn render(status: Status) -> Result<String, fmt::Error> {
    let tunnels = status.interfaces.iter().map(|one| &one.attachment);
    let gateways = status.gateways.iter().map(|one| &one.attachment);
    let policies = status.policies.iter().map(|one| &one.attachment);
    let nat64 = status.nat64.iter().map(|one| &one.attachment);
    let attachments = tunnels.chain(gateways).chain(policies);
    let attachments = attachments.chain(nat64).cloned();
    write(vec![
        Box::new(Attachments::of(attachments.collect())),
        Box::new(Tunnels::of(status.interfaces)),
        Box::new(Gateways::of(status.gateways)),
        Box::new(Policies::of(status.policies)),
        Box::new(Nat64s::of(status.nat64.into_iter().collect())),
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
    use std::collections::BTreeSet;
    use std::iter;
    use std::time::Duration;

    use xdptun_common::report::outcome::CounterValue;

    use super::*;
    use crate::gateway::Gateway;
    use crate::group::Function as _;
    use crate::observe::status::{GatewayStatus, InterfaceStatus, SCHEMA, by_state};
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

    /// Each of its counters has the value `count`, and so many sessions are open.
    fn gateway(name: &str, group: &[&str], attached_s: u64, count: usize) -> GatewayStatus {
        let counters = Gateway::counters().into_iter();
        let value = CounterValue {
            count: count as u64,
            bytes: 100 * count as u64,
        };
        GatewayStatus {
            attachment: AttachmentStatus {
                function: "gateway",
                group: group.iter().copied().map(str::to_owned).collect(),
                counters: counters.map(|one| (one, value)).collect(),
                ..attachment(name, 2, attached_s, 0).attachment
            },
            forwards: Vec::new(),
            nat: None,
            bindings: count,
            max_bindings: 2000,
            max_sessions: 1000,
            session_states: [("open", count)].into(),
        }
    }

    fn rendered(interfaces: Vec<InterfaceStatus>) -> String {
        rendered_both(interfaces, Vec::new())
    }

    fn rendered_both(interfaces: Vec<InterfaceStatus>, gateways: Vec<GatewayStatus>) -> String {
        render(Status {
            schema: SCHEMA,
            interfaces,
            gateways,
            policies: Vec::new(),
            nat64: None,
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
        // Each has packets and bytes.
        let disguised = text.matches("outcome=\"tx_disguised\"").count();
        assert_eq!(disguised, 2 * 2, "{text}");
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

    #[test]
    fn counters_and_sessions_of_the_gateway() {
        let group = ["eth0", "lan0"];
        let of_each = group.map(|name| gateway(name, &group, 60, 7));
        let text = rendered_both(Vec::new(), of_each.into());
        for line in [
            r#"xdptun_packets_total{interface="eth0",function="gateway",outcome="in_forwarded"} 7"#,
            r#"xdptun_sessions_total{interface="lan0",function="gateway",outcome="sessions_began"} 7"#,
            r#"xdptun_attachment_info{interface="lan0",function="gateway",group="eth0,lan0",ingress="tc"} 1"#,
            r#"xdptun_session_states{group="eth0,lan0",state="new"} 0"#,
            r#"xdptun_session_states{group="eth0,lan0",state="answered"} 0"#,
            r#"xdptun_session_states{group="eth0,lan0",state="open"} 7"#,
            r#"xdptun_session_states{group="eth0,lan0",state="closing"} 0"#,
            r#"xdptun_session_table_capacity{group="eth0,lan0"} 1000"#,
            r#"xdptun_bindings{group="eth0,lan0"} 7"#,
            r#"xdptun_binding_table_capacity{group="eth0,lan0"} 2000"#,
        ] {
            assert_holds(&text, line);
        }
    }

    #[test]
    fn of_groups_with_one_label_the_latest_counts() {
        let gateways = vec![
            gateway("eth0", &["eth0"], 60, 1),
            gateway("eth0", &["eth0"], 5, 7),
            gateway(r#"a"b"#, &[r#"a"b"#], 1, 3),
        ];
        let text = rendered_both(Vec::new(), gateways);
        for line in [
            r#"xdptun_session_states{group="eth0",state="open"} 7"#,
            r#"xdptun_session_states{group="a\"b",state="open"} 3"#,
        ] {
            assert_holds(&text, line);
        }
        let open = text.matches("state=\"open\"").count();
        assert_eq!(open, 2, "{text}");
    }

    /// A scraper refuses a family that comes twice.
    #[test]
    fn functions_on_one_interface_share_families() {
        let text = rendered_both(
            vec![attachment("eth0", 2, 60, 7)],
            vec![gateway("eth0", &["eth0"], 60, 9)],
        );
        for line in [
            r#"xdptun_packets_total{interface="eth0",function="tunnel",outcome="tx_disguised"} 7"#,
            r#"xdptun_packets_total{interface="eth0",function="gateway",outcome="in_forwarded"} 9"#,
            r#"xdptun_daemon_up{interface="eth0",function="tunnel"} 0.0"#,
            r#"xdptun_daemon_up{interface="eth0",function="gateway"} 0.0"#,
        ] {
            assert_holds(&text, line);
        }
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let names = types.map(|rest| rest.split(' ').next().unwrap());
        let mut seen = BTreeSet::new();
        for name in names {
            assert!(seen.insert(name), "{name} comes twice\n{text}");
        }
        assert!(seen.contains("xdptun_sessions") && seen.contains("xdptun_session_states"));
    }
}
