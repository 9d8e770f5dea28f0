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
use crate::harness::{Harness, Round};
use crate::plot::Bars;
use crate::results::Measured;
use crate::table::{Goal, Table};

/// The paths by name, in the order of the reference.
const PATHS: [&str; 3] = ["direct", "WireGuard", "WireGuard over xdptun"];

/// The WireGuard of this machine, as the reference has it.
const OWN: &str = "HTTP/1.0";

/// wireguard-go: how the stack hands it packets, and the goal. With
/// GSO its datagrams cross a veth pair unsplit, which no wire does.
const GO: [(&str, bool, Goal); 2] = [
    ("wireguard-go, GSO off", false, Goal::AtLeast(0.95)),
    ("wireguard-go, GSO on", true, Goal::AtLeast(0.70)),
];

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
            fetch(round, &own, (OWN, path), mib)?;
        }
        for (case, segmentation, _) in GO {
            let Some(go) = &go else { continue };
            go.segmentation(segmentation)?;
            for path in [Path::WireGuard, Path::Xdptun] {
                fetch(round, go, (case, path), mib)?;
            }
        }
        Ok(())
    })
}

fn fetch(
    round: &mut Round<'_>,
    scenario: &Scenario,
    (case, path): (&str, Path),
    mib: usize,
) -> Result<()> {
    let attached = match path {
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
    round.keep(case, &path.to_string(), &values);
    Ok(())
}

/// The table of the document.
pub fn sections(measured: &Measured) -> Result<Vec<Section>> {
    let [direct, wireguard, xdptun] = PATHS;
    let mut table = Table::new(&download::COLUMNS);
    let own = [
        (direct, None),
        (wireguard, None),
        (xdptun, Some(Goal::AtLeast(0.95))),
    ];
    for (path, goal) in own {
        table.row(download::row(measured, OWN, [path, wireguard], goal));
    }
    let cases = measured.names(|sample| &sample.case);
    for (case, _, goal) in GO.into_iter().filter(|(case, ..)| cases.contains(case)) {
        for (path, goal) in [(wireguard, None), (xdptun, Some(goal))] {
            table.row(download::row(measured, case, [path, wireguard], goal));
        }
    }
    for absent in &measured.absent {
        table.row([absent.to_string()]);
    }
    let section = Section::new("wg", table.to_string());
    Ok(vec![section.with_plot(plot(measured))])
}

fn plot(measured: &Measured) -> Bars {
    let paths = PATHS.into_iter().filter(|path| *path != "direct");
    download::plot(
        measured,
        "A download over WireGuard",
        &paths.collect::<Vec<_>>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_the_names_of_the_scenario() {
        assert_eq!(Path::ALL.map(|path| path.to_string()), PATHS);
    }
}
