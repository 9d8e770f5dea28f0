//! Connections of an IPv6-only client to an IPv4 server: through xdptun and Tayga, beside the same
//! path through NAT of IPv4, and through a host that only routes.

mod ab;
mod path;
mod tayga;
mod tools;

use anyhow::Result;

use super::nat::path::Port;
use super::tcp::{BULK, on_one_cpu};
use super::web::Web;
use crate::document::Section;
use crate::harness::{Harness, Round};
use crate::results::Measured;
use crate::table::{Goal, Table, spread};
use path::{Path, Way};

/// Requests of the reference measurement.
const REQUESTS: u32 = 50_000;

/// The case: there is one.
const CASE: &str = "tcp";

const RATE: &str = "requests/s";
const BACK: &str = "MB/s back";

/// The row of the reference measurement: 383.80 requests a second through its NAT64, 421.73 to the
/// same host without.
const REFERENCE: &str = "reference: agent for NAT64, of no NAT on one host";
const REFERENCE_RATIO: &str = "0.910";

/// The program, as a row without it names it.
const AB: &str = "ab";

/// Every path in turn, each made for that.
pub fn measure(harness: &mut Harness) -> Result<()> {
    let missing = tools::missing();
    if let Some(reason) = &missing {
        harness.absent(AB, reason);
        harness.absent(Way::Tayga.name(), reason);
    }
    let has_tools = missing.is_none();
    harness.absent(
        "Jool",
        "it is a kernel module, which needs the headers of this kernel",
    );
    harness.rounds(|round| {
        let ways = Way::ALL.into_iter();
        let mut ways = ways.filter(|way| has_tools || *way != Way::Tayga);
        ways.try_for_each(|way| {
            let path = Path::new(way)?;
            let run = run(round, &path, has_tools);
            path.explain(run)
        })
    })
}

fn run(round: &mut Round<'_>, path: &Path, has_ab: bool) -> Result<()> {
    let extent = round.extent();
    let ends = path.ends(Port::Bulk);
    let mut values = vec![(BULK, ends.bulk(extent)?), (BACK, ends.bulk_back(extent)?)];
    if has_ab {
        let rate = on_one_cpu(|| {
            let ends = path.ends(Port::Web);
            let _web = Web::start(ends)?;
            ab::measure(ends, extent.pick(REQUESTS, 500))
        })?;
        values.push((RATE, rate));
    }
    round.keep(CASE, path.name(), &values);
    Ok(())
}

/// The table of the document.
pub fn sections(measured: &Measured) -> Result<Vec<Section>> {
    Ok(vec![Section::new("nat64", table(measured).to_string())])
}

fn table(measured: &Measured) -> Table {
    let mut table = Table::new(&[
        "path",
        RATE,
        "of NAT44",
        "goal",
        BULK,
        "of routing",
        "goal",
        "of Tayga",
        "goal",
        BACK,
        "of routing",
        "goal",
        "of Tayga",
        "goal",
    ]);
    let is_absent = |name: &str| measured.absent.iter().any(|absent| absent.path == name);
    for way in Way::ALL.into_iter().filter(|way| !is_absent(way.name())) {
        let value = |metric| spread(measured.summary(CASE, way.name(), metric));
        let ratio = |metric, of: Way| measured.ratio(CASE, [way.name(), of.name()], metric);
        let judge = |goal: Goal, base: &str, summary| match way.is_judged() && !is_absent(base) {
            true => goal.judge(summary),
            false => String::new(),
        };
        let rate = ratio(RATE, way.nat44());
        let mut row = vec![
            way.name().to_owned(),
            value(RATE),
            spread(rate),
            judge(Goal::AtLeast(0.95), AB, rate),
        ];
        for metric in [BULK, BACK] {
            let (routing, tayga) = (ratio(metric, Way::ROUTING), ratio(metric, Way::Tayga));
            row.extend([
                value(metric),
                spread(routing),
                judge(Goal::AtLeast(0.9), Way::ROUTING.name(), routing),
                spread(tayga),
                judge(Goal::AtLeast(10.0), Way::Tayga.name(), tayga),
            ]);
        }
        table.row(row);
    }
    table.row([REFERENCE, "384", REFERENCE_RATIO].map(str::to_owned));
    for absent in &measured.absent {
        table.row([absent.to_string()]);
    }
    table
}
