//! What a function counts on each interface.

use serde::ser::{Serialize, SerializeStruct as _, Serializer};
use xdptun_common::report::outcome::{self, CounterValue, Ending, Fate};

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

    /// Whether the programs count the bytes of its packets as well.
    #[must_use]
    pub fn has_bytes(&self) -> bool {
        self.metric == &PACKETS
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

/// The counters of an interface with their values, in the order of status output.
#[derive(Clone, Debug, Default)]
pub struct Counts(Vec<(Counter, CounterValue)>);

impl Counts {
    /// The value of a counter, if there is one with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        let mut counts = self.iter();
        counts.find_map(|(counter, value)| (counter.name == name).then_some(value))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&Counter, u64)> + Clone {
        self.values().map(|(counter, value)| (counter, value.count))
    }

    /// The bytes of packets, for each [counter that has them](Counter::has_bytes).
    pub fn bytes(&self) -> impl Iterator<Item = (&Counter, u64)> + Clone {
        let counted = self.values().filter(|(counter, _)| counter.has_bytes());
        counted.map(|(counter, value)| (counter, value.bytes))
    }

    /// All of them, with all that was counted.
    pub fn values(&self) -> impl Iterator<Item = (&Counter, CounterValue)> + Clone {
        self.0.iter().map(|(counter, value)| (counter, *value))
    }
}

impl FromIterator<(Counter, CounterValue)> for Counts {
    fn from_iter<I: IntoIterator<Item = (Counter, CounterValue)>>(counts: I) -> Self {
        Self(counts.into_iter().collect())
    }
}

/// Two fields, `counters` and `bytes`, each a map from names to values.
impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Counts", 2)?;
        fields.serialize_field("counters", &Values(self.iter()))?;
        fields.serialize_field("bytes", &Values(self.bytes()))?;
        fields.end()
    }
}

/// Some counters with values.
struct Values<I>(I);

impl<'a, I: Iterator<Item = (&'a Counter, u64)> + Clone> Serialize for Values<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.clone().map(|(counter, value)| (counter.name, value)))
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
