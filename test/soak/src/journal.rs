//! The log of a run, and its findings.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;

/// Findings of one kind that are kept in words; all are counted.
const KEPT: u64 = 10;

/// Kinds of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Flaw {
    /// A datagram arrived that differs from all that were sent.
    Altered,
    /// A datagram arrived twice.
    Duplicated,
    /// A datagram came from the wrong address.
    Stranger,
    /// The payload of a forged segment arrived.
    Forged,
    /// UDP of the owned port was on a wire.
    PlainUdp,
    /// A checksum on a wire was wrong or unfinished, or a frame malformed.
    BadFrame,
    /// Datagrams were lost while nothing was disturbed.
    Lost,
    /// A client had to wait too long for its next answer.
    SlowRecovery,
    /// xdptun did not do what it was told.
    Program,
    /// The daemon grew.
    Memory,
    /// Flows did not expire.
    Flows,
    /// Something was left behind.
    Remains,
    /// The run cannot be judged: frames were missed.
    Unseen,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Altered => "altered",
            Self::Duplicated => "duplicated",
            Self::Stranger => "from a stranger",
            Self::Forged => "forged data delivered",
            Self::PlainUdp => "UDP on the wire",
            Self::BadFrame => "bad frame",
            Self::Lost => "lost in peace",
            Self::SlowRecovery => "slow recovery",
            Self::Program => "xdptun failed",
            Self::Memory => "memory",
            Self::Flows => "flows left",
            Self::Remains => "left behind",
            Self::Unseen => "not judged",
        })
    }
}

/// One thing that must not be.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// Seconds since the start.
    pub at: f64,
    /// Its kind.
    pub flaw: Flaw,
    /// In words.
    pub text: String,
}

/// Tells the user of each step.
pub type Say = Box<dyn Fn(&str) + Send + Sync>;

/// The log of a run.
pub struct Journal {
    started: Instant,
    say: Say,
    findings: Mutex<Findings>,
}

/// All findings.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// The first of each kind.
    pub kept: Vec<Finding>,
    /// All, by kind.
    pub counts: BTreeMap<Flaw, u64>,
}

impl Journal {
    /// Starts the clock; `say` tells the user.
    pub fn start(say: Say) -> Self {
        Self {
            started: Instant::now(),
            say,
            findings: Mutex::default(),
        }
    }

    /// Seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Tells the user of a step.
    pub fn say(&self, text: &str) {
        (self.say)(text);
    }

    /// Notes a finding.
    pub fn find(&self, flaw: Flaw, text: &str) {
        let mut findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        let count = findings.counts.entry(flaw).or_default();
        *count += 1;
        if *count <= KEPT {
            (self.say)(&format!("FOUND {flaw}: {text}"));
            findings.kept.push(Finding {
                at: self.seconds(),
                flaw,
                text: text.to_owned(),
            });
        }
    }

    /// Notes an error, if there is one; whether there was none.
    pub fn check<T>(&self, flaw: Flaw, result: anyhow::Result<T>) -> Option<T> {
        result
            .inspect_err(|error| self.find(flaw, &format!("{error:#}")))
            .ok()
    }

    /// The findings so far.
    pub fn findings(&self) -> Findings {
        let findings = self.findings.lock();
        findings.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal")
            .field("findings", &self.findings)
            .finish_non_exhaustive()
    }
}
