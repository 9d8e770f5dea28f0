//! The output of `xdptun status --json`.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xdptun_lab::{Host, Netns, wait, xdptun};

use crate::LIMIT;

/// Counters by name; those that are zero or did not move are left out.
pub type Counters = BTreeMap<String, u64>;

/// One flow.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// This host's end, `IP:PORT`.
    pub local: String,
    /// The other end.
    pub remote: String,
    /// `established`, ...
    pub state: String,
    /// Datagrams and payload bytes sent.
    pub tx: (u64, u64),
    /// Datagrams and payload bytes received.
    pub rx: (u64, u64),
}

/// The output of `xdptun status --json` for one interface.
pub fn interface(netns: &Netns, dev: &str) -> Result<Value> {
    attachment(netns, "interfaces", dev)
}

/// What the gateway does on an interface.
pub fn gateway(netns: &Netns, dev: &str) -> Result<Value> {
    attachment(netns, "gateways", dev)
}

/// The policy on the interface of a host.
pub fn policy(netns: &Netns) -> Result<Value> {
    attachment(netns, "policies", Host::DEV)
}

/// How often each rule of that has matched, by name.
pub fn hits(netns: &Netns) -> Result<Counters> {
    let policy = policy(netns)?;
    let rules = policy["rules"].as_array().into_iter().flatten();
    let hits = rules.map(|rule| {
        let name = rule["name"].as_str().context("a rule has no name")?;
        let hits = rule["hits"].as_u64().context("hits are no number")?;
        Ok((name.to_owned(), hits))
    });
    hits.collect()
}

/// The counters of that which are not zero.
pub fn policy_counters(netns: &Netns) -> Result<Counters> {
    nonzero(&policy(netns)?)
}

fn attachment(netns: &Netns, list: &str, dev: &str) -> Result<Value> {
    let status = xdptun::status(netns)?;
    let mut found = status[list].as_array().into_iter().flatten();
    let attachment = found.find(|one| one["name"] == dev);
    let attachment = attachment.with_context(|| format!("nothing is attached: {status}"))?;
    Ok(attachment.clone())
}

/// All counters of a host that are not zero.
pub fn counters(netns: &Netns) -> Result<Counters> {
    counters_on(netns, Host::DEV)
}

/// All counters of one interface that are not zero.
pub fn counters_on(netns: &Netns, dev: &str) -> Result<Counters> {
    nonzero(&interface(netns, dev)?)
}

/// The counters of an attachment that are not zero.
fn nonzero(attachment: &Value) -> Result<Counters> {
    let counters = attachment["counters"].as_object();
    let counters = counters.context("no counters")?.iter();
    let mut all = Counters::new();
    for (name, value) in counters {
        let value = value.as_u64().context("a counter is no number")?;
        if value > 0 {
            all.insert(name.clone(), value);
        }
    }
    Ok(all)
}

/// The counters of several interfaces, added up.
pub fn counters_of(netns: &Netns, devs: &[&str]) -> Result<Counters> {
    let mut sum = Counters::new();
    for dev in devs {
        for (name, value) in counters_on(netns, dev)? {
            *sum.entry(name).or_default() += value;
        }
    }
    Ok(sum)
}

/// The interfaces of the group of an interface, as its entry names them.
pub fn group(netns: &Netns, dev: &str) -> Result<Vec<String>> {
    let interface = interface(netns, dev)?;
    let group = interface["group"].as_array();
    let group = group.with_context(|| format!("{dev} has no `group`: {interface}"))?;
    let name = |name: &Value| Some(name.as_str()?.to_owned());
    let names: Option<Vec<String>> = group.iter().map(name).collect();
    names.with_context(|| format!("a name in `group` is no text: {interface}"))
}

/// The counters that changed between two readings.
pub fn moved(before: &Counters, after: &Counters) -> Counters {
    let growth = after.iter().map(|(name, value)| {
        let before = before.get(name).copied().unwrap_or(0);
        (name.clone(), value - before)
    });
    growth.filter(|(_, growth)| *growth > 0).collect()
}

/// The counters without those that timers move, as they depend on the machine's speed:
/// acknowledgements on their own, probes about a datagram that none of them answered, and which
/// restored datagrams come fast enough for GRO.
/// A datagram within the same tick of the clock as the one it answers is not asked after.
pub fn apart_from_timed(mut counters: Counters) -> Counters {
    let timed = ["sent_ack", "sent_probe", "tx_requested", "rx_ack"];
    counters.retain(|name, _| !timed.contains(&name.as_str()) && !name.starts_with("rx_gro_"));
    counters
}

/// Counters from literals; zeros are left out.
pub fn expected(counters: &[(&str, u64)]) -> Counters {
    let counters = counters.iter().filter(|(_, value)| *value > 0);
    counters
        .map(|(name, value)| ((*name).to_owned(), *value))
        .collect()
}

/// Checks that as many datagrams passed each way since then as `count` tells, and
/// that nothing else was counted but what timers move.
///
/// # Panics
///
/// If it is not so.
pub fn assert_carried(hosts: [&Host; 2], before: &[Counters; 2], count: u64, context: &str) {
    let expected = expected(&[("tx_disguised", count), ("rx_restored", count)]);
    for (host, before) in hosts.iter().zip(before) {
        let moved = moved(before, &counters(&host.netns).unwrap());
        assert_eq!(apart_from_timed(moved), expected, "{context}");
    }
}

/// Waits until exactly these counters moved since `before`.
pub fn wait_moved(netns: &Netns, before: &Counters, counters: &[(&str, u64)]) -> Result<()> {
    wait_moved_among(netns, before, counters, |moved| moved)
}

/// The same, whatever timers moved.
pub fn wait_moved_apart_from_timed(
    netns: &Netns,
    before: &Counters,
    counters: &[(&str, u64)],
) -> Result<()> {
    wait_moved_among(netns, before, counters, apart_from_timed)
}

fn wait_moved_among(
    netns: &Netns,
    before: &Counters,
    counters: &[(&str, u64)],
    among: fn(Counters) -> Counters,
) -> Result<()> {
    let expected = expected(counters);
    let mut last = Counters::new();
    let reached = wait::until_some(LIMIT, "the counters", || {
        last = among(moved(before, &self::counters(netns)?));
        Ok((last == expected).then_some(()))
    });
    ensure!(
        reached.is_ok(),
        "counters of {} moved by\n    {last:?} instead of\n    {expected:?}",
        netns.name()
    );
    Ok(())
}

/// One counter of a host.
pub fn counter(netns: &Netns, name: &str) -> Result<u64> {
    counter_on(netns, Host::DEV, name)
}

/// One counter of an interface.
pub fn counter_on(netns: &Netns, dev: &str, name: &str) -> Result<u64> {
    let interface = interface(netns, dev)?;
    let value = interface["counters"][name].as_u64();
    value.with_context(|| format!("there is no counter {name}"))
}

/// All flows of a host, in the order of the table.
pub fn flows(netns: &Netns) -> Result<Vec<Flow>> {
    flows_on(netns, Host::DEV)
}

/// The flows of an interface, in the order of the table.
pub fn flows_on(netns: &Netns, dev: &str) -> Result<Vec<Flow>> {
    let interface = interface(netns, dev)?;
    let flows = interface["flows"].as_array().context("no flows")?.iter();
    flows.map(flow).collect()
}

fn flow(flow: &Value) -> Result<Flow> {
    let text = |name: &str| -> Result<String> {
        let text = flow[name].as_str();
        let text = text.with_context(|| format!("a flow has no {name}: {flow}"))?;
        Ok(text.to_owned())
    };
    let number = |name: &str| {
        let number = flow[name].as_u64();
        number.with_context(|| format!("a flow has no {name}: {flow}"))
    };
    Ok(Flow {
        local: text("local")?,
        remote: text("remote")?,
        state: text("state")?,
        tx: (number("tx_packets")?, number("tx_bytes")?),
        rx: (number("rx_packets")?, number("rx_bytes")?),
    })
}

/// The flows of several interfaces.
pub fn flows_of(netns: &Netns, devs: &[&str]) -> Result<Vec<Flow>> {
    let each: Result<Vec<_>> = devs.iter().map(|dev| flows_on(netns, dev)).collect();
    Ok(each?.concat())
}

/// The states of all flows of a host that are not closed.
pub fn open_states(netns: &Netns) -> Result<Vec<String>> {
    let states = flows(netns)?.into_iter().map(|flow| flow.state);
    Ok(states.filter(|state| state != "closed").collect())
}

/// Waits until every open flow of a host is in `state`, and there are `count`.
pub fn wait_states(netns: &Netns, state: &str, count: usize) -> Result<()> {
    let what = format!("{count} flows in state {state} on {}", netns.name());
    let mut last = Vec::new();
    let reached = wait::until_some(LIMIT, &what, || {
        last = open_states(netns)?;
        let reached = last.len() == count && last.iter().all(|found| found == state);
        Ok(reached.then_some(()))
    });
    reached.with_context(|| format!("they are {last:?}"))
}
