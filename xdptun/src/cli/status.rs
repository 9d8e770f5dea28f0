//! `xdptun status`: attachments, their counters and flows.

use std::io::{self, Write as _};

use anyhow::Result;
use clap::Args;
use comfy_table::CellAlignment;
use xdptun_common::tunnel::outcome::Outcome;
use xdptun_common::tunnel::state::State;

use super::peers::WithPeers;
use super::report::{FlowRow, flow_table, join, join_some, say_if_nothing, table};
use crate::control;
use crate::control::ReportedState;
use crate::host::mtu::cost_of_fragments;
use crate::observe::nat64::Nat64Status;
use crate::observe::policy::PolicyStatus;
use crate::observe::status::{
    AttachmentStatus, FlowStatus, Forwarded, GatewayStatus, InterfaceStatus, Status, Translated,
};

/// Show what is attached in this network namespace, with counters and flows.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Show only this interface.
    #[arg(long, short, value_name = "NAME")]
    iface: Option<String>,

    /// Leave the flows out; their number is shown.
    #[arg(long)]
    no_flows: bool,

    #[command(flatten)]
    with: WithPeers,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  xdptun status
  xdptun status --iface eth0 --no-flows
  xdptun status --peer 203.0.113.7
  xdptun status --json | jq '.interfaces[].flows'";

/// How many flows of an interface are shown.
const MOST_FLOWS: usize = 20;

/// Runs the verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    let wanted = arguments.with.wanted()?;
    let mut status = Status::read()?;
    for interface in &mut status.interfaces {
        interface
            .flows
            .retain(|flow| !arguments.no_flows && wanted.has(flow));
    }
    super::block_on(async {
        match control::status().await {
            Ok(service) => status.service = service,
            Err(error) => eprintln!("xdptun: {error:#}"),
        }
        Ok(())
    })?;
    if let Some(name) = &arguments.iface {
        status = status.of(name)?;
    }
    let mut out = io::stdout().lock();
    if arguments.json {
        serde_json::to_writer(&mut out, &status)?;
        writeln!(out)?;
        return Ok(());
    }
    say_if_nothing(&mut out, &status)?;
    for interface in &status.interfaces {
        print(&mut out, interface)?;
    }
    for gateway in &status.gateways {
        print_gateway(&mut out, gateway)?;
    }
    for policy in &status.policies {
        print_policy(&mut out, policy)?;
    }
    if let Some(nat64) = &status.nat64 {
        print_nat64(&mut out, nat64)?;
    }
    for report in status.service.iter().flatten() {
        let name = &report.name;
        match (report.state, &report.reason) {
            (ReportedState::Carrying, _) => {}
            (ReportedState::Waiting, _) => {
                writeln!(out, "{name}: `xdptun run` waits for the interface")?;
            }
            (ReportedState::GivenUp, reason) => writeln!(
                out,
                "{name}: `xdptun run` gave it up: {}",
                reason.as_deref().unwrap_or_default()
            )?,
        }
    }
    Ok(())
}

fn print(out: &mut impl io::Write, interface: &InterfaceStatus) -> Result<()> {
    let daemon = match interface.attachment.daemon {
        Some(process) => format!("process {process}"),
        None => format!(
            "not running: open flows go on, a new flow loses its first datagrams; \
             `xdptun attach --iface {} ...` or `xdptun run` starts a daemon",
            interface.attachment.group.join(",")
        ),
    };
    writeln!(
        out,
        "{}  ports {}  ingress {}",
        interface.attachment.name,
        join(&interface.ports),
        interface.attachment.ingress
    )?;
    let others = interface
        .attachment
        .group
        .iter()
        .filter(|name| **name != interface.attachment.name);
    let others: Vec<_> = others.collect();
    if !others.is_empty() {
        writeln!(out, "  group  shares its flows with {}", join(&others))?;
    }
    if !interface.peers.is_empty() {
        writeln!(out, "  peers  {}", join_some(&interface.peers))?;
    }
    if interface.secret {
        writeln!(out, "  secret callers must know it")?;
    }
    if !interface.attachment.hooks.is_empty() {
        writeln!(out, "  hooks  {}", interface.attachment.hooks.join(", "))?;
    } else if interface.attachment.mtu.is_some() {
        writeln!(out, "  hooks  none: datagrams leave as UDP")?;
    }
    writeln!(out, "  daemon {daemon}")?;
    match (interface.attachment.mtu, interface.wireguard_mtu) {
        (Some(mtu), Some(wireguard)) => writeln!(
            out,
            "  MTU    {mtu}; for WireGuard inside {} over IPv4, {} over IPv6",
            wireguard.v4, wireguard.v6
        )?,
        _ => writeln!(
            out,
            "  the interface is gone; {}",
            match interface.attachment.daemon {
                Some(_) => "the daemon attaches to it when it comes back".to_owned(),
                None => format!(
                    "`xdptun detach --iface {}` cleans up",
                    interface.attachment.name
                ),
            }
        )?,
    }
    print_cost_of_fragments(out, interface)?;
    print_states(out, interface)?;
    print_counters(out, &interface.attachment)?;
    print_flows(out, &interface.flows)
}

/// Prints what fragments cost, if datagrams left in some.
fn print_cost_of_fragments(out: &mut impl io::Write, interface: &InterfaceStatus) -> Result<()> {
    let attachment = &interface.attachment;
    let fragments = attachment.counters.get(Outcome::TxFragment.name());
    if let (Some(mtu), Some(1..)) = (attachment.mtu, fragments) {
        let peers = interface.flows.iter().map(|flow| flow.remote);
        writeln!(out, "  fragments {}", cost_of_fragments(mtu, peers))?;
    }
    Ok(())
}

fn print_nat64(out: &mut impl io::Write, nat64: &Nat64Status) -> Result<()> {
    let attachment = &nat64.attachment;
    writeln!(out, "{}  nat64", attachment.name)?;
    match &attachment.hooks[..] {
        [] => writeln!(out, "  hooks  none: nothing is translated")?,
        hooks => writeln!(out, "  hooks  {}", hooks.join(", "))?,
    }
    match attachment.daemon {
        Some(process) => writeln!(out, "  daemon process {process}")?,
        None => writeln!(
            out,
            "  daemon not running: clients keep their addresses; the same command goes on with them, \
             `xdptun detach --iface {}` ends them",
            attachment.name
        )?,
    }
    writeln!(out, "  nat64  {} -> {}", join(&nat64.inside), nat64.prefix)?;
    let states = nat64.client_states.iter();
    let states: Vec<_> = states
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    writeln!(
        out,
        "  pool   {}; of {} clients {}; {} for a network of 64 bits at most",
        nat64.pool,
        nat64.max_clients,
        states.join(", "),
        nat64.max_per_prefix
    )?;
    print_counters(out, attachment)
}

fn print_gateway(out: &mut impl io::Write, gateway: &GatewayStatus) -> Result<()> {
    let attachment = &gateway.attachment;
    writeln!(out, "{}  gateway", attachment.name)?;
    let others = attachment
        .group
        .iter()
        .filter(|name| **name != attachment.name);
    let others: Vec<_> = others.collect();
    if !others.is_empty() {
        writeln!(out, "  group  shares its sessions with {}", join(&others))?;
    }
    match &attachment.hooks[..] {
        [] => writeln!(out, "  hooks  none: nothing is forwarded")?,
        hooks => writeln!(out, "  hooks  {}", hooks.join(", "))?,
    }
    match attachment.daemon {
        Some(process) => writeln!(out, "  daemon process {process}")?,
        None => writeln!(
            out,
            "  daemon not running: sessions go on; the same command goes on with them, `xdptun \
             detach --iface {}` ends them and a tunnel there",
            attachment.name
        )?,
    }
    for rule in &gateway.forwards {
        writeln!(out, "  listen {}", forwarded(rule))?;
    }
    if let Some(nat) = &gateway.nat {
        writeln!(out, "  nat    {}", translated(nat))?;
        writeln!(
            out,
            "  bindings {} of {}; {} for a host at most",
            gateway.bindings, gateway.max_bindings, nat.max_bindings_per_host
        )?;
    }
    let states = gateway.session_states.iter();
    let states: Vec<_> = states
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    match &states[..] {
        [] => writeln!(out, "  no sessions")?,
        states => writeln!(
            out,
            "  sessions {}; `xdptun sessions` lists them",
            states.join(", ")
        )?,
    }
    print_counters(out, attachment)
}

fn print_policy(out: &mut impl io::Write, policy: &PolicyStatus) -> Result<()> {
    let attachment = &policy.attachment;
    writeln!(out, "{}  policy", attachment.name)?;
    match &attachment.hooks[..] {
        [] => writeln!(out, "  hooks  none: nothing is searched")?,
        hooks => writeln!(out, "  hooks  {}", hooks.join(", "))?,
    }
    match attachment.daemon {
        Some(process) => writeln!(out, "  daemon process {process}")?,
        None => writeln!(
            out,
            "  daemon not running: rules count and drop, nothing is logged, no end is told of a \
             reset; the same command goes on with them"
        )?,
    }
    let mut rules = table(["RULE", "HITS", "DOES"], 1);
    if let Some(column) = rules.column_mut(2) {
        column.set_cell_alignment(CellAlignment::Left);
    }
    for rule in &policy.rules {
        rules.add_row([rule.name.clone(), rule.hits.to_string(), rule.rule.clone()]);
    }
    writeln!(out, "{rules}")?;
    print_counters(out, attachment)
}

/// What is translated: `192.168.7.0/24 -> 203.0.113.7, ports 1024-32767, endpoint-independent`.
fn translated(nat: &Translated) -> String {
    let outside = nat
        .outside
        .map_or("no address now".to_owned(), |outside| outside.to_string());
    let [first, last] = nat.ports;
    format!(
        "{} -> {outside}, ports {first}-{last}, filtering {}",
        join(&nat.inside),
        nat.filtering
    )
}

/// What is forwarded, in the words of the command line.
fn forwarded(rule: &Forwarded) -> String {
    let address = match rule.address.is_unspecified() {
        true if rule.address.is_ipv6() => "IPv6 ".to_owned(),
        true => "IPv4 ".to_owned(),
        false => format!("{} ", rule.address),
    };
    let ports = match rule.ports {
        [first, last] if first == last => first.to_string(),
        [first, last] => format!("{first}-{last}"),
    };
    let to = rule.to.iter().map(|target| {
        let weight = match target.weight {
            1 => String::new(),
            weight => format!("={weight}"),
        };
        let source = target.source.map(|source| format!(" from {source}"));
        // As many ports as there are to listen at.
        let more = rule.ports[1] - rule.ports[0];
        let last = match more {
            0 => String::new(),
            more => format!("-{}", target.address.port().saturating_add(more)),
        };
        format!(
            "{}{last}{weight}{}",
            target.address,
            source.unwrap_or_default()
        )
    });
    let to: Vec<String> = to.collect();
    format!("{address}{ports}/{} -> {}", rule.protocol, to.join(", "))
}

/// Prints how many flows are in each state.
fn print_states(out: &mut impl io::Write, interface: &InterfaceStatus) -> Result<()> {
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
fn print_flows(out: &mut impl io::Write, flows: &[FlowStatus]) -> Result<()> {
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
    writeln!(out, "{}", flow_table(&rows))?;
    if flows.len() > MOST_FLOWS {
        writeln!(
            out,
            "  {MOST_FLOWS} of {} flows, the last used first; `xdptun flows` lists all",
            flows.len()
        )?;
    }
    Ok(())
}

fn print_counters(out: &mut impl io::Write, attachment: &AttachmentStatus) -> Result<()> {
    let mut counters = table(["COUNTER", "PACKETS", "BYTES"], 1);
    let values = attachment.counters.values();
    for (counter, value) in values.filter(|(_, value)| value.count != 0) {
        let bytes = counter.has_bytes().then(|| value.bytes.to_string());
        let count = value.count.to_string();
        counters.add_row([counter.name.to_owned(), count, bytes.unwrap_or_default()]);
    }
    if counters.row_iter().next().is_some() {
        writeln!(out, "{counters}")?;
        writeln!(out, "  `xdptun explain COUNTER` says what it means")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
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
        print_flows(&mut out, &flows).unwrap();
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
