//! TCP between two hosts, of which the receiving one searches the payload: by rules of the policy, by
//! `xt_string`, and by a program behind NFQUEUE, as the reference measurement did.

mod nfqueue;
mod path;
mod qperf;

use anyhow::Result;

use super::tcp::BULK;
use crate::document::Section;
use crate::harness::{Harness, Round};
use crate::results::{Measured, paired};
use crate::statistics::Summary;
use crate::table::{Goal, Table, spread};
use path::{Path, Way};

/// The case: there is one.
const CASE: &str = "tcp";

/// The metrics, as qperf calls its tests.
const BANDWIDTH: &str = "tcp_bw, MB/s";
const LATENCY: &str = "tcp_lat, us";

/// The program, as a row without it names it.
const QPERF: &str = "qperf";

/// Every path in turn, each made for that.
pub fn measure(harness: &mut Harness) -> Result<()> {
    let missing = qperf::missing();
    if let Some(reason) = &missing {
        harness.absent(QPERF, reason);
    }
    if let Some(reason) = path::no_iptables() {
        for way in Way::ALL.into_iter().filter(|way| way.needs_iptables()) {
            harness.absent(way.name(), reason.clone());
        }
    }
    let ways = Way::ALL.into_iter();
    let ways: Vec<Way> = ways
        .filter(|way| !way.needs_iptables() || path::no_iptables().is_none())
        .collect();
    harness.rounds(|round| {
        ways.iter().try_for_each(|way| {
            let path = Path::new(*way)?;
            let run = run(round, &path, missing.is_none());
            path.explain(run)
        })
    })
}

fn run(round: &mut Round<'_>, path: &Path, has_qperf: bool) -> Result<()> {
    let extent = round.extent();
    let bulk = path.ends().bulk(extent)?;
    let mut values = vec![(BULK, bulk)];
    if has_qperf {
        let report = qperf::measure(path.ends(), extent.pick(4, 1))?;
        values.extend([(BANDWIDTH, report.bandwidth), (LATENCY, report.latency)]);
    }
    round.keep(CASE, path.name(), &values);
    Ok(())
}

/// The table of the document.
pub fn sections(measured: &Measured) -> Result<Vec<Section>> {
    Ok(vec![Section::new("policy", table(measured).to_string())])
}

fn table(measured: &Measured) -> Table {
    let mut table = Table::new(&[
        "path",
        BANDWIDTH,
        "of nothing",
        "goal",
        LATENCY,
        "over nothing, us",
        "goal",
        "own load, MB/s",
        "of nothing",
    ]);
    let is_absent = |name: &str| measured.absent.iter().any(|absent| absent.path == name);
    for way in Way::ALL.into_iter().filter(|way| !is_absent(way.name())) {
        let value = |metric| spread(measured.summary(CASE, way.name(), metric));
        let ratio = |metric| measured.ratio(CASE, [way.name(), Way::Nothing.name()], metric);
        let judge = |goal: Option<Goal>, summary| match goal {
            Some(goal) if !is_absent(QPERF) => goal.judge(summary),
            _ => String::new(),
        };
        let over = over_nothing(measured, way);
        table.row([
            way.name().to_owned(),
            value(BANDWIDTH),
            spread(ratio(BANDWIDTH)),
            judge(way.goal(), ratio(BANDWIDTH)),
            value(LATENCY),
            spread(over),
            judge(way.goal().map(|_| Goal::AtMost(1.0)), over),
            value(BULK),
            spread(ratio(BULK)),
        ]);
    }
    for absent in &measured.absent {
        table.row([absent.to_string()]);
    }
    table
}

/// What a path adds to the latency of nothing in the same round, in microseconds.
fn over_nothing(measured: &Measured, way: Way) -> Option<Summary> {
    let latency = |way: Way| measured.values(CASE, way.name(), LATENCY);
    let over = paired(&latency(way), &latency(Way::Nothing), |one, nothing| {
        one - nothing
    });
    Summary::of(over.into_iter().map(|(_, over)| over))
}
