//! One packet, from its two copies: on which sides it appears, and its comment there.

use std::collections::{BTreeMap, HashMap};

use xdptun_common::report::copy::{ANSWERED, DETAIL, Hook, MET, Record};

use crate::group::counter::{Counter, KeptIn, PacketEnd};

/// A side of a function's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Towards the network.
    Wire,
    /// Towards this host: restored by the tunnel, translated by the gateway.
    Behind,
}

impl Side {
    /// Both, in the order of their numbers in a file.
    pub const BOTH: [Self; 2] = [Self::Wire, Self::Behind];

    /// Its name for a person; `behind` is what packets are on that side.
    #[must_use]
    pub const fn name(self, behind: &'static str) -> &'static str {
        match self {
            Self::Wire => "on the wire",
            Self::Behind => behind,
        }
    }
}

/// The direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To this host.
    Inbound,
    /// From it.
    Outbound,
}

impl Direction {
    const fn reversed(self) -> Self {
        match self {
            Self::Inbound => Self::Outbound,
            Self::Outbound => Self::Inbound,
        }
    }
}

/// The first bytes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// How long the packet is in bytes.
    pub len: u32,
    /// The first of these bytes.
    pub bytes: Vec<u8>,
}

/// A packet that the programs handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// When it came, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at: u64,
    hook: Hook,
    counter: Counter,
    answered: bool,
    /// The number of what decided, 0 if the programs noted nothing.
    pub decided_by: u8,
    /// Its name.
    pub detail: Option<String>,
    met: Copy,
    left: Copy,
}

/// A packet as it appears on one side.
#[derive(Debug, PartialEq, Eq)]
pub struct Sight<'a> {
    /// The side.
    pub side: Side,
    /// Its direction.
    pub direction: Direction,
    /// The packet.
    pub copy: &'a Copy,
    /// Its comment: how it ended.
    pub comment: String,
}

impl Packet {
    /// Whether the packet, or its datagram, was dropped or refused here.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        let end = self.counter.end;
        end.is_loss() || end == PacketEnd::Returned
    }

    /// The sides on which it appears. Passed: both. Ended here: the side it came from, then
    /// the answer it became, if any. Requests of the daemon appear nowhere, only their
    /// segments do; nor do super-packets, whose pieces are packets again.
    #[must_use]
    pub fn sights(&self) -> Vec<Sight<'_>> {
        let (from, to, direction) = match self.hook {
            Hook::Egress => (Side::Behind, Side::Wire, Direction::Outbound),
            Hook::Ingress | Hook::Xdp => (Side::Wire, Side::Behind, Direction::Inbound),
        };
        let Counter {
            name,
            meaning,
            advice,
            ..
        } = self.counter;
        let name = match &self.detail {
            Some(detail) => format!("{name} ({detail})"),
            None => name.to_owned(),
        };
        let passed = || format!("{}: {name}", self.hook.name());
        let ended = |how: &str| {
            format!("{how}: {name}: {meaning} {advice}")
                .trim_end()
                .to_owned()
        };
        let met = |comment| Sight {
            side: from,
            direction,
            copy: &self.met,
            comment,
        };
        let left = |side, direction, comment| Sight {
            side,
            direction,
            copy: &self.left,
            comment,
        };
        let answer = || {
            let answer = format!("answer: {name}: made by xdptun");
            left(from, direction.reversed(), answer)
        };
        match self.counter.end {
            PacketEnd::Unseen => Vec::new(),
            PacketEnd::Made => {
                let comment = format!("{}: {name}: made by xdptun", self.hook.name());
                vec![left(to, direction, comment)]
            }
            PacketEnd::Replaced => vec![met(ended("held")), left(to, direction, passed())],
            PacketEnd::Emptied => vec![met(ended("dropped")), left(to, direction, passed())],
            PacketEnd::Passed => vec![met(passed()), left(to, direction, passed())],
            PacketEnd::Held => vec![met(ended("held"))],
            PacketEnd::Returned => vec![met(ended("refused")), answer()],
            end @ (PacketEnd::Taken | PacketEnd::Dropped) => {
                let how = if end.is_loss() { "dropped" } else { "taken" };
                let answer = self.answered.then(answer);
                [met(ended(how))].into_iter().chain(answer).collect()
            }
        }
    }
}

/// First copies that wait for the second.
#[derive(Debug)]
pub struct Pairs {
    /// What packets are counted as, by index in the row.
    counters: BTreeMap<u32, Counter>,
    /// By CPU and hook.
    met: HashMap<(u32, u32), (u64, Copy)>,
}

impl Pairs {
    /// Of packets that a function counts so.
    pub fn new(counters: impl IntoIterator<Item = Counter>) -> Self {
        let by_index = |counter: Counter| match counter.kept_in {
            KeptIn::Row(index) => Some((index, counter)),
            KeptIn::Attachment => None,
        };
        Self {
            counters: counters.into_iter().filter_map(by_index).collect(),
            met: HashMap::new(),
        }
    }

    /// Takes a copy that was made on a CPU; returns the packet if it is the second copy.
    pub fn add(&mut self, cpu: u32, record: Record, bytes: &[u8]) -> Option<Packet> {
        let copy = Copy {
            len: record.len,
            bytes: bytes.to_owned(),
        };
        let place = (cpu, record.hook);
        if record.end == MET {
            // A first copy that is still there was of a packet that is not ours.
            self.met.insert(place, (record.at, copy));
            return None;
        }
        let (at, met) = self.met.remove(&place)?;
        let index = (record.end & (ANSWERED - 1)).checked_sub(1)?;
        (at == record.at).then_some(Packet {
            at,
            hook: Hook::from_raw(record.hook)?,
            counter: *self.counters.get(&index)?,
            answered: record.end & ANSWERED != 0,
            decided_by: (record.end >> DETAIL) as u8,
            detail: None,
            met,
            left: copy,
        })
    }
}

#[cfg(test)]
mod tests {
    use xdptun_common::tunnel::outcome::Outcome;

    use super::*;
    use crate::tunnel::counters;

    fn record(hook: Hook, at: u64, end: u32) -> Record {
        Record {
            at,
            hook: hook as u32,
            end,
            len: 100,
            copied: 1,
            interface: 2,
            reserved: 0,
        }
    }

    fn end(outcome: Outcome) -> u32 {
        outcome.index() + 1
    }

    /// The acknowledgement passes egress while its cause is at ingress.
    #[test]
    fn copies_of_packets_inside_each_other_find_together() {
        let mut pairs = Pairs::new(counters::all());
        let mut add = |cpu, record, bytes: &[u8]| pairs.add(cpu, record, bytes);
        assert_eq!(add(0, record(Hook::Ingress, 1, MET), b"segment"), None);
        assert_eq!(add(1, record(Hook::Ingress, 2, MET), b"elsewhere"), None);
        assert_eq!(add(0, record(Hook::Egress, 3, MET), b"clone"), None);
        let ack = record(Hook::Egress, 3, end(Outcome::TxRequested));
        let ack = add(0, ack, b"ack").unwrap();
        let data = record(Hook::Ingress, 1, end(Outcome::RxRestored));
        let data = add(0, data, b"datagram").unwrap();
        let sides = |packet: &Packet| -> Vec<_> {
            let sights = packet.sights();
            let sides = sights.iter();
            sides
                .map(|sight| (sight.side, sight.direction, sight.copy.bytes.clone()))
                .collect()
        };
        assert_eq!(
            sides(&ack),
            [(Side::Wire, Direction::Outbound, b"ack".to_vec())]
        );
        assert_eq!(
            sides(&data),
            [
                (Side::Wire, Direction::Inbound, b"segment".to_vec()),
                (Side::Behind, Direction::Inbound, b"datagram".to_vec()),
            ]
        );
    }

    #[test]
    fn a_copy_without_its_other_is_no_packet() {
        let mut pairs = Pairs::new(counters::all());
        let second = record(Hook::Egress, 5, end(Outcome::TxDisguised));
        assert_eq!(pairs.add(0, second, b""), None);
        pairs.add(0, record(Hook::Egress, 4, MET), b"of another");
        assert_eq!(pairs.add(0, second, b""), None);
        assert_eq!(pairs.add(0, second, b""), None);
    }

    /// What is dropped, and nothing else, is said to be; its reason is there.
    #[test]
    fn every_outcome_is_explained() {
        for outcome in Outcome::ALL {
            for answered in [0, ANSWERED] {
                let mut pairs = Pairs::new(counters::all());
                pairs.add(0, record(Hook::Ingress, 1, MET), b"");
                let second = record(Hook::Ingress, 1, end(*outcome) | answered);
                let packet = pairs.add(0, second, b"").unwrap();
                for sight in packet.sights() {
                    assert!(sight.comment.contains(outcome.name()), "{sight:?}");
                }
                let dropped = packet.sights().iter().any(|sight| {
                    let reason = format!("dropped: {}: {}", outcome.name(), outcome.meaning());
                    sight.comment.starts_with(&reason)
                });
                assert_eq!(dropped, outcome.fate().is_loss(), "{outcome:?}");
            }
        }
    }
}
