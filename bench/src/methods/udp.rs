//! Bare UDP: what throughput behind encryption hides.

use std::time::Duration;

use anyhow::{Context, Result};
use xdptun_lab::Family;

use crate::document::Section;
use crate::harness::{Extent, Harness, Round};
use crate::load::{Load, Pace, carry, first_delivery, highest_lossless, round_trips};
use crate::plot::Bars;
use crate::results::{Measured, paired};
use crate::route::Route;
use crate::statistics::{Summary, percentile};
use crate::table::{Goal, Table, spread};

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

/// Traffic of which the table of parts tells.
struct Traffic {
    name: &'static str,
    /// The metric that its time comes from.
    metric: &'static str,
    /// That time in nanoseconds, of a value of the metric.
    ns: fn(f64) -> f64,
    /// How often each program runs meanwhile.
    runs: f64,
}

const SATURATED: &str = "saturated";

const TRAFFIC: [Traffic; 2] = [
    Traffic {
        name: SATURATED,
        metric: "received/s, saturated",
        ns: |per_second| 1e9 / per_second,
        runs: 1.0,
    },
    Traffic {
        name: "round trip",
        metric: "round trip us, p50",
        ns: |microseconds| microseconds * 1e3,
        runs: 2.0,
    },
];

/// The programs that a datagram passes.
const PASSED: [&str; 2] = ["egress", "ingress"];

/// Metrics, each with the goal that it has for either kind of checksum.
pub const METRICS: [(&str, [Option<Goal>; 2]); 8] = [
    (
        "received/s, saturated",
        [Some(Goal::AtLeast(0.90)), Some(Goal::AtLeast(0.80))],
    ),
    ("CPU us per datagram, saturated", [None; 2]),
    (
        "received/s, < 0.5 % lost",
        [Some(Goal::AtLeast(0.90)), Some(Goal::AtLeast(0.80))],
    ),
    ("CPU us per datagram, < 0.5 % lost", [None; 2]),
    ("round trip us, p50", [Some(Goal::AtMost(1.12)); 2]),
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
    fn saturated(&self) -> Load {
        Load {
            length: LENGTH,
            pace: Pace::Saturated,
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
            xdptun.explain(count_programs(round, case, xdptun))?;
        }
        Ok(())
    })
}

/// How long the programs run for a datagram of either traffic; on its own, as the
/// counting takes time.
fn count_programs(round: &mut Round<'_>, case: &str, route: &Route) -> Result<()> {
    let amount = Amount::of(round.extent());
    let receiver = route.receiver(Family::V4)?;
    let sender = route.sender(Family::V4)?;
    first_delivery(&sender, &receiver)?.context("the first datagram was lost")?;
    for Traffic { name, .. } in TRAFFIC {
        let times = route.time_programs(|| match name {
            SATURATED => carry(&sender, &receiver, amount.saturated()).map(drop),
            _ => round_trips(&sender, &receiver, SMALL, amount.trips).map(drop),
        })?;
        for (program, each) in PASSED.into_iter().zip(times) {
            round.keep(case, route.name, &[(&time_of(program, name), each)]);
        }
    }
    Ok(())
}

/// The metric of the time of a program's run.
fn time_of(program: &str, traffic: &str) -> String {
    format!("{program} ns, {traffic}")
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
    let flood = carry(&sender, &receiver, amount.saturated())?;
    let lossless = highest_lossless(&sender, &receiver, LENGTH, flood.per_second(), amount.probe)?;
    let lossless =
        lossless.with_context(|| format!("{}: every rate loses 0.5 % or more", route.name))?;
    let trip = |share| microseconds(percentile(&trips, share));
    let first = percentile(&delays, 0.5).map(|delay| delay.as_secs_f64() * 1e3);
    let values = [
        flood.per_second(),
        flood.cpu_microseconds(),
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
        for (metric, goals) in METRICS {
            let ratio = measured.ratio(case, ["xdptun", "direct"], metric);
            // A ratio to none would say nothing.
            let counts = metric == FIRSTS_LOST;
            table.row([
                format!("{case}: {metric}"),
                spread(measured.summary(case, "direct", metric)),
                spread(measured.summary(case, "xdptun", metric)),
                if counts { String::new() } else { spread(ratio) },
                goals[kind].map_or_else(String::new, |goal| goal.judge(ratio)),
            ]);
        }
    }
    let section = Section::new("udp", table.to_string());
    Ok(vec![section.with_plot(plot(measured)), parts(measured)])
}

/// Where the time goes that xdptun takes: of a datagram, or of a round trip.
fn parts(measured: &Measured) -> Section {
    let columns = CHECKSUMS.iter().flat_map(|&(case, _)| {
        let columns = TRAFFIC.iter().map(move |traffic| (case, traffic));
        columns.map(|(case, traffic)| (format!("{case}, {}", traffic.name), case, traffic))
    });
    let columns: Vec<_> = columns.collect();
    let heads = columns.iter().map(|(head, ..)| head.as_str());
    let heads: Vec<&str> = ["ns"].into_iter().chain(heads).collect();
    let mut table = Table::new(&heads);
    let mut row = |name: String, of: &dyn Fn(&str, &Traffic) -> Rounds| {
        let cells = columns.iter().map(|(_, case, traffic)| {
            let values = of(case, traffic).into_iter();
            spread(Summary::of(values.map(|(_, value)| value)))
        });
        table.row([name].into_iter().chain(cells));
    };
    let time = |path, case: &str, traffic: &Traffic| {
        let values = measured.values(case, path, traffic.metric);
        each_round(&values, traffic.ns)
    };
    let more = |case: &str, traffic: &Traffic| {
        let [direct, xdptun] = ["direct", "xdptun"].map(|path| time(path, case, traffic));
        minus(&xdptun, &direct)
    };
    let time_of_program = |program: &str, case: &str, traffic: &Traffic| {
        let values = measured.values(case, "xdptun", &time_of(program, traffic.name));
        each_round(&values, |value| value * traffic.runs)
    };
    for path in ["direct", "xdptun"] {
        row(path.to_owned(), &|case, traffic| time(path, case, traffic));
    }
    row("xdptun less direct".to_owned(), &more);
    for program in PASSED {
        let name = format!("of which xdptun_{program}");
        row(name, &|case, traffic| {
            time_of_program(program, case, traffic)
        });
    }
    row("of which all else".to_owned(), &|case, traffic| {
        let programs = PASSED.map(|program| time_of_program(program, case, traffic));
        let rest = more(case, traffic);
        programs.iter().fold(rest, |rest, part| minus(&rest, part))
    });
    Section::new("udp-parts", table.to_string())
}

/// A value for each round.
type Rounds = Vec<(u32, f64)>;

fn each_round(values: &[(u32, f64)], change: impl Fn(f64) -> f64) -> Rounds {
    let values = values.iter();
    values
        .map(|&(round, value)| (round, change(value)))
        .collect()
}

/// Values less those of the same round.
fn minus(values: &[(u32, f64)], less: &[(u32, f64)]) -> Rounds {
    paired(values, less, |value, less| value - less)
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
