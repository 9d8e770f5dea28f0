//! Output that several verbs share: tables, short numbers, and the line for an empty
//! result.

use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::Result;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::gateway::Gateway;
use crate::group::pinned;
use crate::nat64::Nat64;
use crate::observe::status::{FlowStatus, Status};
use crate::policy::Policy;
use crate::tunnel::Tunnel;

/// The widest table where there is no terminal, in columns: it fits into a mail.
const WIDTH: usize = 100;

/// A row of a table of flows.
pub struct FlowRow<'a> {
    /// The flow.
    pub flow: &'a FlowStatus,
    /// The text of the column SENT.
    pub sent: String,
    /// The text of the column RECEIVED.
    pub received: String,
}

impl<'a> FlowRow<'a> {
    /// A row with the bytes since the flow was opened.
    pub fn total(flow: &'a FlowStatus) -> Self {
        Self {
            flow,
            sent: traffic(flow.tx_packets, flow.tx_bytes),
            received: traffic(flow.rx_packets, flow.rx_bytes),
        }
    }
}

/// A table of flows for a terminal of so many columns; without one, for a mail.
pub fn flow_table(columns: Option<usize>, rows: &[FlowRow<'_>]) -> String {
    let header = [
        "LOCAL", "REMOTE", "STATE", "SENT", "RECEIVED", "AGE", "IDLE",
    ];
    let rows = rows.iter().map(|row| {
        [
            row.flow.local.to_string(),
            row.flow.remote.to_string(),
            row.flow.state.name().to_owned(),
            row.sent.clone(),
            row.received.clone(),
            duration(row.flow.age),
            duration(row.flow.idle),
        ]
    });
    table_within(
        columns.unwrap_or(WIDTH),
        header,
        rows.collect(),
        3,
        &[2, 1, 2, 2],
    )
}

/// A table no wider than `width`. Each row is a line; if that is too wide, as with long IPv6 addresses,
/// the columns of each of the `groups`, which name how many they have, stand below each other.
pub fn table_within<const N: usize>(
    width: usize,
    header: [&str; N],
    rows: Vec<[String; N]>,
    first_number: usize,
    groups: &[usize],
) -> String {
    debug_assert_eq!(groups.iter().sum::<usize>(), N);
    let fits = |table: &str| table.lines().all(|line| line.trim_end().len() <= width);
    let mut flat = table(&header, first_number);
    flat.add_rows(&rows);
    let flat = flat.to_string();
    if fits(&flat) {
        return flat;
    }
    let stacked = |cells: &[String]| {
        let mut rest = cells;
        let groups = groups.iter().map(|columns| {
            let (group, behind) = rest.split_at(*columns);
            rest = behind;
            group.join("\n")
        });
        groups.collect::<Vec<_>>()
    };
    let mut before = 0;
    let numbers = groups.iter().take_while(|columns| {
        before += **columns;
        before <= first_number
    });
    let header = stacked(&header.map(str::to_owned));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = table(&header, numbers.count());
    table.add_rows(rows.iter().map(|row| stacked(row)));
    if !fits(&table.to_string()) {
        limit_width(&mut table, width);
    }
    table.to_string()
}

/// Breaks the texts of a table's cells, so that it is no wider.
pub fn limit_width(table: &mut Table, width: usize) {
    let width = u16::try_from(width).unwrap_or(u16::MAX);
    table
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width);
}

/// A table whose columns hold numbers from `first_number` on.
pub fn table(header: &[&str], first_number: usize) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header);
    for column in first_number..header.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Tells if there is no attachment, or none that this process can see.
pub fn say_if_nothing(out: &mut impl io::Write, status: &Status) -> Result<()> {
    let mut hidden = pinned::unseen::<Tunnel>()?;
    let others = [
        pinned::unseen::<Policy>()?,
        pinned::unseen::<Gateway>()?,
        pinned::unseen::<Nat64>()?,
    ];
    for name in others.into_iter().flatten() {
        if !hidden.contains(&name) {
            hidden.push(name);
        }
    }
    if !hidden.is_empty() {
        writeln!(
            out,
            "{}: attached, but {}",
            hidden.join(", "),
            pinned::PINS_ARE_HIDDEN
        )?;
    } else if status.is_empty() {
        writeln!(out, "nothing is attached in this network namespace")?;
    }
    Ok(())
}

/// The same, for what is shown of tunnels alone.
pub fn say_if_no_tunnel(out: &mut impl io::Write, status: &Status) -> Result<()> {
    say_if_nothing(out, status)?;
    if status.interfaces.is_empty() && !status.is_empty() {
        writeln!(
            out,
            "no tunnel is attached; `xdptun sessions` shows what is forwarded, `xdptun status` the rest"
        )?;
    }
    Ok(())
}

/// Prints an object as one line of JSON.
pub fn print_json(object: &impl Serialize) -> Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, object)?;
    Ok(writeln!(out)?)
}

/// Values in a row.
pub fn join(values: &[impl ToString]) -> String {
    let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

/// Values in a row; of many the first ones, and how many there are besides.
pub fn join_some(values: &[impl ToString]) -> String {
    const MOST: usize = 5;
    match values.split_at_checked(MOST) {
        Some((first, more @ [_, _, ..])) => format!("{} and {} more", join(first), more.len()),
        _ => join(values),
    }
}

/// Packets and bytes.
pub fn traffic(packets: u64, bytes: u64) -> String {
    format!("{packets} / {}", size(bytes))
}

/// Bytes with a binary prefix and three digits at most.
pub fn size(bytes: u64) -> String {
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

/// A time in its largest unit.
pub fn duration(time: Duration) -> String {
    let whole = time.as_secs();
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min", whole / 60),
        3600..86400 => format!("{} h", whole / 3600),
        _ => format!("{} d", whole / 86400),
    }
}

#[cfg(test)]
mod tests {
    use xdptun_common::tunnel::state::State;

    use super::*;

    #[test]
    fn many_values_are_counted() {
        let values: Vec<usize> = (1..=500).collect();
        assert_eq!(join_some(&values[..2]), "1, 2");
        assert_eq!(join_some(&values[..6]), "1, 2, 3, 4, 5, 6");
        assert_eq!(join_some(&values[..7]), "1, 2, 3, 4, 5 and 2 more");
        assert_eq!(join_some(&values), "1, 2, 3, 4, 5 and 495 more");
    }

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
            assert_eq!(duration(Duration::from_secs_f64(seconds)), text);
        }
    }

    fn flow(local: &str, remote: &str) -> FlowStatus {
        FlowStatus {
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
            state: State::SynReceived,
            tx_packets: 123_456_789_012_345,
            tx_bytes: 999 << 40,
            rx_packets: 123_456_789_012_345,
            rx_bytes: 999 << 40,
            age: Duration::from_secs(59 * 60),
            idle: Duration::from_secs(59 * 60),
        }
    }

    fn lines(flow: &FlowStatus) -> Vec<String> {
        let table = flow_table(None, &[FlowRow::total(flow)]);
        table
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    #[test]
    fn short_addresses_take_one_line() {
        let mut flow = flow("10.0.0.1:8000", "[fd00::2]:8000");
        (flow.tx_packets, flow.rx_packets) = (12, 12);
        let lines = lines(&flow);
        assert_eq!(lines.len(), 2, "{lines:#?}");
        assert!(
            lines[1].contains("10.0.0.1:8000  [fd00::2]:8000"),
            "{lines:#?}"
        );
    }

    #[test]
    fn the_longest_addresses_and_numbers_fit_whole() {
        let ends = [1, 2]
            .map(|number| format!("[2001:db8:1111:2222:3333:4444:5555:666{number}]:5182{number}"));
        let lines = lines(&flow(&ends[0], &ends[1]));
        assert_eq!(lines.len(), 4, "{lines:#?}");
        for line in &lines {
            assert!(line.len() <= WIDTH, "{lines:#?}");
        }
        for (line, words) in [
            (2, [&ends[0], "syn-received"]),
            (3, [&ends[1], "123456789012345 / 999 TiB"]),
        ] {
            for word in words {
                assert!(lines[line].contains(word), "no {word} in {lines:#?}");
            }
        }
    }
}
