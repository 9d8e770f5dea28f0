//! Connections of an inside host to an outside server: through xdptun's NAT and the kernel's, and
//! through a host that only routes.
//!
//! Each round makes every path anew, so that no path has to step over closed connections of the
//! last one.

mod httperf;
pub mod path;

use std::time::Instant;

use anyhow::{Context, Result};
use xdptun_lab::crowd::{Crowd, Echo};

use super::tcp::{BULK, RATE, on_one_cpu, workers};
use super::web::{self, Web};
use crate::document::Section;
use crate::harness::{Harness, Round};
use crate::plot::Bars;
use crate::results::{Measured, paired};
use crate::statistics::{Summary, percentile};
use crate::table::{Goal, Table, spread};
use path::{Path, Port, Way};

/// Connections that httperf opens a second.
const RATES: [u32; 3] = [100, 500, 1000];

/// How many it opens at each rate: that of the reference measurement.
const CONNECTIONS: u32 = 8000;

/// How many are opened as fast as it goes.
const CROWD: usize = 12_000;

const PAGE: &str = "one page us, p50";
const AVERAGE: &str = "average ms";
const MEDIAN: &str = "median ms";
const ERRORS: &str = "errors";

/// The case of what httperf does not measure.
const OWN: &str = "own load";

/// The program, as a row without it names it.
const HTTPERF: &str = "httperf";

fn case(rate: u32) -> String {
    format!("{rate} connections/s")
}

/// Every path in turn, each made for that.
pub fn measure(harness: &mut Harness) -> Result<()> {
    harness.absent("einat", "neither Debian nor crates.io offers it");
    let missing = httperf::missing();
    let rates = if missing.is_some() { &[] } else { &RATES[..] };
    if let Some(reason) = missing {
        harness.absent(HTTPERF, reason);
    }
    harness.rounds(|round| {
        Way::ALL.into_iter().try_for_each(|way| {
            let path = Path::new(way)?;
            let run = run(round, &path, rates);
            path.explain(run)
        })
    })
}

fn run(round: &mut Round<'_>, path: &Path, rates: &[u32]) -> Result<()> {
    let (extent, name) = (round.extent(), path.name());
    let pages = extent.pick(3000, 100);
    let times = on_one_cpu(|| web::fetch(path.ends(Port::Web), pages))?;
    let page = percentile(&times, 0.5).context("no page")?;
    let page = page.as_secs_f64() * 1e6;
    let bulk = path.ends(Port::Bulk).bulk(extent)?;
    round.keep(OWN, name, &[(PAGE, page), (BULK, bulk)]);
    let ends = path.ends(Port::Web);
    let web = Web::start(ends)?;
    for &rate in rates {
        let report = httperf::measure(ends, rate, extent.pick(CONNECTIONS, rate / 2))?;
        let values = [
            (AVERAGE, report.average),
            (MEDIAN, report.median),
            (ERRORS, report.errors.into()),
        ];
        round.keep(&case(rate), name, &values);
    }
    drop(web);
    let (program, ends) = (workers()?, path.ends(Port::Crowd));
    let _echo = Echo::start(&program, ends.server, ends.service)?;
    let mut crowd = Crowd::new(&program, ends.client, ends.entry)?;
    let count = extent.pick(CROWD, CROWD / 100);
    let began = Instant::now();
    crowd.grow(count)?;
    let rate = count as f64 / began.elapsed().as_secs_f64();
    round.keep(OWN, name, &[(RATE, rate)]);
    Ok(())
}

/// The tables of the document.
pub fn sections(measured: &Measured) -> Result<Vec<Section>> {
    let by_httperf = Section::new("nat-httperf", by_httperf(measured).to_string());
    let by_httperf = match has_httperf(measured) {
        true => by_httperf.with_plot(plot(measured)),
        false => by_httperf,
    };
    let own = Section::new("nat", own(measured).to_string());
    Ok(vec![by_httperf, own])
}

fn has_httperf(measured: &Measured) -> bool {
    measured.absent.iter().all(|absent| absent.path != HTTPERF)
}

/// The goal and its verdict, in the rows of xdptun.
fn judge(way: Way, goal: Goal, summary: Option<Summary>) -> String {
    match way {
        Way::Xdptun => goal.judge(summary),
        Way::Routing | Way::Nft => String::new(),
    }
}

fn by_httperf(measured: &Measured) -> Table {
    let mut table = Table::new(&[
        "httperf",
        AVERAGE,
        "over routing, ms",
        "goal",
        MEDIAN,
        ERRORS,
        "goal",
    ]);
    if has_httperf(measured) {
        for case in RATES.map(case) {
            for way in Way::ALL {
                let value = |metric| spread(measured.summary(&case, way.name(), metric));
                let over = overhead(measured, &case, way);
                let errors = errors(measured, &case, way);
                table.row([
                    format!("{case}: {}", way.name()),
                    value(AVERAGE),
                    spread(over),
                    judge(way, Goal::AtMost(0.1), over),
                    value(MEDIAN),
                    value(ERRORS),
                    judge(way, Goal::AtMost(0.0), errors),
                ]);
            }
        }
    }
    absent(measured, &mut table, true);
    table
}

/// What a path adds to the average of routing in the same round, in milliseconds.
fn overhead(measured: &Measured, case: &str, way: Way) -> Option<Summary> {
    let averages = |way: Way| measured.values(case, way.name(), AVERAGE);
    // httperf prints tenths, which binary fractions only come near to.
    let over = |average: f64, routing: f64| ((average - routing) * 10.0).round() / 10.0;
    let over = paired(&averages(way), &averages(Way::Routing), over);
    Summary::of(over.into_iter().map(|(_, over)| over))
}

/// The errors of the worst round: no median hides one.
fn errors(measured: &Measured, case: &str, way: Way) -> Option<Summary> {
    let errors = measured.summary(case, way.name(), ERRORS)?;
    Summary::of([errors.max])
}

fn own(measured: &Measured) -> Table {
    let mut table = Table::new(&[
        "path",
        PAGE,
        "of routing",
        BULK,
        "of routing",
        "goal",
        RATE,
        "of nft",
        "goal",
    ]);
    for way in Way::ALL {
        let value = |metric| spread(measured.summary(OWN, way.name(), metric));
        let ratio = |metric, of: Way| measured.ratio(OWN, [way.name(), of.name()], metric);
        let (bulk, rate) = (ratio(BULK, Way::Routing), ratio(RATE, Way::Nft));
        table.row([
            way.name().to_owned(),
            value(PAGE),
            spread(ratio(PAGE, Way::Routing)),
            value(BULK),
            spread(bulk),
            judge(way, Goal::AtLeast(0.95), bulk),
            value(RATE),
            spread(rate),
            judge(way, Goal::AtLeast(1.0), rate),
        ]);
    }
    absent(measured, &mut table, false);
    table
}

/// Rows of what is not measured: httperf, or paths.
fn absent(measured: &Measured, table: &mut Table, httperf: bool) {
    for absent in &measured.absent {
        if (absent.path == HTTPERF) == httperf {
            table.row([absent.to_string()]);
        }
    }
}

fn plot(measured: &Measured) -> Bars {
    let mut bars = Bars::new("Connection time by httperf", "milliseconds");
    for case in RATES.map(case) {
        for (colour, way) in Way::ALL.into_iter().enumerate() {
            let label = format!("{case}: {}", way.name());
            bars.add(label, colour, measured.summary(&case, way.name(), AVERAGE));
        }
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Absent, Sample};

    /// Rounds of all metrics of httperf, by path: averages and errors.
    fn measured(rounds: &[[(f64, f64); 3]]) -> Measured {
        let mut measured = Measured::default();
        for (round, values) in (1..).zip(rounds) {
            for (way, (average, errors)) in Way::ALL.into_iter().zip(values) {
                for (case, (metric, value)) in RATES
                    .map(case)
                    .iter()
                    .flat_map(|case| [(case, (AVERAGE, average)), (case, (ERRORS, errors))])
                {
                    measured.samples.push(Sample {
                        case: case.clone(),
                        path: way.name().to_owned(),
                        metric: metric.to_owned(),
                        round,
                        value: *value,
                    });
                }
            }
        }
        measured
    }

    #[test]
    fn a_tenth_is_a_tenth() {
        let table = by_httperf(&measured(&[[(0.3, 0.0), (0.4, 0.0), (0.5, 0.0)]]));
        let text = table.to_string();
        assert!(text.contains("<= 0.100: met"), "{text}");
        assert!(!text.contains("not met"), "{text}");
    }

    #[test]
    fn one_error_is_too_many() {
        let good = [(0.3, 0.0); 3];
        let bad = [(0.3, 0.0), (0.3, 1.0), (0.3, 0.0)];
        let text = by_httperf(&measured(&[good, bad, good])).to_string();
        assert!(text.contains("<= 0.000: **not met**"), "{text}");
    }

    #[test]
    fn without_httperf_its_table_says_so() {
        let absent = [("einat", "none"), (HTTPERF, "no such file")];
        let absent = absent.map(|(path, reason)| Absent {
            path: path.to_owned(),
            reason: reason.to_owned(),
        });
        let measured = Measured {
            absent: absent.to_vec(),
            ..Measured::default()
        };
        let [by_httperf, _] = &sections(&measured).unwrap()[..] else {
            panic!("two tables");
        };
        assert!(by_httperf.is_complete());
        assert!(by_httperf.text().contains("httperf: absent; no such file"));
        assert!(!by_httperf.text().contains("einat"));
    }
}
