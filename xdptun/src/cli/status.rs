//! `xdptun status`: what is attached, what was counted, which flows there are.

use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::{Map, Value};
use xdptun_common::flow::{Flow, FlowKey};

use crate::clock::{monotonic_ns, since};
use crate::datapath::{self, Pinned};
use crate::interface::Interface;
use crate::mtu::WireguardMtu;

/// Show attachments of this network namespace, their counters and flows.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  xdptun status\n  xdptun status --json | jq '.interfaces[].flows'"
)]
pub struct Arguments {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Status {
    interfaces: Vec<InterfaceStatus>,
}

#[derive(Serialize)]
struct InterfaceStatus {
    name: String,
    ifindex: u32,
    ports: Vec<String>,
    peers: Vec<String>,
    /// Whether callers must know a secret (`--secret`).
    secret: bool,
    /// MTU of the interface in bytes; none if it is gone.
    mtu: Option<u32>,
    /// The largest MTU of a WireGuard device inside.
    wireguard_mtu: Option<WireguardMtu>,
    ingress: &'static str,
    hooks: Vec<String>,
    /// Process id of the daemon, if it lives.
    daemon: Option<i32>,
    counters: Map<String, Value>,
    flows: Vec<FlowStatus>,
}

#[derive(Serialize)]
struct FlowStatus {
    local: String,
    remote: String,
    state: &'static str,
    tx_packets: u64,
    tx_bytes: u64,
    rx_packets: u64,
    rx_bytes: u64,
    /// Seconds since the flow was opened.
    age_s: f64,
    /// Seconds since the last datagram.
    idle_s: f64,
}

/// Runs the verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    let interfaces: Result<Vec<_>> = Pinned::all()?.iter().map(interface_status).collect();
    let status = Status {
        interfaces: interfaces?,
    };
    let mut out = io::stdout().lock();
    if arguments.json {
        serde_json::to_writer(&mut out, &status)?;
        writeln!(out)?;
        return Ok(());
    }
    let hidden = datapath::hidden()?;
    if !hidden.is_empty() {
        writeln!(
            out,
            "{}: attached, but {}",
            hidden.join(", "),
            datapath::PINS_ARE_HIDDEN
        )?;
    } else if status.interfaces.is_empty() {
        writeln!(out, "nothing is attached in this network namespace")?;
    }
    for interface in &status.interfaces {
        print(&mut out, interface)?;
    }
    Ok(())
}

fn interface_status(pinned: &Pinned) -> Result<InterfaceStatus> {
    let now = monotonic_ns();
    // As it is now, not as it was at attach.
    let mtu = Interface::find(&pinned.name())
        .ok()
        .filter(|interface| interface.index == pinned.ifindex)
        .map(|interface| interface.mtu);
    let maps = &pinned.maps;
    let mut flows: Vec<(FlowKey, Flow)> = maps.flows()?;
    flows.sort_unstable_by_key(|(key, _)| *key);
    Ok(InterfaceStatus {
        name: pinned.name(),
        ifindex: pinned.ifindex,
        ports: maps.ports()?.iter().map(ToString::to_string).collect(),
        peers: maps.peers()?.iter().map(ToString::to_string).collect(),
        secret: pinned.attachment.hidden != 0,
        mtu,
        wireguard_mtu: mtu.map(WireguardMtu::on),
        ingress: pinned.ingress().name(),
        hooks: pinned.hooks(),
        daemon: Pinned::daemon(pinned.ifindex)?.map(nix::unistd::Pid::as_raw),
        counters: maps
            .counters()?
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect(),
        flows: flows
            .iter()
            .map(|(key, flow)| flow_status(key, flow, now))
            .collect(),
    })
}

fn flow_status(key: &FlowKey, flow: &Flow, now: u64) -> FlowStatus {
    let seconds = |then| (since(now, then).as_secs_f64() * 1000.0).round() / 1000.0;
    FlowStatus {
        local: key.local().to_string(),
        remote: key.remote().to_string(),
        state: flow.state().name(),
        tx_packets: flow.tx_packets,
        tx_bytes: flow.tx_bytes,
        rx_packets: flow.rx_packets,
        rx_bytes: flow.rx_bytes,
        age_s: seconds(flow.opened_at),
        idle_s: seconds(flow.data_at),
    }
}

fn print(out: &mut impl io::Write, interface: &InterfaceStatus) -> Result<()> {
    let daemon = match interface.daemon {
        Some(process) => format!("process {process}"),
        None => format!(
            "not running: flows go on, a new one loses its first datagrams; \
             `xdptun attach --iface {} ...` goes on with them",
            interface.name
        ),
    };
    writeln!(
        out,
        "{}  ports {}  ingress {}",
        interface.name,
        interface.ports.join(", "),
        interface.ingress
    )?;
    if !interface.peers.is_empty() {
        writeln!(out, "  peers  {}", interface.peers.join(", "))?;
    }
    if interface.secret {
        writeln!(out, "  secret callers must know it")?;
    }
    if !interface.hooks.is_empty() {
        writeln!(out, "  hooks  {}", interface.hooks.join(", "))?;
    } else if interface.mtu.is_some() {
        writeln!(out, "  hooks  none: datagrams leave as UDP")?;
    }
    writeln!(out, "  daemon {daemon}")?;
    match (interface.mtu, interface.wireguard_mtu) {
        (Some(mtu), Some(wireguard)) => writeln!(
            out,
            "  MTU    {mtu}; for WireGuard inside {} over IPv4, {} over IPv6",
            wireguard.v4, wireguard.v6
        )?,
        _ => writeln!(
            out,
            "  the interface is gone; {}",
            match interface.daemon {
                Some(_) => "the daemon attaches to it when it comes back".to_owned(),
                None => format!("`xdptun detach --iface {}` cleans up", interface.name),
            }
        )?,
    }

    let mut flows = table([
        "LOCAL", "REMOTE", "STATE", "SENT", "RECEIVED", "AGE", "IDLE",
    ]);
    for column in 3..7 {
        if let Some(column) = flows.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for flow in &interface.flows {
        flows.add_row([
            flow.local.clone(),
            flow.remote.clone(),
            flow.state.to_owned(),
            traffic(flow.tx_packets, flow.tx_bytes),
            traffic(flow.rx_packets, flow.rx_bytes),
            duration(flow.age_s),
            duration(flow.idle_s),
        ]);
    }
    if interface.flows.is_empty() {
        writeln!(out, "  no flows")?;
    } else {
        writeln!(out, "{flows}")?;
    }

    let mut counters = table(["COUNTER", "PACKETS"]);
    if let Some(column) = counters.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let counted = interface
        .counters
        .iter()
        .filter(|(_, value)| value.as_u64() != Some(0));
    for (name, value) in counted {
        counters.add_row([name.clone(), value.to_string()]);
    }
    if counters.row_iter().next().is_some() {
        writeln!(out, "{counters}")?;
        writeln!(out, "  `xdptun explain COUNTER` tells what one means")?;
    }
    Ok(())
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header);
    table
}

fn traffic(packets: u64, bytes: u64) -> String {
    format!("{packets} / {}", size(bytes))
}

/// Bytes with a binary prefix and three digits at most.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 100.0 { 0 } else { 1 };
    format!("{value:.digits$} {}", UNITS[unit])
}

fn duration(seconds: f64) -> String {
    let whole = Duration::from_secs_f64(seconds.max(0.0)).as_secs();
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min", whole / 60),
        3600..86400 => format!("{} h", whole / 3600),
        _ => format!("{} d", whole / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_stay_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 KiB"),
            (1 << 30, "1.0 GiB"),
            (500 << 20, "500 MiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert!(size(u64::MAX).ends_with(" TiB"));
        for (seconds, text) in [
            (0.2, "0 s"),
            (59.9, "59 s"),
            (61.0, "1 min"),
            (7200.0, "2 h"),
            (172_800.0, "2 d"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }
}
