//! Code shared by the methods that download a file.

use crate::plot::Bars;
use crate::results::Measured;
use crate::table::{Goal, median, spread};

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

/// CPU time of a whole GiB.
pub fn of_gib(seconds: f64, mib: usize) -> f64 {
    seconds * 1024.0 / mib as f64
}

/// The row of a path, its ratio that to another one.
pub fn row(
    measured: &Measured,
    case: &str,
    [path, of]: [&str; 2],
    goal: Option<Goal>,
) -> [String; 5] {
    let ratio = measured.ratio(case, [path, of], SPEED);
    [
        format!("{case}: {path}"),
        spread(measured.summary(case, path, SPEED)),
        spread(ratio),
        goal.map_or_else(String::new, |goal| goal.judge(ratio)),
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
