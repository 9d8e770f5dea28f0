//! What the tunnel carries.

use std::io::Write;

use anyhow::Result;
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::state::State;

use super::{Words, print_attachment, print_counters};
use crate::cli::report::{FlowRow, flow_table, join, join_some};
use crate::host::mtu::cost_of_fragments;
use crate::observe::status::{FlowStatus, InterfaceStatus};

/// How many flows of an interface are shown.
const MOST_FLOWS: usize = 20;

/// Prints an attachment of the tunnel, perhaps with the flows of some peers only.
pub fn print(
    out: &mut impl Write,
    columns: Option<usize>,
    interface: &InterfaceStatus,
    of_some_peers: bool,
) -> Result<()> {
    let attachment = &interface.attachment;
    writeln!(
        out,
        "{}  ports {}  ingress {}",
        attachment.name,
        join(&interface.ports),
        attachment.ingress
    )?;
    let no_daemon = format!(
        "open flows go on, a new flow loses its first datagrams; `xdptun attach --iface {} ...` or \
         `xdptun run` starts a daemon",
        attachment.group.join(",")
    );
    let words = Words {
        shared: Some("flows"),
        // Of one that is gone, another line says so.
        no_hooks: attachment.mtu.map(|_| "datagrams leave as UDP"),
        no_daemon: &no_daemon,
    };
    print_attachment(out, attachment, &words)?;
    if !interface.peers.is_empty() {
        writeln!(out, "  peers  {}", join_some(&interface.peers))?;
    }
    if interface.secret {
        writeln!(out, "  secret callers must know it")?;
    }
    match (attachment.mtu, interface.wireguard_mtu) {
        (Some(mtu), Some(wireguard)) => writeln!(
            out,
            "  MTU    {mtu}; for WireGuard inside {} over IPv4, {} over IPv6",
            wireguard.v4, wireguard.v6
        )?,
        _ => writeln!(
            out,
            "  the interface is gone; {}",
            match attachment.daemon {
                Some(_) => "the daemon attaches to it when it comes back".to_owned(),
                None => format!("`xdptun detach --iface {}` cleans up", attachment.name),
            }
        )?,
    }
    print_cost_of_fragments(out, interface)?;
    print_states(out, interface)?;
    print_counters(out, attachment)?;
    if of_some_peers && interface.flows.is_empty() {
        writeln!(out, "  no flow with those peers")?;
    }
    print_flows(out, columns, &interface.flows)
}

/// Prints what fragments cost, if datagrams left in some.
fn print_cost_of_fragments(out: &mut impl Write, interface: &InterfaceStatus) -> Result<()> {
    let attachment = &interface.attachment;
    let fragments = attachment.counters.get(Outcome::TxFragment.name());
    if let (Some(mtu), Some(1..)) = (attachment.mtu, fragments) {
        let peers = interface.flows.iter().map(|flow| flow.remote);
        writeln!(out, "  fragments {}", cost_of_fragments(mtu, peers))?;
    }
    Ok(())
}

/// Prints how many flows are in each state.
fn print_states(out: &mut impl Write, interface: &InterfaceStatus) -> Result<()> {
    let states = State::ALL.map(|state| (interface.flow_states.get(state.name()), state.name()));
    let states = states.into_iter().filter_map(|(count, name)| match count {
        None | Some(0) => None,
        Some(count) => Some(format!("{count} {name}")),
    });
    match &states.collect::<Vec<_>>()[..] {
        [] => writeln!(out, "  no flows")?,
        states => writeln!(out, "  flows  {}", join(states))?,
    }
    Ok(())
}

/// Prints the flows, of many only those that carried data last.
fn print_flows(out: &mut impl Write, columns: Option<usize>, flows: &[FlowStatus]) -> Result<()> {
    if flows.is_empty() {
        return Ok(());
    }
    let mut shown: Vec<&FlowStatus> = flows.iter().collect();
    if flows.len() > MOST_FLOWS {
        // Those of the same second by their ends, so that they keep their places.
        shown.sort_by_key(|flow| (flow.idle.as_secs(), flow.remote, flow.local));
        shown.truncate(MOST_FLOWS);
    }
    let rows: Vec<_> = shown.into_iter().map(FlowRow::total).collect();
    writeln!(out, "{}", flow_table(columns, &rows))?;
    if flows.len() > MOST_FLOWS {
        writeln!(
            out,
            "  {MOST_FLOWS} of {} flows, the last used first; `xdptun flows` lists all",
            flows.len()
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::observe::status::AttachmentStatus;
    use crate::tunnel::counters::with_values;

    fn text(fragments: u64, mtu: Option<u32>) -> String {
        let interface = InterfaceStatus {
            attachment: AttachmentStatus {
                function: "tunnel",
                name: "eth0".to_owned(),
                ifindex: 2,
                group: vec!["eth0".to_owned()],
                mtu,
                ingress: "tc",
                hooks: Vec::new(),
                daemon: None,
                attached: Duration::ZERO,
                counters: with_values(&[("tx_fragment", fragments)]),
            },
            ports: Vec::new(),
            peers: Vec::new(),
            secret: false,
            wireguard_mtu: None,
            max_flows: 1,
            flow_states: BTreeMap::new(),
            flows: Vec::new(),
        };
        let mut out = Vec::new();
        print_cost_of_fragments(&mut out, &interface).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_interface_with_fragments_says_what_they_cost() {
        let cost = cost_of_fragments(1500, []);
        assert_eq!(text(1, Some(1500)), format!("  fragments {cost}\n"));
        assert_eq!(text(0, Some(1500)), "");
        // It is gone.
        assert_eq!(text(1, None), "");
    }

    fn flow(port: u16, idle: u64) -> FlowStatus {
        FlowStatus {
            local: "10.0.0.1:8000".parse().unwrap(),
            remote: ([10, 0, 0, 2], port).into(),
            state: State::Established,
            tx_packets: 1,
            tx_bytes: 1,
            rx_packets: 1,
            rx_bytes: 1,
            age: Duration::from_secs(1000),
            idle: Duration::from_secs(idle),
        }
    }

    fn flows(number: u16) -> String {
        let flows: Vec<_> = (1..=number)
            .map(|port| flow(port, u64::from(port) % 7))
            .collect();
        let mut out = Vec::new();
        print_flows(&mut out, None, &flows).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn of_many_flows_the_last_used_are_shown() {
        assert_eq!(flows(0), "");
        // A header, and a line for each.
        assert_eq!(flows(20).lines().count(), 21);
        let of_many = flows(2000);
        let lines: Vec<_> = of_many.lines().collect();
        assert_eq!(lines.len(), 22);
        assert!(lines[1].contains("10.0.0.2:7 "), "{of_many}");
        assert!(lines[20].contains("10.0.0.2:140 "), "{of_many}");
        assert_eq!(
            lines[21],
            "  20 of 2000 flows, the last used first; `xdptun flows` lists all"
        );
    }
}
