//! qperf, which measures TCP between two hosts.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use xdptun_lab::command::run;
use xdptun_lab::{Process, wait, workspace};

use super::path::with_libraries;
use crate::methods::tcp::Ends;

/// What it says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Report {
    /// Megabytes a second of one connection.
    pub bandwidth: f64,
    /// Half a round trip, in microseconds.
    pub latency: f64,
}

/// The port by which its ends agree on a test.
const PORT: u16 = 19765;

fn program() -> PathBuf {
    workspace::root().join(".tools/qperf/usr/bin/qperf")
}

/// Why it cannot measure, if it cannot.
pub fn missing() -> Option<String> {
    let program = program();
    (!program.is_file()).then(|| {
        let path = program.display();
        format!("{path}: no such file; `cargo xtask bench policy` unpacks Debian's package")
    })
}

/// Measures each test for so many seconds.
pub fn measure(ends: Ends<'_>, seconds: u32) -> Result<Report> {
    let mut server = ends.server.command(program());
    let _server = Process::spawn(with_libraries(&mut server))?;
    let mut address = ends.entry;
    address.set_port(PORT);
    let listens = || {
        let connected = ends
            .client
            .enter(|| std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1)));
        connected.is_ok_and(|connected| connected.is_ok())
    };
    wait::until(Duration::from_secs(10), "qperf to listen", listens)?;
    let mut command = ends.client.command(program());
    with_libraries(&mut command);
    command.args([&ends.entry.ip().to_string(), "-t", &seconds.to_string()]);
    let text = run(command.args(["tcp_bw", "tcp_lat"]))?;
    parse(&text).with_context(|| text.clone())
}

fn parse(text: &str) -> Result<Report> {
    let bandwidth = value(
        text,
        "bw",
        &[("KB/sec", 1e-3), ("MB/sec", 1.0), ("GB/sec", 1e3)],
    )?;
    let latency = value(text, "latency", &[("ns", 1e-3), ("us", 1.0), ("ms", 1e3)])?;
    Ok(Report { bandwidth, latency })
}

/// The number behind `name` and `=`, in the first of these units that has the factor 1.
fn value(text: &str, name: &str, units: &[(&str, f64)]) -> Result<f64> {
    let mut lines = text.lines().filter_map(|line| line.split_once('='));
    let found = lines.find(|(left, _)| left.trim() == name);
    let (_, right) = found.with_context(|| format!("qperf prints no `{name}`"))?;
    let (number, unit) = right.trim().split_once(' ').context("no unit")?;
    let number: f64 = number.replace(',', "").parse()?;
    let factor = units.iter().find(|(name, _)| *name == unit.trim());
    let (_, factor) = factor.with_context(|| format!("an unknown unit `{unit}`"))?;
    Ok(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_told_apart() {
        let text = "tcp_bw:\n    bw  =  2.59 GB/sec\ntcp_lat:\n    latency  =  29.2 us\n";
        let report = Report {
            bandwidth: 2590.0,
            latency: 29.2,
        };
        assert_eq!(parse(text).unwrap(), report);
        let text = text.replace("GB/sec", "MB/sec").replace("us", "ms");
        let report = parse(&text).unwrap();
        assert!((report.bandwidth - 2.59).abs() < 1e-9);
        assert!((report.latency - 29_200.0).abs() < 1e-6);
        assert!(parse("bw = 1 B/sec").is_err());
    }
}
