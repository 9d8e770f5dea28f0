//! Code shared by the methods that download a file.

use anyhow::{Result, ensure};
use xdptun_lab::Host;

use crate::plot::Bars;
use crate::results::Measured;
use crate::table::{Bar, median, spread};

/// The file of the reference measurement.
pub const MIB: usize = 1024;

/// That of a quick run.
pub const QUICK_MIB: usize = 16;

/// The speed that the client reports.
pub const SPEED: &str = "MiB/s";

/// CPU time of the whole machine: both hosts, server and client included.
pub const CPU: &str = "CPU s per GiB";

/// Columns of every table.
pub const COLUMNS: [&str; 5] = ["path", SPEED, "ratio", "goal", CPU];

/// What GSO may cost, of a path whose sender's stack cuts super-packets
/// ([`split_super_packets`]).
pub const GSO_BAR: Bar = Bar::at_least(0.85, 0.95);

/// The options with which restored datagrams go up one by one.
pub const GRO_OFF: [&str; 2] = ["--gro", "off"];

/// Makes the stack of a sender cut UDP super-packets before they leave, as it does for most
/// network cards. Otherwise they cross a veth pair in one piece, which no wire carries.
pub fn split_super_packets(host: &Host, split: bool) -> Result<()> {
    host.offload(UDP_SEGMENTATION, !split)?;
    let on = host.offloads(UDP_SEGMENTATION)?;
    ensure!(on != split, "{UDP_SEGMENTATION} does not change");
    Ok(())
}

const UDP_SEGMENTATION: &str = "tx-udp-segmentation";

/// CPU time of a whole GiB.
pub fn of_gib(seconds: f64, mib: usize) -> f64 {
    seconds * 1024.0 / mib as f64
}

/// The row of a path, its ratio that to another one.
pub fn row(
    measured: &Measured,
    case: &str,
    [path, of]: [&str; 2],
    bar: Option<Bar>,
) -> [String; 5] {
    let ratio = measured.ratio(case, [path, of], SPEED);
    [
        format!("{case}: {path}"),
        spread(measured.summary(case, path, SPEED)),
        spread(ratio),
        bar.map_or_else(String::new, |bar| bar.judge(ratio)),
        median(measured.summary(case, path, CPU)),
    ]
}

/// A bar for each path of each case.
pub fn plot(measured: &Measured, title: &str, paths: &[&str]) -> Bars {
    let mut bars = Bars::new(title, SPEED);
    for case in measured.names(|sample| &sample.case) {
        for (colour, path) in paths.iter().enumerate() {
            let label = format!("{case}: {path}");
            bars.add(label, colour, measured.summary(case, path, SPEED));
        }
    }
    bars
}
