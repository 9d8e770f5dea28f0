//! The rounds that every method goes through.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::results::{Absent, Measured, Sample};

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// As much as the document shows.
    Full,
    /// Whether it works at all: one counted round of little traffic, and no figure
    /// worth keeping.
    Quick,
}

impl Extent {
    /// One value or the other.
    pub fn pick<T>(self, full: T, quick: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }
}

/// A measurement in progress.
pub struct Harness {
    /// How much is measured.
    pub extent: Extent,
    started: Instant,
    measured: Measured,
}

impl Harness {
    /// Looks at the load of the machine, and starts the clock. A full measurement
    /// has `rounds` that count; one more comes first and does not.
    pub fn start(extent: Extent, rounds: u32) -> Result<Self> {
        let load = fs::read_to_string("/proc/loadavg")?;
        let load_before = load.split_whitespace().next();
        let load_before = load_before.and_then(|load| load.parse().ok());
        Ok(Self {
            extent,
            started: Instant::now(),
            measured: Measured {
                rounds: extent.pick(rounds, 1),
                load_before: load_before.context("/proc/loadavg")?,
                ..Measured::default()
            },
        })
    }

    /// Tells about a step that begins or a result that is in.
    pub fn say(&self, text: &str) {
        let elapsed = self.started.elapsed().as_secs_f64();
        eprintln!("[{elapsed:6.1} s] {text}");
    }

    /// Keeps something that the reader should know.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.say(&text);
        self.measured.notes.push(text);
    }

    /// Keeps why a path is not measured.
    pub fn absent(&mut self, path: &str, reason: impl Into<String>) {
        let reason = reason.into();
        self.say(&format!("{path}: {reason}"));
        self.measured.absent.push(Absent {
            path: path.to_owned(),
            reason,
        });
    }

    /// Runs the rounds. In each, `run` measures every path once, one after the
    /// other, so that whatever else changes on the machine meets all alike. The
    /// first is the warm-up and does not count.
    pub fn rounds(&mut self, mut run: impl FnMut(&mut Round<'_>) -> Result<()>) -> Result<()> {
        for number in 0..=self.measured.rounds {
            let mut round = Round {
                harness: self,
                number,
            };
            run(&mut round)?;
        }
        Ok(())
    }

    /// All that was measured.
    pub fn finish(self) -> Measured {
        self.measured
    }
}

/// One round.
pub struct Round<'a> {
    harness: &'a mut Harness,
    number: u32,
}

impl Round<'_> {
    /// How much is measured.
    pub fn extent(&self) -> Extent {
        self.harness.extent
    }

    /// Keeps values of one path, unless this is the warm-up, and shows them. A
    /// value that is not finite was not measured.
    pub fn keep(&mut self, case: &str, path: &str, values: &[(&str, f64)]) {
        let values: Vec<_> = values
            .iter()
            .filter(|(_, value)| value.is_finite())
            .collect();
        let texts = values.iter().map(|(metric, value)| {
            let digits = if value.abs() < 100.0 { 2 } else { 0 };
            format!("{metric} {value:.digits$}")
        });
        let text = texts.collect::<Vec<_>>().join(", ");
        let name = match self.number {
            0 => "warm-up".to_owned(),
            number => format!("round {number}"),
        };
        self.harness.say(&format!("{name}: {case}, {path}: {text}"));
        if self.number == 0 {
            return;
        }
        let samples = values.into_iter().map(|&(metric, value)| Sample {
            case: case.to_owned(),
            path: path.to_owned(),
            metric: metric.to_owned(),
            round: self.number,
            value,
        });
        self.harness.measured.samples.extend(samples);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_up_does_not_count() {
        let mut harness = Harness::start(Extent::Full, 7).unwrap();
        let mut runs = 0;
        harness
            .rounds(|round| {
                runs += 1;
                round.keep("case", "path", &[("metric", f64::from(runs))]);
                Ok(())
            })
            .unwrap();
        let values = harness.finish().values("case", "path", "metric");
        assert_eq!((runs, values.len()), (8, 7));
        assert_eq!(values[0], (1, 2.0));
    }
}
