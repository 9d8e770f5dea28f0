//! `xdptun watch`: live rates.

mod keys;
mod screen;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::future::pending;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use tokio::time::{MissedTickBehavior, interval};

use super::output::columns;
use super::report::{FlowRow, flow_table, say_if_nothing};
use crate::config::parse_duration;
use crate::observe::policy::PolicyRates;
use crate::observe::rates::{Drops, FlowRates, GatewayRates, InterfaceRates, Packets, Rates};
use crate::observe::status::Status;
use crate::process::signals::Termination;
use keys::Keys;
use screen::Screen;

/// Show live what xdptun carries and drops in this network namespace.
///
/// On a terminal it redraws the screen until `q` or Ctrl-C. Otherwise it prints each interval below
/// the last.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Show only this interface.
    #[arg(long, short, value_name = "NAME")]
    iface: Option<String>,

    /// Time between two readings, like 500ms or 1m.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    interval: Duration,

    /// End after this many intervals.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// What to sort the busiest flows by; `s` changes it.
    #[arg(long, value_enum, default_value = "traffic")]
    sort: Order,

    /// Print JSON, a line for each interval.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  xdptun watch
  xdptun watch --iface eth0 --interval 10 --count 6
  xdptun watch --json | jq '.interfaces[].rx_bits_per_s'";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Order {
    /// Bits sent and received.
    Traffic,
    /// Bits sent.
    Sent,
    /// Bits received.
    Received,
    /// The remote end, then the local one.
    Remote,
}

impl Order {
    /// The one after it, which a key chooses.
    fn next(self) -> Self {
        let all = Self::value_variants();
        let place = all.iter().position(|one| *one == self).unwrap_or_default();
        all[(place + 1) % all.len()]
    }

    /// Flows that compare equal are sorted by their ends.
    fn compare(self, a: &FlowRates, b: &FlowRates) -> Ordering {
        let bits = |flow: &FlowRates| match self {
            Self::Traffic => flow.traffic.tx_bits_per_s + flow.traffic.rx_bits_per_s,
            Self::Sent => flow.traffic.tx_bits_per_s,
            Self::Received => flow.traffic.rx_bits_per_s,
            Self::Remote => 0.0,
        };
        let ends = |flow: &FlowRates| (flow.flow.remote, flow.flow.local);
        let order = bits(b).total_cmp(&bits(a));
        order.then_with(|| ends(a).cmp(&ends(b)))
    }

    fn sort(self, rates: &mut Rates) {
        for interface in &mut rates.interfaces {
            interface.busiest.sort_by(|a, b| self.compare(a, b));
        }
    }
}

/// How long readings may fail, or one and a half intervals if that is longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs the verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    let result = super::block_on(watch(arguments));
    result.or_else(|error| match error.downcast_ref::<io::Error>() {
        // The reader of the pipe has closed it.
        Some(cause) if cause.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })
}

async fn watch(arguments: &Arguments) -> Result<()> {
    let mut stop = Termination::catch()?;
    let mut before = Look::now()?;
    if let Some(name) = &arguments.iface {
        before.status = before.status.of(name)?;
    }
    let mut shown = match io::stdout().is_terminal() && !arguments.json {
        true => Some((Screen::enter()?, Keys::listen())),
        false => None,
    };
    let mut order = arguments.sort;
    if let Some((screen, keys)) = &mut shown {
        screen.show("waiting for the first interval", &hint(keys, order))?;
    }
    let mut ticks = interval(arguments.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.reset();
    let mut left = arguments.count;
    let patience = PATIENCE.max(arguments.interval * 3 / 2);
    let mut last: Option<Rates> = None;
    while left != Some(0) {
        let key = tokio::select! {
            _ = ticks.tick() => None,
            () = stop.requested() => return Ok(()),
            key = pressed(&mut shown) => Some(key),
        };
        match key {
            Some(b'q' | b'Q') => return Ok(()),
            Some(b's' | b'S') => order = order.next(),
            Some(_) => continue,
            None => {
                let mut after = match Look::now() {
                    Ok(look) => look,
                    // A reading fails while an attachment comes or goes; the next one succeeds.
                    Err(_) if before.at.elapsed() < patience => continue,
                    Err(error) => return Err(error),
                };
                if let Some(name) = &arguments.iface {
                    after.status.retain(name);
                }
                let interval = after.at - before.at;
                last = Some(Rates::between(&before.status, &after.status, interval));
                before = after;
                left = left.map(|left| left - 1);
            }
        }
        // A key may come before the first interval ends.
        let Some(rates) = &mut last else {
            continue;
        };
        order.sort(rates);
        let mut block = Vec::new();
        if arguments.json {
            serde_json::to_writer(&mut block, rates)?;
            writeln!(block)?;
        } else {
            print(&mut block, rates, &before.status)?;
        }
        match &mut shown {
            Some((screen, keys)) => {
                screen.show(&String::from_utf8_lossy(&block), &hint(keys, order))?;
            }
            None => io::stdout().lock().write_all(&block)?,
        }
    }
    Ok(())
}

/// What keys do.
fn hint(keys: &Keys, order: Order) -> String {
    match keys.are_read() {
        true => {
            let order = order.to_possible_value();
            let name = order.as_ref().map_or("", PossibleValue::get_name);
            format!("q quits, s sorts flows: {name}")
        }
        false => "Ctrl-C quits".to_owned(),
    }
}

/// The next key, where any are read.
async fn pressed(shown: &mut Option<(Screen, Keys)>) -> u8 {
    match shown {
        Some((_, keys)) => keys.next().await,
        None => pending().await,
    }
}

/// The status at one moment.
struct Look {
    at: Instant,
    status: Status,
}

impl Look {
    fn now() -> Result<Self> {
        let at = Instant::now();
        let status = Status::read()?;
        Ok(Self { at, status })
    }
}

/// Prints the rates of one interval, with an empty line at the end.
fn print(out: &mut impl io::Write, rates: &Rates, status: &Status) -> Result<()> {
    say_if_nothing(out, status)?;
    for interface in &rates.interfaces {
        print_interface(out, interface)?;
    }
    for gateway in &rates.gateways {
        print_gateway(out, gateway)?;
    }
    for policy in &rates.policies {
        print_policy(out, policy)?;
    }
    if let Some(nat64) = &rates.nat64 {
        let clients = by_state(&nat64.client_states);
        writeln!(out, "{}  nat64  clients {clients}", nat64.packets.name)?;
        print_packets(out, &nat64.packets)?;
    }
    writeln!(out)?;
    Ok(())
}

fn print_gateway(out: &mut impl io::Write, gateway: &GatewayRates) -> Result<()> {
    let bindings = match gateway.bindings {
        0 => String::new(),
        bindings => format!("  bindings {bindings}"),
    };
    let sessions = by_state(&gateway.session_states);
    writeln!(
        out,
        "{}  gateway  sessions {sessions}{bindings}",
        gateway.packets.name
    )?;
    print_packets(out, &gateway.packets)
}

/// How many are in each state.
fn by_state(states: &BTreeMap<&'static str, usize>) -> String {
    let counts = states
        .iter()
        .map(|(state, count)| format!("{count} {state}"));
    match &counts.collect::<Vec<_>>()[..] {
        [] => "none".to_owned(),
        counts => counts.join(", "),
    }
}

fn print_packets(out: &mut impl io::Write, of: &Packets) -> Result<()> {
    for (name, rate) in &of.packets_per_s {
        writeln!(out, "  {} {name}", packets(*rate))?;
    }
    print_drops(out, &of.drops)
}

fn print_policy(out: &mut impl io::Write, policy: &PolicyRates) -> Result<()> {
    writeln!(out, "{}  policy", policy.name)?;
    for (name, hits) in &policy.rules {
        let rate = packets(hits.per_s);
        writeln!(out, "  rule   {rate} {name}, {} in all", hits.total)?;
    }
    for (name, rate) in &policy.packets_per_s {
        writeln!(out, "  {} {name}", packets(*rate))?;
    }
    print_drops(out, &policy.drops)
}

fn print_drops(out: &mut impl io::Write, drops: &BTreeMap<&'static str, Drops>) -> Result<()> {
    for (name, drops) in drops {
        writeln!(
            out,
            "  lost   {} {name}, {} in all",
            packets(drops.per_s),
            drops.total
        )?;
    }
    Ok(())
}

fn print_interface(out: &mut impl io::Write, interface: &InterfaceRates) -> Result<()> {
    let traffic = &interface.traffic;
    writeln!(
        out,
        "{}  sent {}, {}  received {}, {}",
        interface.name,
        packets(traffic.tx_packets_per_s),
        bits(traffic.tx_bits_per_s),
        packets(traffic.rx_packets_per_s),
        bits(traffic.rx_bits_per_s),
    )?;
    let states: Vec<String> = interface
        .flow_states
        .iter()
        .filter(|(_, count)| **count != 0)
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    if states.is_empty() {
        writeln!(out, "  no flows")?;
    } else {
        writeln!(out, "  flows  {}", states.join(", "))?;
    }
    print_drops(out, &interface.drops)?;
    if !interface.busiest.is_empty() {
        let rows: Vec<_> = interface.busiest.iter().map(row).collect();
        writeln!(out, "{}", flow_table(columns(), &rows))?;
    }
    Ok(())
}

fn row(busy: &FlowRates) -> FlowRow<'_> {
    let traffic = &busy.traffic;
    FlowRow {
        flow: &busy.flow,
        sent: bits(traffic.tx_bits_per_s),
        received: bits(traffic.rx_bits_per_s),
    }
}

fn packets(per_second: f64) -> String {
    let digits = if per_second < 10.0 { 1 } else { 0 };
    format!("{per_second:.digits$} packets/s")
}

/// Bits per second with a decimal prefix and three digits at most.
fn bits(per_second: f64) -> String {
    const UNITS: [&str; 4] = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"];
    let mut value = per_second;
    let mut unit = 0;
    // The next prefix for a number that would be rounded to 1000.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 99.95 { 0 } else { 1 };
    format!("{value:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_stay_short() {
        for (rate, text) in [
            (0.0, "0 bit/s"),
            (999.4, "999 bit/s"),
            (999.6, "1.0 kbit/s"),
            (99_960.0, "100 kbit/s"),
            (2_400_000.0, "2.4 Mbit/s"),
            (12e12, "12000 Gbit/s"),
        ] {
            assert_eq!(bits(rate), text);
        }
        assert_eq!(packets(0.5), "0.5 packets/s");
        assert_eq!(packets(1234.4), "1234 packets/s");
    }
}
