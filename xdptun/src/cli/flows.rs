//! `xdptun flows`: the flows alone, filtered and sorted.

use std::cmp::Ordering;
use std::io;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::output::output;
use super::peers::{PeerFilter, PeerOption};
use super::report::{FlowRow, flow_table, print_json, say_if_no_tunnel};
use crate::observe::status::{FlowStatus, Status};

/// Show the flows in this network namespace.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Show only flows of this interface.
    #[arg(long, short, value_name = "NAME")]
    iface: Option<String>,

    #[command(flatten)]
    peers: PeerOption,

    /// What to sort by; the largest number comes first.
    #[arg(long, value_enum, default_value = "remote")]
    sort: Order,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  xdptun flows --iface eth0 --peer 203.0.113.0/24
  xdptun flows --sort received
  xdptun flows --json | jq '.interfaces[].flows[].remote'";

#[derive(Clone, Copy, ValueEnum)]
enum Order {
    /// The remote end, then the local one.
    Remote,
    /// Bytes sent.
    Sent,
    /// Bytes received.
    Received,
    /// Time since the flow was opened.
    Age,
    /// Time since the last datagram.
    Idle,
    /// The state, from closed to fin-sent.
    State,
}

impl Order {
    /// Flows that compare equal are sorted by their ends.
    fn compare(self, a: &FlowStatus, b: &FlowStatus) -> Ordering {
        let order = match self {
            Self::Remote => Ordering::Equal,
            Self::Sent => b.tx_bytes.cmp(&a.tx_bytes),
            Self::Received => b.rx_bytes.cmp(&a.rx_bytes),
            Self::Age => b.age.cmp(&a.age),
            Self::Idle => b.idle.cmp(&a.idle),
            Self::State => (a.state as u32).cmp(&(b.state as u32)),
        };
        order.then_with(|| (a.remote, a.local).cmp(&(b.remote, b.local)))
    }
}

#[derive(Serialize)]
struct Flows {
    schema: u32,
    interfaces: Vec<InterfaceFlows>,
}

#[derive(Serialize)]
struct InterfaceFlows {
    function: &'static str,
    name: String,
    ifindex: u32,
    flows: Vec<FlowStatus>,
}

/// Runs the verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut status = Status::read()?;
    if let Some(name) = &arguments.iface {
        status = status.of(name)?;
    }
    let mut out = output();
    let columns = out.columns();
    if !arguments.json {
        say_if_no_tunnel(&mut out, &status)?;
    }
    let flows = select(status, arguments.peers.look_up()?.as_ref(), arguments.sort);
    if arguments.json {
        return print_json(&flows);
    }
    for interface in &flows.interfaces {
        print(&mut out, columns, interface)?;
    }
    Ok(())
}

fn select(status: Status, peers: Option<&PeerFilter>, sort: Order) -> Flows {
    let interfaces = status.interfaces.into_iter().map(|interface| {
        let mut flows = interface.flows;
        flows.retain(|flow| peers.is_none_or(|peers| peers.has(flow.remote.ip())));
        flows.sort_by(|a, b| sort.compare(a, b));
        InterfaceFlows {
            function: interface.attachment.function,
            name: interface.attachment.name,
            ifindex: interface.attachment.ifindex,
            flows,
        }
    });
    Flows {
        schema: status.schema,
        interfaces: interfaces.collect(),
    }
}

fn print(
    out: &mut impl io::Write,
    columns: Option<usize>,
    interface: &InterfaceFlows,
) -> Result<()> {
    let InterfaceFlows { name, flows, .. } = interface;
    if flows.is_empty() {
        writeln!(out, "{name}: no flows")?;
        return Ok(());
    }
    let plural = if flows.len() == 1 { "" } else { "s" };
    writeln!(out, "{name}: {} flow{plural}", flows.len())?;
    let rows: Vec<_> = flows.iter().map(FlowRow::total).collect();
    writeln!(out, "{}", flow_table(columns, &rows))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use xdptun_common::tunnel::state::State;

    use super::*;

    /// Each order has a sequence of its own, so that none can stand for another.
    #[test]
    fn every_order() {
        let flow = |remote: &str, state, [sent, received, age, idle]: [u64; 4]| FlowStatus {
            local: "10.0.0.1:8000".parse().unwrap(),
            remote: remote.parse().unwrap(),
            state,
            tx_packets: 1,
            tx_bytes: sent,
            rx_packets: 1,
            rx_bytes: received,
            age: Duration::from_secs(age),
            idle: Duration::from_secs(idle),
        };
        let flows = [
            flow("10.0.0.2:1", State::Established, [3, 3, 1, 0]),
            flow("10.0.0.10:1", State::SynSent, [4, 2, 2, 4]),
            flow("[fd00::2]:1", State::Closed, [2, 4, 3, 3]),
            flow("10.0.0.2:2", State::FinSent, [1, 1, 4, 2]),
        ];
        for (order, expected) in [
            (Order::Remote, [0, 3, 1, 2]),
            (Order::Sent, [1, 0, 2, 3]),
            (Order::Received, [2, 0, 1, 3]),
            (Order::Age, [3, 2, 1, 0]),
            (Order::Idle, [1, 2, 3, 0]),
            (Order::State, [2, 1, 0, 3]),
        ] {
            let mut sorted = flows.to_vec();
            sorted.sort_by(|a, b| order.compare(a, b));
            assert_eq!(sorted, expected.map(|index: usize| flows[index].clone()));
        }
    }
}
