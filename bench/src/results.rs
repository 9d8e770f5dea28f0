//! Results: every single value, in a layout that all methods share.

use std::fmt;

use serde::{Deserialize, Serialize};
use xdptun_lab::machine::Machine;

use crate::statistics::Summary;

/// Version of the layout of `bench/results/*.json`. Changes with the meaning of
/// a field.
pub const SCHEMA: u32 = 1;

/// A file of `bench/results`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The machine, the commit and the date.
    pub machine: Machine,
    /// The values.
    #[serde(flatten)]
    pub measured: Measured,
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine {
            cpu,
            cores,
            kernel,
            commit,
            date,
        } = &self.machine;
        let Measured {
            rounds,
            load_before,
            notes,
            ..
        } = &self.measured;
        for note in notes {
            write!(f, "{note}; ")?;
        }
        write!(
            f,
            "{rounds} counted rounds, interleaved; {cpu}, {cores} cores, load {load_before} \
             before, Linux {kernel}, commit {commit}, {date}."
        )
    }
}

/// The values that the run as root hands back.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Counted rounds; one more came first.
    pub rounds: u32,
    /// Load average of the minute before: how busy other programs kept the machine.
    pub load_before: f64,
    /// Notes for the reader: choices, findings.
    pub notes: Vec<String>,
    /// Paths that could not be measured, and why.
    pub absent: Vec<Absent>,
    /// All values of the counted rounds.
    pub samples: Vec<Sample>,
}

/// A path that could not be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// Its name.
    pub path: String,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, reason } = self;
        write!(f, "{path}: absent; {reason}")
    }
}

/// One value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The kind of traffic: `complete checksums`, ...
    pub case: String,
    /// The way it took: `direct`, `xdptun`, a program, ...
    pub path: String,
    /// The metric, with its unit.
    pub metric: String,
    /// The round, from 1 on.
    pub round: u32,
    /// The value.
    pub value: f64,
}

impl Measured {
    /// The values of one metric of one path, by round.
    pub fn values(&self, case: &str, path: &str, metric: &str) -> Vec<(u32, f64)> {
        let samples = self
            .samples
            .iter()
            .filter(|sample| sample.case == case && sample.path == path && sample.metric == metric);
        samples.map(|sample| (sample.round, sample.value)).collect()
    }

    /// Median and spread of the rounds; `None` if it was not measured.
    pub fn summary(&self, case: &str, path: &str, metric: &str) -> Option<Summary> {
        let values = self.values(case, path, metric);
        Summary::of(values.into_iter().map(|(_, value)| value))
    }

    /// Median and spread of `path` over `of`, each round for itself: a change
    /// of the machine between rounds met both alike.
    pub fn ratio(&self, case: &str, [path, of]: [&str; 2], metric: &str) -> Option<Summary> {
        ratios(
            &self.values(case, path, metric),
            &self.values(case, of, metric),
        )
    }

    /// Names in the order in which they were measured first.
    pub fn names(&self, name: impl Fn(&Sample) -> &str) -> Vec<&str> {
        let mut names = Vec::new();
        for sample in &self.samples {
            let name = name(sample);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

/// Values over those of the same round.
fn ratios(values: &[(u32, f64)], base: &[(u32, f64)]) -> Option<Summary> {
    let ratios = paired(values, base, |value, base| value / base);
    Summary::of(ratios.into_iter().map(|(_, ratio)| ratio))
}

/// Values combined with those of the same round.
pub fn paired(
    values: &[(u32, f64)],
    others: &[(u32, f64)],
    combine: impl Fn(f64, f64) -> f64,
) -> Vec<(u32, f64)> {
    let pairs = values.iter().filter_map(|&(round, value)| {
        let (_, other) = others.iter().find(|(other, _)| *other == round)?;
        Some((round, combine(value, *other)))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(path: &str, round: u32, value: f64) -> Sample {
        Sample {
            case: "c".into(),
            path: path.into(),
            metric: "m".into(),
            round,
            value,
        }
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let measured = Measured {
            samples: vec![
                sample("a", 1, 10.0),
                sample("b", 1, 9.0),
                sample("a", 2, 100.0),
                sample("b", 2, 80.0),
                sample("b", 3, 1.0),
            ],
            ..Measured::default()
        };
        let ratio = measured.ratio("c", ["b", "a"], "m").unwrap();
        assert_eq!((ratio.min, ratio.max), (0.8, 0.9));
        assert_eq!(measured.summary("c", "b", "m").unwrap().median, 9.0);
        assert_eq!(measured.summary("c", "b", "other"), None);
        assert_eq!(measured.names(|sample| &sample.path), ["a", "b"]);
    }
}
