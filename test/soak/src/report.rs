//! The results of a run: as a table, and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

use crate::disturbance::Kind;
use crate::journal::{Finding, Findings, Flaw};
use crate::ledger::Ledger;
use crate::wire::Seen;
use crate::world::Ended;

/// How clients got on after disturbances of one kind.
#[derive(Debug, Clone, Default)]
pub struct Recoveries {
    applied: u64,
    /// A time for each client and disturbance.
    times: Vec<Duration>,
    /// How often a client got nothing any more.
    never: u64,
}

impl Recoveries {
    /// Adds those after one disturbance.
    pub fn add(&mut self, times: &[Option<Duration>]) {
        self.applied += 1;
        for time in times {
            match time {
                Some(time) => self.times.push(*time),
                None => self.never += 1,
            }
        }
        self.times.sort();
    }

    fn row(&self, kind: Kind) -> Row {
        let millis = |time: &Duration| (time.as_secs_f64() * 1e3).round();
        Row {
            kind: kind.name(),
            applied: self.applied,
            median_ms: self.times.get(self.times.len() / 2).map(millis),
            max_ms: self.times.last().map(millis),
            never: self.never,
        }
    }
}

/// A kind of disturbances.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    kind: &'static str,
    applied: u64,
    /// Until a client's next answer, on each of its sockets.
    median_ms: Option<f64>,
    max_ms: Option<f64>,
    never: u64,
}

/// Totals of datagrams.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Datagrams {
    /// Sent by clients, and arrived at the server.
    asked: u64,
    heard: u64,
    /// Sent by the server, and arrived at the clients.
    answered: u64,
    returned: u64,
    /// Sent by the server, and arrived where the router had moved the port to.
    misdirected: u64,
    /// Not taken by a kernel, as an interface was down or too narrow.
    refused: u64,
    /// Arrived after a later one of the same socket.
    overtaken: u64,
}

impl Datagrams {
    /// The totals of a run.
    pub fn of(ledger: &Ledger) -> Self {
        let counts = &ledger.counts;
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Self {
            asked: get(&counts.asked),
            heard: get(&counts.heard),
            answered: get(&counts.answered),
            returned: get(&counts.returned),
            misdirected: get(&counts.misdirected),
            refused: get(&counts.refused),
            overtaken: ledger.overtaken(),
        }
    }

    fn sent(&self) -> u64 {
        self.asked + self.answered
    }

    fn delivered(&self) -> u64 {
        self.heard + self.returned + self.misdirected
    }
}

/// The actions and findings of a run; its JSON names do not change.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    seed: u64,
    seconds: f64,
    disturbances: Vec<Row>,
    datagrams: Datagrams,
    lost: u64,
    wires: BTreeMap<String, Seen>,
    daemon_growth_kib: u64,
    /// All, by kind.
    findings: BTreeMap<Flaw, u64>,
    /// The first of each kind.
    examples: Vec<Finding>,
}

impl Report {
    /// Puts it together.
    pub fn new(
        seed: u64,
        seconds: f64,
        recoveries: BTreeMap<Kind, Recoveries>,
        datagrams: Datagrams,
        ended: Ended,
        findings: Findings,
    ) -> Self {
        Self {
            seed,
            seconds,
            disturbances: recoveries
                .iter()
                .map(|(kind, all)| all.row(*kind))
                .collect(),
            lost: datagrams.sent().saturating_sub(datagrams.delivered()),
            datagrams,
            wires: ended.wires,
            daemon_growth_kib: ended.growth_kib,
            findings: findings.counts,
            examples: findings.kept,
        }
    }

    /// How many things were found that must not be.
    pub fn findings(&self) -> u64 {
        self.findings.values().sum()
    }

    /// How many disturbances there were.
    pub fn disturbances(&self) -> u64 {
        self.disturbances.iter().map(|row| row.applied).sum()
    }

    /// The kinds of disturbances that there were.
    pub fn kinds(&self) -> Vec<&'static str> {
        self.disturbances.iter().map(|row| row.kind).collect()
    }

    /// How many datagrams arrived.
    pub fn delivered(&self) -> u64 {
        self.datagrams.delivered()
    }

    fn count(&self, flaw: Flaw) -> u64 {
        self.findings.get(&flaw).copied().unwrap_or(0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, {:.0} s", self.seed, self.seconds)?;
        let head = ["disturbance", "times", "median", "max", "never"];
        let [kind, applied, median, max, never] = head;
        writeln!(f, "\n{kind:<20}{applied:>7}{median:>10}{max:>12}{never:>7}")?;
        let time = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms} ms"));
        for row in &self.disturbances {
            let (median, max) = (time(row.median_ms), time(row.max_ms));
            let Row {
                kind,
                applied,
                never,
                ..
            } = row;
            writeln!(f, "{kind:<20}{applied:>7}{median:>10}{max:>12}{never:>7}")?;
        }
        let sum = |count: fn(&Seen) -> u64| self.wires.values().map(count).sum::<u64>();
        let totals = [
            ("datagrams sent", self.datagrams.sent()),
            ("delivered", self.datagrams.delivered()),
            ("to a port that moved", self.datagrams.misdirected),
            ("after a later one", self.datagrams.overtaken),
            ("lost", self.lost),
            ("lost in peace, times", self.count(Flaw::Lost)),
            ("altered", self.count(Flaw::Altered)),
            ("duplicated", self.count(Flaw::Duplicated)),
            ("forged data delivered", self.count(Flaw::Forged)),
            ("frames on the wires", sum(|seen| seen.frames)),
            ("UDP on the wires", sum(|seen| seen.udp)),
            ("bad checksums, frames", sum(|seen| seen.bad)),
            ("daemon growth, KiB", self.daemon_growth_kib),
            ("findings", self.findings()),
        ];
        writeln!(f)?;
        for (title, number) in totals {
            writeln!(f, "{title:<22}{number:>12}")?;
        }
        for Finding { at, flaw, text } in &self.examples {
            writeln!(f, "{at:7.1} s  {flaw}: {text}")?;
        }
        for (flaw, count) in &self.findings {
            let shown = self.examples.iter().filter(|one| one.flaw == *flaw).count() as u64;
            if *count > shown {
                writeln!(f, "           {flaw}: {} more", count - shown)?;
            }
        }
        Ok(())
    }
}
