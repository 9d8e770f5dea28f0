//! One packet from its two copies: where it is seen, and what is said of it there.

use std::collections::HashMap;

use xdptun_common::report::copy::{ANSWERED, Hook, MET, Record};
use xdptun_common::tunnel::outcome::{Fate, Outcome};

use crate::status::is_loss;

/// Where a packet is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Outside, where all is TCP.
    Wire,
    /// Inside, where it is UDP.
    Restored,
}

impl Side {
    /// Both, in the order of their numbers in a file.
    pub const BOTH: [Self; 2] = [Self::Wire, Self::Restored];

    /// What a person calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wire => "on the wire",
            Self::Restored => "restored",
        }
    }
}

/// Which way a packet goes.
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
    /// As many of them as were wanted.
    pub bytes: Vec<u8>,
}

/// A packet that concerned xdptun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// When it came, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at: u64,
    hook: Hook,
    outcome: Outcome,
    answered: bool,
    met: Copy,
    left: Copy,
}

/// A packet as it is seen on one side.
#[derive(Debug, PartialEq, Eq)]
pub struct Sight<'a> {
    /// The side.
    pub side: Side,
    /// Which way it goes.
    pub direction: Direction,
    /// The packet.
    pub copy: &'a Copy,
    /// What became of it.
    pub comment: String,
}

impl Packet {
    /// Whether it, or what it carried, was dropped or refused here.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        is_loss(self.outcome.name()) || self.outcome.fate() == Fate::Return
    }

    /// Where it is seen. What passes is on both sides; what ends here on the one it
    /// came from, with what it was turned into, if it was. Nowhere are requests of
    /// the daemon, which only their segments are seen of, and packets that are cut
    /// into pieces, each of which is a packet again.
    #[must_use]
    pub fn sights(&self) -> Vec<Sight<'_>> {
        let (from, to, direction) = match self.hook {
            Hook::Egress => (Side::Restored, Side::Wire, Direction::Outbound),
            Hook::Ingress | Hook::Xdp => (Side::Wire, Side::Restored, Direction::Inbound),
        };
        let name = self.outcome.name();
        let passed = || format!("{}: {name}", self.hook.name());
        let ended = |how: &str| {
            let (meaning, advice) = (self.outcome.meaning(), self.outcome.advice());
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
        let lost = is_loss(name);
        match (self.outcome, self.outcome.fate()) {
            (Outcome::TxNotRequested, _) | (_, Fate::Split) => Vec::new(),
            (Outcome::TxRequested, _) => {
                let comment = format!("{}: {name}: made by xdptun", self.hook.name());
                vec![left(to, direction, comment)]
            }
            (Outcome::TxOpened | Outcome::TxOpenedLost, _) => {
                let how = if lost { "dropped" } else { "held" };
                vec![met(ended(how)), left(to, direction, passed())]
            }
            (_, Fate::Pass) => vec![met(passed()), left(to, direction, passed())],
            (_, Fate::Take) => vec![met(ended("held"))],
            (_, Fate::Return) => {
                let answer = format!("answer: {name}: made by xdptun");
                vec![
                    met(ended("refused")),
                    left(from, direction.reversed(), answer),
                ]
            }
            (_, Fate::Drop) => {
                let mut seen = vec![met(ended(if lost { "dropped" } else { "taken" }))];
                if self.answered {
                    let answer = format!("answer: {name}: made by xdptun");
                    seen.push(left(from, direction.reversed(), answer));
                }
                seen
            }
        }
    }
}

/// Copies that wait for their second.
#[derive(Debug, Default)]
pub struct Pairs {
    /// By CPU and hook.
    met: HashMap<(u32, u32), (u64, Copy)>,
}

impl Pairs {
    /// Takes a copy that was made on a CPU; the packet, if it is the second of it.
    pub fn add(&mut self, cpu: u32, record: Record, bytes: &[u8]) -> Option<Packet> {
        let copy = Copy {
            len: record.len,
            bytes: bytes.to_owned(),
        };
        let place = (cpu, record.hook);
        if record.end == MET {
            // One that is still there was not ours.
            self.met.insert(place, (record.at, copy));
            return None;
        }
        let (at, met) = self.met.remove(&place)?;
        let index = (record.end & !ANSWERED).checked_sub(1)?;
        (at == record.at).then_some(Packet {
            at,
            hook: Hook::from_raw(record.hook)?,
            outcome: *Outcome::ALL.get(index as usize)?,
            answered: record.end & ANSWERED != 0,
            met,
            left: copy,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(hook: Hook, at: u64, end: u32) -> Record {
        Record {
            at,
            hook: hook as u32,
            end,
            len: 100,
            copied: 1,
        }
    }

    fn end(outcome: Outcome) -> u32 {
        outcome.index() + 1
    }

    /// The acknowledgement passes egress while its cause is at ingress.
    #[test]
    fn copies_of_packets_inside_each_other_find_together() {
        let mut pairs = Pairs::default();
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
                (Side::Restored, Direction::Inbound, b"datagram".to_vec()),
            ]
        );
    }

    #[test]
    fn a_copy_without_its_other_is_no_packet() {
        let mut pairs = Pairs::default();
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
                let mut pairs = Pairs::default();
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
                // Whose requests nobody needs loses nothing.
                let requested = *outcome == Outcome::TxNotRequested;
                assert_eq!(
                    dropped,
                    is_loss(outcome.name()) && !requested,
                    "{outcome:?}"
                );
            }
        }
    }
}
