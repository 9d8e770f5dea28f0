//! Forwarding of TCP connections: by xdptun, by the kernel's NAT, by a proxy; beside a host that
//! only routes, and no host in between.
//!
//! Each round makes every path anew, so that no path has to step over closed connections of the
//! last one.

mod path;

use std::io::{Read as _, Write as _};
use std::time::Instant;

use anyhow::{Context, Result};
use xdptun_lab::crowd::{Crowd, Echo};

use super::tcp::{BULK, Ends, RATE, on_one_cpu, workers};
use crate::document::Section;
use crate::harness::{Harness, Round};
use crate::plot::Bars;
use crate::results::Measured;
use crate::statistics::percentile;
use crate::table::{Goal, Table, median, spread};
use path::{Path, Port, Way};

/// Numbers of connections, and the lengths of payload that they send at that number, in bytes:
/// those of a port forwarder's measurements of 2015, and more.
const ROWS: [(usize, &[usize]); 8] = [
    (12_000, &[LONG]),
    (14_000, &[LONG]),
    (16_000, &[SHORT, LONG]),
    (20_000, &[SHORT, LONG]),
    (24_000, &[SHORT]),
    (32_000, &[SHORT]),
    (40_000, &[SHORT]),
    (60_000, &[SHORT, LONG]),
];

/// Bytes of a request.
const SHORT: usize = 255;
/// See [`SHORT`].
const LONG: usize = 4000;

/// How often each connection sends.
const TIMES: u8 = 3;

const ECHO: &str = "echo ms";
const TRIP: &str = "round trip us, p50";

/// The case of what does not depend on the number of connections.
const ONE: &str = "one connection";

fn case(count: usize, length: usize) -> String {
    format!("{count} connections, {length} bytes")
}

/// Every path in turn, each made for that.
pub fn measure(harness: &mut Harness) -> Result<()> {
    let mut ways = Vec::new();
    for way in Way::ALL {
        match way.missing() {
            None => ways.push(way),
            Some(reason) => harness.absent(way.name(), reason),
        }
    }
    harness.absent(
        "realm",
        "no registry from which this project installs programs offers it",
    );
    harness.rounds(|round| {
        ways.iter().try_for_each(|way| {
            let path = Path::new(*way)?;
            let run = run(round, &path);
            path.explain(run)
        })
    })
}

fn run(round: &mut Round<'_>, path: &Path) -> Result<()> {
    let extent = round.extent();
    let trip = on_one_cpu(|| round_trip(path.ends(Port::Trip), extent.pick(3000, 100)))?;
    let bulk = path.ends(Port::Bulk).bulk(extent)?;
    let name = path.name();
    round.keep(ONE, name, &[(TRIP, trip), (BULK, bulk)]);
    let program = workers()?;
    let ends = path.ends(Port::Crowd);
    let _echo = Echo::start(&program, ends.server, ends.service)?;
    let mut crowd = Crowd::new(&program, ends.client, ends.entry)?;
    for (number, (count, lengths)) in ROWS.into_iter().enumerate() {
        let count = extent.pick(count, count / 100);
        let began = Instant::now();
        crowd.grow(count)?;
        if number == 0 {
            let rate = count as f64 / began.elapsed().as_secs_f64();
            round.keep(ONE, name, &[(RATE, rate)]);
        }
        for &length in lengths {
            let echoed = crowd.echo(length, TIMES)?;
            let mean = echoed.mean().as_secs_f64() * 1e3;
            round.keep(&case(count, length), name, &[(ECHO, mean)]);
        }
    }
    Ok(())
}

/// The median time of a byte there and back, in microseconds.
fn round_trip(ends: Ends<'_>, count: usize) -> Result<f64> {
    let _echo = Echo::start(&workers()?, ends.server, ends.service)?;
    let mut stream = ends.connect()?;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        stream.write_all(b"x")?;
        stream.read_exact(&mut [0])?;
        times.push(began.elapsed());
    }
    let median = percentile(&times, 0.5).context("no round trip")?;
    Ok(median.as_secs_f64() * 1e6)
}

/// The tables of the document.
pub fn sections(measured: &Measured) -> Result<Vec<Section>> {
    let of = Path::ROUTING;
    let mut single = Table::new(&[
        "path",
        TRIP,
        "of routing",
        "goal",
        BULK,
        "of routing",
        "goal",
        RATE,
        "of nft",
        "goal",
    ]);
    let ours = |path: &str| path.starts_with("xdptun");
    for path in measured.names(|sample| &sample.path) {
        let value = |metric| spread(measured.summary(ONE, path, metric));
        let ratio = |metric, of| measured.ratio(ONE, [path, of], metric);
        let judge = |goal: Goal, summary| match ours(path) {
            true => goal.judge(summary),
            false => String::new(),
        };
        let (trip, bulk) = (ratio(TRIP, of), ratio(BULK, of));
        let rate = ratio(RATE, Path::NFT);
        single.row([
            path.to_owned(),
            value(TRIP),
            spread(trip),
            judge(Goal::AtMost(1.1), trip),
            value(BULK),
            spread(bulk),
            judge(Goal::AtLeast(0.95), bulk),
            value(RATE),
            spread(rate),
            judge(Goal::AtLeast(1.5), rate),
        ]);
    }
    for absent in &measured.absent {
        single.row([absent.to_string()]);
    }
    let paths = measured.names(|sample| &sample.path);
    let mut columns = vec!["connections".to_owned()];
    columns.extend(paths.iter().map(|path| format!("{path}, ms")));
    columns.push("xdptun, of direct".to_owned());
    columns.push("goal".to_owned());
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut crowd = Table::new(&columns);
    let cases = measured.names(|sample| &sample.case);
    for case in cases.into_iter().filter(|case| *case != ONE) {
        let mut cells = vec![case.to_owned()];
        for path in &paths {
            cells.push(median(measured.summary(case, path, ECHO)));
        }
        let ratio = measured.ratio(case, [Path::XDPTUN, Path::DIRECT], ECHO);
        cells.push(spread(ratio));
        cells.push(Goal::AtMost(1.15).judge(ratio));
        crowd.row(cells);
    }
    Ok(vec![
        Section::new("forward", single.to_string()),
        Section::new("forward-crowd", crowd.to_string()).with_plot(plot(measured)),
    ])
}

fn plot(measured: &Measured) -> Bars {
    let mut bars = Bars::new("Echo time of many connections", "milliseconds");
    let paths = measured.names(|sample| &sample.path);
    for case in measured.names(|sample| &sample.case) {
        for (colour, path) in paths.iter().enumerate() {
            if case.starts_with("60000") {
                let label = format!("{path}, {case}");
                bars.add(label, colour, measured.summary(case, path, ECHO));
            }
        }
    }
    bars
}
