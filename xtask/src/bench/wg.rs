//! `cargo xtask bench wg`: the reference measurement of the 2022 project.
//!
//! A file of zeros, `python3 -m http.server`, `curl -O`: direct, over WireGuard,
//! over WireGuard over xdptun. The runs are interleaved, so that whatever else
//! changes on the machine meets all three alike, and nothing captures.

use std::fmt::Write as _;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use xdptun_lab::content::Filling;
use xdptun_test_wg::{Between, Implementation, Path, Scenario};

use super::cpu::busy_seconds;
use super::statistics::Summary;
use crate::document::{write_results, write_table};
use crate::machine::Machine;
use crate::progress::Progress;
use crate::shell::Supervised;
use crate::{build, setup, worker};

/// Options of `cargo xtask bench wg`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// 128 MiB and 3 rounds instead of 1 GiB and 7: is something broken?
    #[arg(long)]
    quick: bool,
}

/// How much is measured.
struct Extent {
    mib: usize,
    /// Counted rounds; one more comes first and does not count.
    rounds: u32,
}

impl Args {
    fn extent(&self) -> Extent {
        if self.quick {
            Extent {
                mib: 128,
                rounds: 3,
            }
        } else {
            Extent {
                mib: 1024,
                rounds: 7,
            }
        }
    }
}

/// What is kept of a measurement.
#[derive(Debug, Serialize)]
struct Results {
    machine: Machine,
    #[serde(flatten)]
    measured: Measured,
}

/// What root hands back.
#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    wireguard: String,
    mib: usize,
    runs: Vec<Run>,
}

/// One counted download.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Run {
    path: String,
    round: u32,
    mib_s: f64,
    seconds: f64,
    cpu_seconds: f64,
}

/// Builds, lets root measure, and writes the results as the user.
pub fn run(args: &Args) -> Result<()> {
    setup::ensure()?;
    let machine = Machine::this()?;
    build::for_worker(None)?;
    if machine.load_before > 0.5 {
        eprintln!(
            "the load average is {}: what else runs here will show in the numbers",
            machine.load_before
        );
    }
    let mut command = worker::command("bench-wg")?;
    if args.quick {
        command.arg("--quick");
    }
    let mut child = Supervised::spawn(command.stdout(Stdio::piped()))?;
    let output = child.child().stdout.take().context("no output")?;
    let output = std::io::read_to_string(output)?;
    let status = child.wait()?;
    ensure!(status.success(), "the measurement failed: {status}");
    let results = Results {
        machine,
        measured: serde_json::from_str(&output).context("results of the measurement")?,
    };
    let table = results.table()?;
    write_results("wg", &results)?;
    write_table("BENCHMARKS.md", "bench:wg", &table)?;
    print!("{table}");
    Ok(())
}

/// Measures, as root; prints the results as JSON.
pub fn measure(args: &Args) -> Result<()> {
    let extent = args.extent();
    let progress = Progress::start();
    let wireguard = Implementation::chosen()?;
    progress.say(&format!(
        "a file of {} MiB, {} rounds after a warm-up, {wireguard}",
        extent.mib, extent.rounds
    ));
    let scenario = Scenario::new(Between::Wire, extent.mib, Filling::Zeros)?;
    let mut runs = Vec::new();
    for round in 0..=extent.rounds {
        for path in Path::ALL {
            let run = download(&scenario, path, round)?;
            let counted = if round == 0 { " (warm-up)" } else { "" };
            progress.say(&format!(
                "round {round}: {path:<22} {:7.1} MiB/s, {:5.2} s of CPU{counted}",
                run.mib_s, run.cpu_seconds
            ));
            if round > 0 {
                runs.push(run);
            }
        }
    }
    let measured = Measured {
        wireguard: wireguard.to_string(),
        mib: extent.mib,
        runs,
    };
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

fn download(scenario: &Scenario, path: Path, round: u32) -> Result<Run> {
    let attached = match path {
        Path::Xdptun => Some(scenario.attach()?),
        Path::Direct | Path::WireGuard => None,
    };
    // Neither WireGuard's handshake nor xdptun's is part of the measurement.
    scenario.ping()?;
    let before = busy_seconds()?;
    let download = scenario.fetch(path, |_| {})?;
    let cpu_seconds = busy_seconds()? - before;
    scenario.verify(&download)?;
    for attached in attached.into_iter().flatten() {
        attached.stop()?;
    }
    Ok(Run {
        path: path.to_string(),
        round,
        mib_s: download.mib_s,
        seconds: download.time.as_secs_f64(),
        cpu_seconds,
    })
}

impl Results {
    /// The table of BENCHMARKS.md.
    fn table(&self) -> Result<String> {
        let wireguard = self.summary(Path::WireGuard, |run| run.mib_s)?.median;
        let mut text = String::from(
            "| path | MiB/s, median | min to max | of WireGuard | CPU seconds per GiB, median |\n\
             |---|---:|---:|---:|---:|\n",
        );
        for path in Path::ALL {
            let speed = self.summary(path, |run| run.mib_s)?;
            let cpu = self.summary(path, |run| {
                run.cpu_seconds * 1024.0 / self.measured.mib as f64
            })?;
            writeln!(
                text,
                "| {path} | {:.1} | {:.1} to {:.1} | {:.3} | {:.2} |",
                speed.median,
                speed.min,
                speed.max,
                speed.median / wireguard,
                cpu.median
            )?;
        }
        let Machine {
            cpu,
            cores,
            kernel,
            commit,
            date,
            load_before,
        } = &self.machine;
        let rounds = self
            .measured
            .runs
            .iter()
            .map(|run| run.round)
            .max()
            .unwrap_or(0);
        write!(
            text,
            "\n{} MiB, {rounds} counted rounds, interleaved; {}; {cpu}, {cores} cores, \
             load {load_before} before, Linux {kernel}, commit {commit}, {date}.\n",
            self.measured.mib, self.measured.wireguard
        )?;
        Ok(text)
    }

    fn summary(&self, path: Path, value: impl Fn(&Run) -> f64) -> Result<Summary> {
        let name = path.to_string();
        let runs = self.measured.runs.iter().filter(|run| run.path == name);
        Summary::of(runs.map(value)).with_context(|| format!("no run of {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_medians_and_ratios() {
        let run = |path: Path, round, mib_s| Run {
            path: path.to_string(),
            round,
            mib_s,
            seconds: 1.0,
            cpu_seconds: 2.0,
        };
        let results = Results {
            machine: Machine {
                cpu: "CPU".into(),
                cores: 2,
                kernel: "6.18".into(),
                commit: "abc".into(),
                date: "2026-01-01".into(),
                load_before: 0.5,
            },
            measured: Measured {
                wireguard: "boringtun".into(),
                mib: 512,
                runs: vec![
                    run(Path::Direct, 1, 900.0),
                    run(Path::WireGuard, 1, 80.0),
                    run(Path::WireGuard, 2, 100.0),
                    run(Path::WireGuard, 3, 1.0),
                    run(Path::Xdptun, 1, 76.0),
                ],
            },
        };
        let table = results.table().unwrap();
        assert!(
            table.contains("| WireGuard | 80.0 | 1.0 to 100.0 | 1.000 | 4.00 |"),
            "{table}"
        );
        assert!(table.contains("| WireGuard over xdptun | 76.0 | 76.0 to 76.0 | 0.950 | 4.00 |"));
        assert!(table.contains("512 MiB, 3 counted rounds"), "{table}");
    }
}
