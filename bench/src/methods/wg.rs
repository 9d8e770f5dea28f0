//! The reference measurement of the 2022 project.
//!
//! A file of zeros, `python3 -m http.server`, `curl -O`: direct, over WireGuard,
//! over WireGuard over xdptun. Nothing captures.

use anyhow::Result;
use xdptun_lab::content::Filling;
use xdptun_test_wg::user_space::Program;
use xdptun_test_wg::{Between, Implementation, Path, Scenario};

use super::download::{self, CPU, SPEED};
use crate::cpu::busy_seconds;
use crate::document::Section;
use crate::glance::Headline;
use crate::harness::{Harness, Round};
use crate::plot::Bars;
use crate::results::Measured;
use crate::table::{Bar, Goal, Table};

/// The paths by name, in the order of the reference.
const PATHS: [&str; 3] = ["direct", "WireGuard", "WireGuard over xdptun"];

/// The WireGuard of this machine, as the reference has it.
const OWN: &str = "HTTP/1.0";

/// wireguard-go: how the stack hands it packets, and what xdptun has to keep.
const GO: [(&str, bool, Bar); 2] = [
    (
        "wireguard-go, GSO off",
        false,
        Bar::goal(Goal::AtLeast(0.95)),
    ),
    ("wireguard-go, GSO on", true, download::GSO_BAR),
];

/// The path on which nothing cuts super-packets.
const UNSPLIT: &str = "WireGuard, unsplit";

/// xdptun without GRO of what it restores.
const ONE_BY_ONE: &str = "WireGuard over xdptun, --gro off";

/// Downloads the file by every path.
pub fn measure(harness: &mut Harness) -> Result<()> {
    let mib = harness.extent.pick(download::MIB, download::QUICK_MIB);
    harness.note(format!("{mib} MiB"));
    let own = Implementation::chosen()?;
    harness.note(format!("{OWN} over {own}"));
    let scenario = |by| Scenario::by(by, Between::Wire, mib, Filling::Zeros);
    let own = scenario(own)?;
    let go = if Program::WireguardGo.path().is_file() {
        Some(scenario(Implementation::WireguardGo)?)
    } else {
        let path = Program::WireguardGo.path();
        harness.absent("wireguard-go", format!("{}: no such file", path.display()));
        None
    };
    harness.rounds(|round| {
        for path in Path::ALL {
            fetch(round, &own, (OWN, path, &path.to_string()), mib)?;
        }
        for (case, segmentation, _) in GO {
            let Some(go) = &go else { continue };
            go.segmentation(segmentation)?;
            if segmentation {
                fetch(round, go, (case, Path::WireGuard, UNSPLIT), mib)?;
            }
            download::split_super_packets(&go.server, true)?;
            let name = Path::WireGuard.to_string();
            fetch(round, go, (case, Path::WireGuard, &name), mib)?;
            download::split_super_packets(&go.server, false)?;
            let name = Path::Xdptun.to_string();
            fetch(round, go, (case, Path::Xdptun, &name), mib)?;
            fetch(round, go, (case, Path::Xdptun, ONE_BY_ONE), mib)?;
        }
        Ok(())
    })
}

fn fetch(
    round: &mut Round<'_>,
    scenario: &Scenario,
    (case, path, name): (&str, Path, &str),
    mib: usize,
) -> Result<()> {
    let attached = match path {
        Path::Xdptun if name == ONE_BY_ONE => Some(scenario.attach_with(&download::GRO_OFF)?),
        Path::Xdptun => Some(scenario.attach()?),
        Path::Direct | Path::WireGuard => None,
    };
    // Neither WireGuard's handshake nor xdptun's is part of the measurement.
    scenario.ping()?;
    let before = busy_seconds()?;
    let download = scenario.fetch(path, |_| {})?;
    let cpu = busy_seconds()? - before;
    scenario.verify(&download)?;
    for attached in attached.into_iter().flatten() {
        attached.stop()?;
    }
    let values = [(SPEED, download.mib_s), (CPU, download::of_gib(cpu, mib))];
    round.keep(case, name, &values);
    Ok(())
}

/// The table of the document.
pub fn sections(measured: &Measured) -> Result<Vec<Section>> {
    let [direct, wireguard, xdptun] = PATHS;
    let mut table = Table::new(&download::COLUMNS);
    let own = [
        (direct, None),
        (wireguard, None),
        (xdptun, Some(Bar::goal(Goal::AtLeast(0.95)))),
    ];
    for (path, bar) in own {
        table.row(download::row(measured, OWN, [path, wireguard], bar));
    }
    let cases = measured.names(|sample| &sample.case);
    for (case, segmentation, bar) in GO.into_iter().filter(|(case, ..)| cases.contains(case)) {
        let unsplit = segmentation.then_some((UNSPLIT, None));
        let paths = [(wireguard, None), (xdptun, Some(bar)), (ONE_BY_ONE, None)];
        for (path, bar) in unsplit.into_iter().chain(paths) {
            table.row(download::row(measured, case, [path, wireguard], bar));
        }
    }
    for absent in &measured.absent {
        table.row([absent.to_string()]);
    }
    let section = Section::new("wg", table.to_string());
    Ok(vec![section.with_plot(plot(measured))])
}

/// What of it stands in the first section.
pub fn headline(measured: &Measured) -> Headline {
    let ratio = measured.ratio(OWN, [PATHS[2], PATHS[1]], SPEED);
    Headline::rate("download over WireGuard (boringtun)", ratio)
}

fn plot(measured: &Measured) -> Bars {
    let [_, wireguard, xdptun] = PATHS;
    let paths = [UNSPLIT, wireguard, xdptun, ONE_BY_ONE];
    download::plot(measured, "A download over WireGuard", &paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_the_names_of_the_scenario() {
        assert_eq!(Path::ALL.map(|path| path.to_string()), PATHS);
    }
}
