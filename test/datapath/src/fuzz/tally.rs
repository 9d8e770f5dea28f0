//! How often each kind of end was reached: a fuzzer that reaches nothing finds
//! nothing.

use std::collections::BTreeMap;
use std::fmt;

use xdptun_common::tunnel::outcome::{Outcome, Sent};

use super::attack::Fate;
use super::judge::Ended;
use crate::case::Verdict;

/// The packets of one program by what became of them.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    packets: u64,
    ends: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// A packet that xdptun does not handle.
    pub const UNCOUNTED: &str = "(none of ours)";
    /// A datagram that the peer restored to what it was, or a packet that was translated back.
    pub const RETURNED: &str = "(there and back)";
    /// A piece that the splitter sent back.
    pub const SENT_HOME: &str = "(sent home)";
    /// Something else on the splitter.
    pub const ENDED: &str = "(ended)";

    /// A forged packet that was not sent, as it is a guess that counts.
    pub const GUESSED: &str = "(a right guess)";

    /// Adds a forged packet.
    pub fn add_forged(&mut self, fate: &Fate) {
        match fate {
            Fate::Futile(ended) => self.add(ended),
            Fate::Guessed => self.add_ends(&[Self::GUESSED]),
        }
    }

    /// Adds one packet.
    pub fn add(&mut self, ended: &Ended) {
        let uncounted = match ended.verdict {
            Verdict::Pass => Self::UNCOUNTED,
            Verdict::Redirect => Self::SENT_HOME,
            Verdict::Drop => Self::ENDED,
        };
        let outcome = ended.outcome.map_or(uncounted, Outcome::name);
        let returned = ended.returned.then_some(Self::RETURNED);
        let sent = ended.sent.map(Sent::name);
        let ends: Vec<_> = [Some(outcome), sent, returned]
            .into_iter()
            .flatten()
            .collect();
        self.add_ends(&ends);
    }

    /// Adds one packet that ended in all these ways.
    pub fn add_ends(&mut self, ends: &[&'static str]) {
        self.packets += 1;
        for name in ends {
            *self.ends.entry(name).or_default() += 1;
        }
    }

    /// How many packets there were.
    #[must_use]
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// How many of them ended so.
    #[must_use]
    pub fn reached(&self, name: &str) -> u64 {
        self.ends.get(name).copied().unwrap_or_default()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, times) in &self.ends {
            writeln!(f, "  {name:<24} {times:>9}")?;
        }
        Ok(())
    }
}
