//! What the gateway counts of a download, and has to count.

use std::collections::BTreeMap;

use anyhow::Result;
use xdptun_lab::{Netns, Served, xdptun};
use xdptun_test_wg::forwarding::{Form, Source};
use xdptun_test_wg::{Crossing, Forwarding, Gateway};

/// The counters of each attachment; those that are zero are left out.
pub type Counted = BTreeMap<Attachment, Counters>;

/// A function, and the interface that it is attached to.
type Attachment = (String, String);

/// By name.
type Counters = BTreeMap<String, u64>;

/// Counters that move as timers have it, and so depend on the machine's speed: acknowledgements
/// and probes, and a SYN that is repeated.
const TIMED: [&str; 7] = [
    "sent_ack",
    "sent_probe",
    "tx_requested",
    "rx_ack",
    "sent_syn",
    "rx_syn",
    "sent_syn_ack",
];

/// What is counted now, apart from [`TIMED`].
pub fn counted(netns: &Netns) -> Result<Counted> {
    let status = xdptun::status(netns)?;
    let lists = ["interfaces", "gateways"].map(|list| status[list].as_array());
    let attached = lists.into_iter().flatten().flatten();
    let counted = attached.map(|attached| {
        let text = |name: &str| attached[name].as_str().unwrap_or_default().to_owned();
        let counters = attached["counters"].as_object().into_iter().flatten();
        let counters = counters.map(|(name, value)| (name.clone(), value.as_u64().unwrap_or(0)));
        let counters = counters.filter(|(name, value)| *value > 0 && !TIMED.contains(&&**name));
        ((text("function"), text("name")), counters.collect())
    });
    Ok(counted.collect())
}

/// What has to be counted when that has crossed the wires.
pub fn expected(forwarding: &Forwarding, crossed: &[Crossing; 2]) -> Counted {
    let mut all = forwarded(forwarding.source, crossed);
    for (at, dev) in Gateway::DEVS.into_iter().enumerate() {
        if forwarding.wires[at] == Form::Disguised {
            all.extend([carried(dev, &crossed[at])]);
        }
    }
    all
}

/// One session, with a half for each interface if it is masqueraded.
fn forwarded(source: Source, [wan, lan]: &[Crossing; 2]) -> Counted {
    let mut all = Counted::from([named(
        ["gateway", Served::WAN],
        &[
            ("in_forwarded", wan.received),
            ("out_returned", wan.sent),
            ("sessions_began", 1),
            ("sessions_proven", 1),
        ],
    )]);
    if source == Source::Masquerade {
        let half = [
            ("out_masqueraded", lan.sent),
            ("in_returned", lan.received),
            ("sessions_proven", 1),
        ];
        all.extend([named(["gateway", Served::LAN], &half)]);
    }
    all
}

/// One flow. The client opens the one that it has; the gateway opens the one to the server.
fn carried(dev: &str, crossing: &Crossing) -> (Attachment, Counters) {
    let mut counters = vec![
        ("tx_disguised", crossing.sent),
        ("rx_restored", crossing.received),
    ];
    if dev == Served::LAN {
        counters.extend([("tx_opened", 1), ("rx_syn_ack", 1)]);
    }
    named(["tunnel", dev], &counters)
}

/// What a function has to count on an interface.
fn named([function, dev]: [&str; 2], counters: &[(&str, u64)]) -> (Attachment, Counters) {
    let counters = counters
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value));
    ((function.to_owned(), dev.to_owned()), counters.collect())
}

/// The states of all flows of a host.
pub fn flow_states(netns: &Netns) -> Result<Vec<String>> {
    let status = xdptun::status(netns)?;
    let attached = status["interfaces"].as_array().into_iter().flatten();
    let flows = attached.filter_map(|one| one["flows"].as_array()).flatten();
    let states = flows.map(|flow| flow["state"].as_str().unwrap_or_default().to_owned());
    Ok(states.collect())
}
