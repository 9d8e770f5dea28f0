//! The reference measurement of the 2022 project.
//!
//! A file of zeros, `python3 -m http.server`, `curl -O`: direct, over WireGuard,
//! over WireGuard over xdptun. Nothing captures.

use anyhow::Result;
use xdptun_lab::content::Filling;
use xdptun_test_wg::{Between, Implementation, Path, Scenario};

use super::download::{self, CPU, SPEED};
use crate::cpu::busy_seconds;
use crate::document::Section;
use crate::harness::{Harness, Round};
use crate::results::Measured;
use crate::table::{Bar, Table};

/// The only case.
const CASE: &str = "HTTP/1.0";

/// The paths by name, in the order of the reference.
const PATHS: [&str; 3] = ["direct", "WireGuard", "WireGuard over xdptun"];

/// Downloads the file by every path.
pub fn measure(harness: &mut Harness) -> Result<()> {
    let mib = harness.extent.pick(download::MIB, download::QUICK_MIB);
    harness.note(format!("{mib} MiB"));
    harness.note(Implementation::chosen()?.to_string());
    let scenario = Scenario::new(Between::Wire, mib, Filling::Zeros)?;
    harness.rounds(|round| {
        Path::ALL
            .into_iter()
            .try_for_each(|path| fetch(round, &scenario, path, mib))
    })
}

fn fetch(round: &mut Round<'_>, scenario: &Scenario, path: Path, mib: usize) -> Result<()> {
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
    round.record(CASE, &path.to_string(), &values);
    Ok(())
}

/// The table of the document.
pub fn sections(measured: &Measured) -> Vec<Section> {
    let [direct, wireguard, xdptun] = PATHS;
    let mut table = Table::new(&download::COLUMNS);
    for (path, bar) in [
        (direct, None),
        (wireguard, None),
        (xdptun, Some(Bar::AtLeast(0.95))),
    ] {
        table.row(download::row(measured, CASE, [path, wireguard], bar));
    }
    vec![Section::new("wg", table.to_string())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_the_names_of_the_scenario() {
        assert_eq!(Path::ALL.map(|path| path.to_string()), PATHS);
    }
}
