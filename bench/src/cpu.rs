//! Processor time of the whole machine.

use std::fs;

use anyhow::{Context, Result};

/// Seconds that all cores together have worked since boot.
///
/// System-wide, because the work of a tunnel is spread over processes, system
/// calls and interrupts, and the kernel charges interrupts to no process.
pub fn busy_seconds() -> Result<f64> {
    let stat = fs::read_to_string("/proc/stat").context("/proc/stat")?;
    busy_ticks(&stat)
        .map(|ticks| ticks / TICKS_PER_SECOND)
        .context("/proc/stat has no line for all cores")
}

/// `USER_HZ`: the unit of /proc/stat, 100 on every architecture Linux has.
const TICKS_PER_SECOND: f64 = 100.0;

/// user, nice, system, irq and softirq; not idle, iowait and steal. Guest time
/// is part of user.
fn busy_ticks(stat: &str) -> Option<f64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<f64> = line
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    [0, 1, 2, 5, 6]
        .iter()
        .map(|index| fields.get(*index))
        .sum::<Option<f64>>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_what_is_work() {
        let stat = "cpu  1 2 4 1000 2000 8 16 4000 0 0\ncpu0 0 0 0 0\n";
        assert_eq!(busy_ticks(stat), Some(31.0));
        assert_eq!(busy_ticks("intr 5\n"), None);
    }
}
