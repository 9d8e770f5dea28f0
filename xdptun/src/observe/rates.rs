//! Rates: the difference between two readings of the attachments, per second.

pub(super) mod carried;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use xdptun_common::tunnel::outcome::Outcome;

use crate::host::clock::as_seconds;
use crate::observe::policy::PolicyRates;
use crate::observe::status::{
    AttachmentStatus, FlowStatus, GatewayStatus, InterfaceStatus, SCHEMA, Status,
};
use carried::{Carried, growth, per_second};

pub use carried::Traffic;

/// How many flows are listed: those that carried most.
pub const BUSIEST: usize = 10;

/// The rates of an interval, as `xdptun watch --json` prints them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The interval; `interval_s`, seconds, in JSON.
    #[serde(rename = "interval_s", serialize_with = "as_seconds")]
    pub interval: Duration,
    /// The attachments at its end, by interface index.
    pub interfaces: Vec<InterfaceRates>,
    /// Those of the gateway; left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<GatewayRates>,
    /// Those of the policy; left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyRates>,
    /// That of NAT64; left out if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nat64: Option<Nat64Rates>,
}

/// The packets of a function on one interface that keeps no count of flows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Packets {
    /// The function, such as `gateway`.
    pub function: &'static str,
    /// The interface's name.
    pub name: String,
    /// Its index.
    pub ifindex: u32,
    /// Packets per second by counter; those that moved, without dropped ones.
    pub packets_per_s: BTreeMap<&'static str, f64>,
    /// The counters of dropped and lost packets that moved.
    pub drops: BTreeMap<&'static str, Drops>,
}

/// The rates of NAT64.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Nat64Rates {
    /// Its packets.
    #[serde(flatten)]
    pub packets: Packets,
    /// How many clients are in each state at the end of the interval.
    pub client_states: BTreeMap<&'static str, usize>,
}

/// The rates of the gateway on one interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GatewayRates {
    /// Its packets.
    #[serde(flatten)]
    pub packets: Packets,
    /// How many sessions of the group are in each state at the end of the interval.
    pub session_states: BTreeMap<&'static str, usize>,
    /// How many ends of inside hosts are bound at the end of the interval, in the group.
    pub bindings: usize,
}

/// The rates of one attachment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InterfaceRates {
    /// The function, such as `tunnel`.
    pub function: &'static str,
    /// The interface's name.
    pub name: String,
    /// Its index.
    pub ifindex: u32,
    /// What it carried.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// How many flows are in each state at the end of the interval.
    pub flow_states: BTreeMap<&'static str, usize>,
    /// The counters of dropped and lost packets that moved.
    pub drops: BTreeMap<&'static str, Drops>,
    /// The flows that carried most, of those that carried anything.
    pub busiest: Vec<FlowRates>,
}

/// One reason to drop packets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Drops {
    /// Packets per second.
    pub per_s: f64,
    /// Packets since it was attached.
    pub total: u64,
}

/// The rates of one flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowRates {
    /// The flow at the end of the interval.
    #[serde(flatten)]
    pub flow: FlowStatus,
    /// What it carried.
    #[serde(flatten)]
    pub traffic: Traffic,
}

impl Rates {
    /// The rates between two readings that lie `interval` apart. A flow or attachment that
    /// came meanwhile began at zero, and so did a counter that is smaller than before. Those
    /// that are gone are left out.
    #[must_use]
    pub fn between(before: &Status, after: &Status, interval: Duration) -> Self {
        let interfaces = after
            .interfaces
            .iter()
            .map(|now| interface_rates(before, same(&before.interfaces, now), now, interval));
        let gateways = after
            .gateways
            .iter()
            .map(|now| gateway_rates(same(&before.gateways, now), now, interval));
        let policies = after
            .policies
            .iter()
            .map(|now| PolicyRates::between(same(&before.policies, now), now, interval));
        let nat64 = after.nat64.as_ref().map(|now| Nat64Rates {
            packets: packet_rates(same(before.nat64.as_slice(), now), now, interval),
            client_states: now.client_states.clone(),
        });
        Self {
            schema: SCHEMA,
            interval,
            interfaces: interfaces.collect(),
            gateways: gateways.collect(),
            policies: policies.collect(),
            nat64,
        }
    }
}

/// The reading before of the same attachment. An interface that was made anew keeps its name and
/// counters.
fn same<'a, S: AsRef<AttachmentStatus>>(before: &'a [S], now: &S) -> Option<&'a S> {
    let now = now.as_ref();
    let mut candidates = before.iter();
    candidates
        .clone()
        .find(|then| then.as_ref().ifindex == now.ifindex)
        .or_else(|| candidates.find(|then| then.as_ref().name == now.name))
}

fn gateway_rates(
    then: Option<&GatewayStatus>,
    now: &GatewayStatus,
    interval: Duration,
) -> GatewayRates {
    GatewayRates {
        packets: packet_rates(then, now, interval),
        session_states: now.session_states.clone(),
        bindings: now.bindings,
    }
}

fn packet_rates<S: AsRef<AttachmentStatus>>(
    then: Option<&S>,
    now: &S,
    interval: Duration,
) -> Packets {
    let attachment = now.as_ref();
    Packets {
        function: attachment.function,
        name: attachment.name.clone(),
        ifindex: attachment.ifindex,
        packets_per_s: passed(then, now, interval),
        drops: drops(then, now, interval),
    }
}

fn interface_rates(
    before: &Status,
    then: Option<&InterfaceStatus>,
    now: &InterfaceStatus,
    interval: Duration,
) -> InterfaceRates {
    let moved = |name| moved(then, now, name);
    let mut carried = carried_flows(before, then, now);
    let bytes = |bytes: fn(&Carried) -> u64| carried.iter().map(|(_, flow)| bytes(flow)).sum();
    let total = Carried {
        tx_packets: moved(Outcome::TxDisguised.name()) + moved(Outcome::TxFragment.name()),
        tx_bytes: bytes(|flow| flow.tx_bytes),
        rx_packets: moved(Outcome::RxRestored.name()) + moved(Outcome::RxFragment.name()),
        rx_bytes: bytes(|flow| flow.rx_bytes),
    };
    carried.sort_by_key(|(flow, carried)| {
        let bytes = carried.tx_bytes + carried.rx_bytes;
        (Reverse(bytes), flow.remote, flow.local)
    });
    let busiest = carried.into_iter().take(BUSIEST);
    InterfaceRates {
        function: now.attachment.function,
        name: now.attachment.name.clone(),
        ifindex: now.attachment.ifindex,
        traffic: total.over(interval),
        flow_states: now.flow_states.clone(),
        drops: drops(then, now, interval),
        busiest: busiest
            .map(|(flow, carried)| FlowRates {
                flow: flow.clone(),
                traffic: carried.over(interval),
            })
            .collect(),
    }
}

/// The rates of the counters that moved, without those of dropped packets.
pub(super) fn passed<S: AsRef<AttachmentStatus>>(
    then: Option<&S>,
    now: &S,
    interval: Duration,
) -> BTreeMap<&'static str, f64> {
    let counters = now.as_ref().counters.iter();
    let packets = counters.filter_map(|(counter, _)| {
        let moved = moved(then, now, counter.name);
        let rate = (counter.name, per_second(moved, interval));
        (!counter.end.is_loss() && moved > 0).then_some(rate)
    });
    packets.collect()
}

/// How far a counter of an attachment moved.
fn moved<S: AsRef<AttachmentStatus>>(then: Option<&S>, now: &S, name: &str) -> u64 {
    let counter = |one: &S| one.as_ref().counters.get(name);
    growth(then.and_then(counter), counter(now).unwrap_or_default())
}

/// The flows of an interface that carried anything, and what.
fn carried_flows<'a>(
    before: &Status,
    then: Option<&InterfaceStatus>,
    now: &'a InterfaceStatus,
) -> Vec<(&'a FlowStatus, Carried)> {
    // A flow may have been at another interface of the group; what this one had comes last.
    let all = before.interfaces.iter().chain(then);
    let known: HashMap<(SocketAddr, SocketAddr), &FlowStatus> = all
        .flat_map(|then| &then.flows)
        .map(|flow| ((flow.local, flow.remote), flow))
        .collect();
    let carried = now.flows.iter().map(|flow| {
        let before = known.get(&(flow.local, flow.remote)).copied();
        (flow, Carried::between(before, flow))
    });
    carried
        .filter(|(_, carried)| *carried != Carried::default())
        .collect()
}

/// The counters of dropped and lost packets that moved.
pub(super) fn drops<S: AsRef<AttachmentStatus>>(
    then: Option<&S>,
    now: &S,
    interval: Duration,
) -> BTreeMap<&'static str, Drops> {
    let counters = now.as_ref().counters.iter();
    let drops = counters.filter_map(|(counter, total)| {
        let moved = moved(then, now, counter.name);
        let drops = Drops {
            per_s: per_second(moved, interval),
            total,
        };
        (counter.end.is_loss() && moved > 0).then_some((counter.name, drops))
    });
    drops.collect()
}

#[cfg(test)]
mod tests {
    use std::slice;

    use xdptun_common::tunnel::state::State;

    use super::*;
    use crate::observe::status::by_state;
    use crate::tunnel::counters::with_values;

    const INTERVAL: Duration = Duration::from_secs(2);

    /// A flow that sent some packets of 100 bytes and received none.
    fn flow(remote: &str, tx_packets: u64) -> FlowStatus {
        FlowStatus {
            local: "10.0.0.1:8000".parse().unwrap(),
            remote: remote.parse().unwrap(),
            state: State::Established,
            tx_packets,
            tx_bytes: tx_packets * 100,
            rx_packets: 0,
            rx_bytes: 0,
            age: Duration::from_secs(60),
            idle: Duration::ZERO,
        }
    }

    fn interface(ifindex: u32, counters: &[(&str, u64)], flows: &[FlowStatus]) -> InterfaceStatus {
        InterfaceStatus {
            attachment: AttachmentStatus {
                function: "tunnel",
                name: "eth0".to_owned(),
                ifindex,
                group: vec!["eth0".to_owned()],
                mtu: Some(1500),
                ingress: "tc",
                hooks: Vec::new(),
                daemon: None,
                attached: Duration::from_secs(60),
                counters: with_values(counters),
            },
            ports: Vec::new(),
            peers: Vec::new(),
            secret: false,
            wireguard_mtu: None,
            max_flows: 65536,
            flow_states: by_state(flows.iter().map(|flow| flow.state)),
            flows: flows.to_vec(),
        }
    }

    fn rates(before: &[InterfaceStatus], after: &[InterfaceStatus]) -> Vec<InterfaceRates> {
        let status = |interfaces: &[InterfaceStatus]| Status {
            gateways: Vec::new(),
            policies: Vec::new(),
            nat64: None,
            schema: SCHEMA,
            interfaces: interfaces.to_vec(),
            service: None,
        };
        Rates::between(&status(before), &status(after), INTERVAL).interfaces
    }

    fn sent(packets_per_s: f64) -> Traffic {
        Traffic {
            tx_packets_per_s: packets_per_s,
            tx_bits_per_s: packets_per_s * 800.0,
            ..Traffic::default()
        }
    }

    #[test]
    fn a_steady_flow() {
        let before = interface(2, &[("tx_disguised", 10)], &[flow("10.0.0.2:8000", 10)]);
        let after = interface(2, &[("tx_disguised", 16)], &[flow("10.0.0.2:8000", 16)]);
        let rates = rates(&[before], &[after]);
        assert_eq!(rates[0].traffic, sent(3.0));
        assert_eq!(rates[0].busiest.len(), 1);
        assert_eq!(rates[0].busiest[0].traffic, sent(3.0));
        assert_eq!(rates[0].flow_states["established"], 1);
        assert_eq!(rates[0].flow_states["closed"], 0);
        assert!(rates[0].drops.is_empty());
    }

    /// Both ways are told apart.
    #[test]
    fn what_came_in() {
        let mut came = flow("10.0.0.2:8000", 0);
        (came.rx_packets, came.rx_bytes) = (4, 40);
        let before = interface(2, &[("rx_restored", 0)], &[]);
        let after = interface(2, &[("rx_restored", 4)], &[came]);
        let expected = Traffic {
            rx_packets_per_s: 2.0,
            rx_bits_per_s: 160.0,
            ..Traffic::default()
        };
        assert_eq!(rates(&[before], &[after])[0].traffic, expected);
    }

    /// A second attachment to the same interface began at zero.
    #[test]
    fn a_counter_that_began_anew() {
        let before = interface(2, &[("tx_disguised", 10)], &[flow("10.0.0.2:8000", 10)]);
        let after = interface(2, &[("tx_disguised", 4)], &[flow("10.0.0.2:8000", 4)]);
        let rates = rates(&[before], &[after]);
        assert_eq!(rates[0].traffic, sent(2.0));
    }

    #[test]
    fn a_flow_that_came_and_one_that_went() {
        let before = interface(2, &[("tx_disguised", 10)], &[flow("10.0.0.2:8000", 10)]);
        let after = interface(2, &[("tx_disguised", 18)], &[flow("10.0.0.3:8000", 6)]);
        let rates = rates(&[before], &[after]);
        // Two datagrams are the last of the flow that went.
        assert_eq!(rates[0].traffic.tx_packets_per_s, 4.0);
        assert_eq!(rates[0].traffic.tx_bits_per_s, 3.0 * 800.0);
        let busiest = &rates[0].busiest;
        assert_eq!(busiest.len(), 1);
        assert_eq!(busiest[0].flow.remote, "10.0.0.3:8000".parse().unwrap());
        assert_eq!(busiest[0].traffic, sent(3.0));
    }

    #[test]
    fn an_interface_that_came_and_one_that_went() {
        let old = interface(2, &[("tx_disguised", 10)], &[]);
        assert_eq!(rates(slice::from_ref(&old), &[]), []);
        let mut new = interface(3, &[("tx_disguised", 6)], &[]);
        new.attachment.name = "eth1".to_owned();
        let rates = rates(&[old], &[new]);
        assert_eq!(rates.len(), 1);
        assert_eq!(rates[0].traffic.tx_packets_per_s, 3.0);
    }

    /// The daemon followed: the counters went on.
    #[test]
    fn an_interface_that_was_made_anew() {
        let before = interface(2, &[("tx_disguised", 10)], &[flow("10.0.0.2:8000", 10)]);
        let after = interface(7, &[("tx_disguised", 12)], &[flow("10.0.0.2:8000", 12)]);
        assert_eq!(rates(&[before], &[after])[0].traffic, sent(1.0));
    }

    #[test]
    fn drops_that_moved_with_their_totals() {
        let counters = [
            ("rx_drop_no_flow", 5),
            ("rx_drop_reset", 5),
            ("rx_syn", 5),
            ("tx_lost_in_queue", 5),
        ];
        let before = interface(2, &counters, &[]);
        let counters = [
            ("rx_drop_no_flow", 8),
            ("rx_drop_reset", 5),
            ("rx_syn", 9),
            ("tx_lost_in_queue", 6),
        ];
        let after = interface(2, &counters, &[]);
        let drops = |per_s, total| Drops { per_s, total };
        let expected = [
            ("rx_drop_no_flow", drops(1.5, 8)),
            ("tx_lost_in_queue", drops(0.5, 6)),
        ];
        assert_eq!(rates(&[before], &[after])[0].drops, expected.into());
    }

    #[test]
    fn the_busiest_come_first_and_idle_ones_not_at_all() {
        let remote = |number: usize| format!("10.0.1.{number}:8000");
        let flows = |sent: fn(usize) -> u64| -> Vec<FlowStatus> {
            let numbers = 0..=BUSIEST + 1;
            numbers
                .map(|number| flow(&remote(number), sent(number)))
                .collect()
        };
        let before = interface(2, &[], &flows(|_| 100));
        let after = interface(2, &[], &flows(|number| 100 + number as u64));
        let shown = |rates: &[InterfaceRates]| -> Vec<String> {
            let busiest = rates[0].busiest.iter();
            busiest.map(|busy| busy.flow.remote.to_string()).collect()
        };
        let expected: Vec<String> = (2..=BUSIEST + 1).rev().map(remote).collect();
        assert_eq!(shown(&rates(slice::from_ref(&before), &[after])), expected);
        assert_eq!(
            shown(&rates(slice::from_ref(&before), slice::from_ref(&before))),
            [""; 0]
        );
    }
}
