//! What a function counts on each interface.

use serde::{Serialize, Serializer};
use xdptun_common::report::outcome::{self, Ending, Fate};

/// A counter of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The name in status output and metrics.
    pub name: &'static str,
    /// What it means, in one line.
    pub meaning: &'static str,
    /// What an operator does about it; empty if there is nothing to do.
    pub advice: &'static str,
    /// What became of the packets that it counts.
    pub end: PacketEnd,
    /// Where its value is.
    pub kept_in: KeptIn,
    /// The metric that it is a sample of.
    pub metric: &'static Metric,
}

impl Counter {
    /// A counter that the programs keep, of packets that end so.
    pub fn kept_by_programs(
        counter: impl outcome::Counter,
        end: PacketEnd,
        metric: &'static Metric,
    ) -> Self {
        Self {
            name: counter.name(),
            meaning: counter.meaning(),
            advice: counter.advice(),
            end,
            kept_in: KeptIn::Row(counter.index()),
            metric,
        }
    }
}

/// A metric that has a sample for each of some counters.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name, without the suffix `_total`.
    pub name: &'static str,
    /// What it counts, in one line.
    pub help: &'static str,
}

/// The metric of all counters of endings.
pub static PACKETS: Metric = Metric {
    name: "xdptun_packets",
    help: "Packets by how they ended; `xdptun explain OUTCOME` tells what it means.",
};

/// Counters of packets that end as their fates say.
pub fn of_endings<E: Ending>() -> impl Iterator<Item = Counter> + Clone {
    let all = E::ALL.iter();
    all.map(|ending| Counter::kept_by_programs(*ending, ending.fate().into(), &PACKETS))
}

/// The counters of an interface with their values, in the order of status output; in JSON a
/// map from names to values.
#[derive(Clone, Debug, Default)]
pub struct Counts(Vec<(Counter, u64)>);

impl Counts {
    /// The value of a counter, if there is one with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        let mut counts = self.iter();
        counts.find_map(|(counter, value)| (counter.name == name).then_some(value))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&Counter, u64)> {
        self.0.iter().map(|(counter, value)| (counter, *value))
    }
}

impl FromIterator<(Counter, u64)> for Counts {
    fn from_iter<I: IntoIterator<Item = (Counter, u64)>>(counts: I) -> Self {
        Self(counts.into_iter().collect())
    }
}

impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(counter, value)| (counter.name, value)))
    }
}

/// Where the value of a counter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptIn {
    /// At this index of the interface's row: the programs count.
    Row(u32),
    /// In the attachment of the interface: the daemon counts.
    Attachment,
}

/// What became of a packet, as a capture tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketEnd {
    /// It passed, as it was or changed.
    Passed,
    /// It was held, and another packet left in its place.
    Replaced,
    /// A packet left in its place, and what it carried is lost.
    Emptied,
    /// It was held.
    Held,
    /// It ended here and had done its work.
    Taken,
    /// It was dropped, or lost.
    Dropped,
    /// It was turned into a message to its sender.
    Returned,
    /// It was made here.
    Made,
    /// There is nothing to see of it: its pieces are packets again, or it was only a request.
    Unseen,
}

impl PacketEnd {
    /// Whether the packet, or what it carried, is lost.
    #[must_use]
    pub const fn is_loss(self) -> bool {
        matches!(self, Self::Dropped | Self::Emptied)
    }
}

impl From<Fate> for PacketEnd {
    fn from(fate: Fate) -> Self {
        match fate {
            Fate::Pass | Fate::ComeIn => Self::Passed,
            Fate::PassEmpty => Self::Emptied,
            Fate::Split => Self::Unseen,
            Fate::Return => Self::Returned,
            Fate::Hold => Self::Held,
            Fate::Consume => Self::Taken,
            Fate::Lose => Self::Dropped,
        }
    }
}
