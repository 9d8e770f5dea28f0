//! The second measurement of the 2022 project, whose table was left empty: a file
//! over HTTP/3, from local port 8000.

use anyhow::{Result, ensure};
use xdptun_lab::Family;
use xdptun_lab::content::Filling;
use xdptun_lab::workspace;
use xdptun_test_h3::scenario::{Scenario, Sends};

use super::download::{self, CPU, SPEED};
use crate::cpu::busy_seconds;
use crate::document::Section;
use crate::glance::Headline;
use crate::harness::{Harness, Round};
use crate::plot::Bars;
use crate::results::Measured;
use crate::route::Route;
use crate::table::{Bar, Goal, Table};

/// The name of the file.
const FILE: &str = "test";

/// How the server hands datagrams to the kernel, and what xdptun has to keep.
const CASES: [(&str, Sends, Bar); 2] = [
    (
        "HTTP/3, GSO off",
        Sends::Single,
        Bar::goal(Goal::AtLeast(0.90)),
    ),
    ("HTTP/3, GSO on", Sends::Batches, download::GSO_BAR),
];

/// The path on which nothing cuts super-packets.
const UNSPLIT: &str = "direct, unsplit";

/// xdptun without GRO of what it restores.
const ONE_BY_ONE: &str = "xdptun, --gro off";

/// A server on a path.
struct Rig {
    route: Route,
    server: Scenario,
    digest: String,
}

impl Rig {
    fn new(route: Route, sends: Sends, mib: usize) -> Result<Self> {
        let programs = workspace::target_dir().join("release");
        let server = Scenario::sending(&route.net.a, &route.net.b, &programs, sends)?;
        let digest = server.provide(FILE, mib, Filling::Zeros)?;
        Ok(Self {
            route,
            server,
            digest,
        })
    }
}

/// Downloads the file with and without xdptun.
pub fn measure(harness: &mut Harness) -> Result<()> {
    let mib = harness.extent.pick(download::MIB, download::QUICK_MIB);
    harness.note(format!("{mib} MiB"));
    let mut rigs = Vec::new();
    for (case, sends, _) in CASES {
        let direct = Rig::new(Route::direct()?, sends, mib)?;
        if sends == Sends::Batches {
            download::split_super_packets(&direct.route.net.b, true)?;
            let unsplit = Route::direct_as(UNSPLIT)?;
            rigs.push((case, Rig::new(unsplit, sends, mib)?));
        }
        rigs.push((case, direct));
        let xdptun = Route::xdptun("xdptun", "auto")?;
        rigs.push((case, Rig::new(xdptun, sends, mib)?));
        let one_by_one = Route::xdptun_with(ONE_BY_ONE, &download::GRO_OFF)?;
        rigs.push((case, Rig::new(one_by_one, sends, mib)?));
    }
    harness.rounds(|round| {
        rigs.iter()
            .try_for_each(|(case, rig)| fetch(round, case, rig, mib))
    })
}

fn fetch(round: &mut Round<'_>, case: &str, rig: &Rig, mib: usize) -> Result<()> {
    let before = busy_seconds()?;
    let report = rig.server.fetch(Family::V4, &[FILE])?;
    let cpu = busy_seconds()? - before;
    ensure!(
        report
            .downloads
            .iter()
            .all(|file| file.sha256 == rig.digest),
        "the download differs from the file: {report:?}"
    );
    let speed = report.speed() / f64::from(1 << 20);
    let values = [(SPEED, speed), (CPU, download::of_gib(cpu, mib))];
    round.keep(case, rig.route.name, &values);
    Ok(())
}

/// The table of the document.
pub fn sections(measured: &Measured) -> Result<Vec<Section>> {
    let mut table = Table::new(&download::COLUMNS);
    for (case, sends, bar) in CASES {
        let unsplit = (sends == Sends::Batches).then_some((UNSPLIT, None));
        let paths = [("direct", None), ("xdptun", Some(bar)), (ONE_BY_ONE, None)];
        for (path, bar) in unsplit.into_iter().chain(paths) {
            table.row(download::row(measured, case, [path, "direct"], bar));
        }
    }
    let section = Section::new("h3", table.to_string());
    Ok(vec![section.with_plot(plot(measured))])
}

/// What of it stands in the first section.
pub fn headline(measured: &Measured) -> Headline {
    let ratio = measured.ratio(CASES[1].0, ["xdptun", "direct"], SPEED);
    Headline::rate("download over HTTP/3 (quinn, GSO on)", ratio)
}

fn plot(measured: &Measured) -> Bars {
    let paths = [UNSPLIT, "direct", "xdptun", ONE_BY_ONE];
    download::plot(measured, "A download over HTTP/3", &paths)
}
