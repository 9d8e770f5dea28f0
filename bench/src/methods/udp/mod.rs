//! Bare UDP: what throughput behind encryption hides.

mod parts;

use std::time::Duration;

use anyhow::{Context, Result};
use xdptun_lab::Family;

use crate::document::Section;
use crate::harness::{Extent, Harness, Round};
use crate::load::{Load, Pace, Wait, carry, first_delivery, highest_lossless, round_trips};
use crate::plot::Bars;
use crate::results::Measured;
use crate::route::Route;
use crate::statistics::percentile;
use crate::table::{Bar, Table, spread};

/// Payload bytes of the one-way traffic: what WireGuard sends, or less.
pub const LENGTH: usize = 1400;

/// Payload bytes of a round trip.
const SMALL: usize = 64;

/// New flows of each round.
const FIRSTS: usize = 4;

/// How checksums reach the programs.
const CHECKSUMS: [(&str, bool); 2] = [("complete", false), ("PARTIAL", true)];

/// The metric that is a count.
const FIRSTS_LOST: &str = "first datagrams lost, of 4";

/// The rate while the receiver sleeps when nothing is there.
pub const SATURATED: &str = "received/s, saturated";

/// The rate while the receiver does not sleep.
const SPINNING: &str = "received/s, saturated, receiver spins";

/// The time of a small datagram there and back.
pub const ROUND_TRIP: &str = "round trip us, p50";

/// Metrics, each with the limits that it has for either kind of checksum.
pub const METRICS: [(&str, [Option<Bar>; 2]); 9] = [
    (SATURATED, [None; 2]),
    ("CPU us per datagram, saturated", [None; 2]),
    (
        SPINNING,
        [
            Some(Bar::at_least(0.83, 0.86)),
            Some(Bar::at_least(0.78, 0.80)),
        ],
    ),
    ("received/s, < 0.5 % lost", [None; 2]),
    ("CPU us per datagram, < 0.5 % lost", [None; 2]),
    (
        ROUND_TRIP,
        [
            Some(Bar::at_most(1.12, 1.08)),
            Some(Bar::at_most(1.16, 1.12)),
        ],
    ),
    ("round trip us, p99", [None; 2]),
    ("first datagram of a flow, ms", [None; 2]),
    (FIRSTS_LOST, [None; 2]),
];

/// The time and the counts of one round.
struct Amount {
    flood: Duration,
    probe: Duration,
    trips: usize,
}

impl Amount {
    fn of(extent: Extent) -> Self {
        let times = |full, quick| Duration::from_millis(extent.pick(full, quick));
        Self {
            flood: times(1000, 50),
            probe: times(400, 20),
            trips: extent.pick(10_000, 100),
        }
    }

    /// As fast as the kernel takes them.
    fn saturated(&self, wait: Wait) -> Load {
        Load {
            length: LENGTH,
            pace: Pace::Saturated,
            wait,
            time: self.flood,
            count: u64::MAX,
        }
    }
}

/// Direct against xdptun, with both kinds of checksums.
pub fn measure(harness: &mut Harness) -> Result<()> {
    let routes = [Route::direct()?, Route::xdptun("xdptun", "auto")?];
    harness.rounds(|round| {
        for (case, offload) in CHECKSUMS {
            for route in &routes {
                route.net.offload("tx", offload)?;
                route.explain(run(round, case, route))?;
            }
            let [_, xdptun] = &routes;
            xdptun.explain(parts::count(round, case, xdptun))?;
        }
        Ok(())
    })
}

/// Everything of one path.
pub fn run(round: &mut Round<'_>, case: &str, route: &Route) -> Result<()> {
    let amount = Amount::of(round.extent());
    let receiver = route.receiver(Family::V4)?;
    let (mut lost, mut delays) = (0, Vec::new());
    for _ in 0..FIRSTS {
        match first_delivery(&route.sender(Family::V4)?, &receiver)? {
            Some(delay) => delays.push(delay),
            None => lost += 1,
        }
    }
    let sender = route.sender(Family::V4)?;
    let trips = round_trips(&sender, &receiver, SMALL, amount.trips)
        .with_context(|| format!("{}: round trips", route.name))?;
    let flood = carry(&sender, &receiver, amount.saturated(Wait::Sleep))?;
    let spinning = carry(&sender, &receiver, amount.saturated(Wait::Spin))?;
    let lossless = highest_lossless(&sender, &receiver, LENGTH, flood.per_second(), amount.probe)?;
    let lossless =
        lossless.with_context(|| format!("{}: every rate loses 0.5 % or more", route.name))?;
    let trip = |share| microseconds(percentile(&trips, share));
    let first = percentile(&delays, 0.5).map(|delay| delay.as_secs_f64() * 1e3);
    let values = [
        flood.per_second(),
        flood.cpu_microseconds(),
        spinning.per_second(),
        lossless.per_second(),
        lossless.cpu_microseconds(),
        trip(0.50),
        trip(0.99),
        first.unwrap_or(f64::NAN),
        f64::from(lost),
    ];
    let names = METRICS.map(|(name, _)| name);
    let values: Vec<(&str, f64)> = names.into_iter().zip(values).collect();
    round.keep(case, route.name, &values);
    Ok(())
}

fn microseconds(time: Option<Duration>) -> f64 {
    time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

/// The tables of the document.
pub fn sections(measured: &Measured) -> Result<Vec<Section>> {
    let mut table = Table::new(&["checksums, metric", "direct", "xdptun", "ratio", "goal"]);
    for (kind, (case, _)) in CHECKSUMS.iter().enumerate() {
        for (metric, bars) in METRICS {
            let ratio = measured.ratio(case, ["xdptun", "direct"], metric);
            // A ratio to none would say nothing.
            let counts = metric == FIRSTS_LOST;
            table.row([
                format!("{case}: {metric}"),
                spread(measured.summary(case, "direct", metric)),
                spread(measured.summary(case, "xdptun", metric)),
                if counts { String::new() } else { spread(ratio) },
                bars[kind].map_or_else(String::new, |bar| bar.judge(ratio)),
            ]);
        }
    }
    let section = Section::new("udp", table.to_string());
    Ok(vec![
        section.with_plot(plot(measured)),
        parts::section(measured),
    ])
}

fn plot(measured: &Measured) -> Bars {
    let mut bars = Bars::new("Datagrams of 1,400 bytes", "received in a second");
    for (metric, _) in METRICS
        .iter()
        .filter(|(metric, _)| metric.starts_with("received"))
    {
        for (case, _) in CHECKSUMS {
            for (colour, path) in ["direct", "xdptun"].into_iter().enumerate() {
                let label = format!(
                    "{case}, {path}, {}",
                    metric.trim_start_matches("received/s, ")
                );
                bars.add(label, colour, measured.summary(case, path, metric));
            }
        }
    }
    bars
}
