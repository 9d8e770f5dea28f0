//! Where the time of a datagram goes.

use anyhow::{Context as _, Result};
use xdptun_lab::Family;

use super::{Amount, CHECKSUMS, ROUND_TRIP, SMALL, SPINNING};
use crate::document::Section;
use crate::harness::Round;
use crate::load::{Wait, carry, first_delivery, round_trips};
use crate::results::{Measured, paired};
use crate::route::Route;
use crate::statistics::Summary;
use crate::table::{Table, spread};

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
        metric: SPINNING,
        ns: |per_second| 1e9 / per_second,
        runs: 1.0,
    },
    Traffic {
        name: "round trip",
        metric: ROUND_TRIP,
        ns: |microseconds| microseconds * 1e3,
        runs: 2.0,
    },
];

/// The programs that a datagram passes.
const PASSED: [&str; 2] = ["egress", "ingress"];

/// How long the programs run for a datagram of either traffic; on its own, as the
/// counting takes time.
pub fn count(round: &mut Round<'_>, case: &str, route: &Route) -> Result<()> {
    let amount = Amount::of(round.extent());
    let receiver = route.receiver(Family::V4)?;
    let sender = route.sender(Family::V4)?;
    first_delivery(&sender, &receiver)?.context("the first datagram was lost")?;
    for Traffic { name, .. } in TRAFFIC {
        let times = route.time_programs(|| match name {
            SATURATED => carry(&sender, &receiver, amount.saturated(Wait::Spin)).map(drop),
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

/// Where the time goes that xdptun takes: of a datagram, or of a round trip.
pub fn section(measured: &Measured) -> Section {
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
