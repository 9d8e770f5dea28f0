//! The method of `udp` with the programs that a user would take instead.

use anyhow::Result;

use super::udp;
use crate::document::Section;
use crate::glance::{Better, Headline};
use crate::harness::Harness;
use crate::phantun;
use crate::plot::Bars;
use crate::results::Measured;
use crate::route::Route;
use crate::table::{Table, spread};

/// Final checksums, which every one of them takes.
const CASE: &str = "complete";

/// Peers that none of the registries offers from which this project installs programs.
const UNAVAILABLE: [(&str, &str); 2] = [
    ("udp2raw", "neither Debian nor crates.io offers it"),
    (
        "mimic",
        "it needs a kernel module of its own (Debian: mimic-dkms)",
    ),
];

/// Direct, xdptun, and each peer that is there.
pub fn measure(harness: &mut Harness) -> Result<()> {
    let mut routes = vec![Route::direct()?, Route::xdptun("xdptun", "auto")?];
    match phantun::missing() {
        None => routes.push(phantun::route()?),
        Some(reason) => harness.absent("phantun", reason),
    }
    for (path, reason) in UNAVAILABLE {
        harness.absent(path, reason);
    }
    for route in &routes {
        route.net.offload("tx", false)?;
    }
    harness.rounds(|round| {
        routes
            .iter()
            .try_for_each(|route| route.explain(udp::run(round, CASE, route)))
    })
}

/// The table of the document: a row for each path.
pub fn sections(measured: &Measured) -> Result<Vec<Section>> {
    let metrics = udp::METRICS.map(|(metric, _)| metric);
    let mut columns = vec!["path", "of direct, saturated", "of direct, < 0.5 % lost"];
    columns.extend(metrics);
    let mut table = Table::new(&columns);
    for path in measured.names(|sample| &sample.path) {
        let ratio = |metric| spread(measured.ratio(CASE, [path, "direct"], metric));
        let ratios = [metrics[0], metrics[2]].map(ratio);
        let values = metrics.map(|metric| spread(measured.summary(CASE, path, metric)));
        let cells = [path.to_owned()].into_iter().chain(ratios);
        table.row(cells.chain(values));
    }
    for absent in &measured.absent {
        table.row([absent.to_string()]);
    }
    let section = Section::new("peers", table.to_string());
    Ok(vec![section.with_plot(plot(measured))])
}

/// What of it stands in the first section.
pub fn headlines(measured: &Measured) -> [Headline; 2] {
    let of = |path, metric| measured.ratio(CASE, [path, "direct"], metric);
    [
        ("datagrams a second, one flow", Better::More, udp::SATURATED),
        ("round trip of a datagram", Better::Less, udp::ROUND_TRIP),
    ]
    .map(|(what, better, metric)| Headline {
        what,
        better,
        xdptun: of("xdptun", metric),
        phantun: of("phantun", metric),
    })
}

fn plot(measured: &Measured) -> Bars {
    let mut bars = Bars::new("Datagrams of 1,400 bytes", "received in a second");
    for (metric, _) in udp::METRICS
        .iter()
        .filter(|(metric, _)| metric.starts_with("received"))
    {
        for (colour, path) in measured
            .names(|sample| &sample.path)
            .into_iter()
            .enumerate()
        {
            let label = format!("{path}, {}", metric.trim_start_matches("received/s, "));
            bars.add(label, colour, measured.summary(CASE, path, metric));
        }
    }
    bars
}
