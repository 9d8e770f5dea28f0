//! The counters of the tunnel.

#[cfg(test)]
use xdptun_common::report::outcome::CounterValue;
use xdptun_common::tunnel::outcome::{GroStep, Outcome, Sent};

#[cfg(test)]
use crate::group::counter::Counts;
use crate::group::counter::{Counter, KeptIn, Metric, PACKETS, PacketEnd};

/// The counter that the daemon keeps.
pub const TX_LOST_IN_QUEUE: Counter = Counter {
    name: "tx_lost_in_queue",
    meaning: "Datagrams lost while they waited with the daemon for a handshake.",
    advice: "No peer answered for ten seconds: look whether xdptun is attached at the peer, \
             with the same secret if any, and whether the network lets the TCP port through.",
    end: PacketEnd::Dropped,
    kept_in: KeptIn::Attachment,
    metric: &Metric {
        name: "xdptun_queue_lost_datagrams",
        help: "Datagrams lost while they waited with the daemon for a handshake.",
    },
};

static CONTROL_SEGMENTS: Metric = Metric {
    name: "xdptun_control_segments",
    help: "Segments without data, sent or not sent because of a limit; `xdptun explain OUTCOME` tells more.",
};

static GRO_DATAGRAMS: Metric = Metric {
    name: "xdptun_gro_datagrams",
    help: "Restored datagrams at each step through GRO. The steps overlap: do not add them up. `xdptun explain OUTCOME` tells more.",
};

/// How packets end.
pub fn outcomes() -> impl Iterator<Item = Counter> + Clone {
    let end = |outcome: &Outcome| match outcome {
        Outcome::TxNotRequested => PacketEnd::Unseen,
        Outcome::TxRequested => PacketEnd::Made,
        Outcome::TxOpened => PacketEnd::Replaced,
        outcome => outcome.fate().into(),
    };
    let all = Outcome::ALL.iter();
    all.map(move |outcome| Counter::kept_by_programs(*outcome, end(outcome), &PACKETS))
}

/// Segments without data, sent or withheld.
pub fn sent() -> impl Iterator<Item = Counter> + Clone {
    let all = Sent::ALL.iter();
    all.map(|sent| Counter::kept_by_programs(*sent, PacketEnd::Made, &CONTROL_SEGMENTS))
}

/// Steps of restored datagrams through GRO, which outcomes count as well.
pub fn gro_steps() -> impl Iterator<Item = Counter> + Clone {
    let all = GroStep::ALL.iter();
    all.map(|step| Counter::kept_by_programs(*step, PacketEnd::Unseen, &GRO_DATAGRAMS))
}

/// Every counter, in the order of status output.
pub fn all() -> impl Iterator<Item = Counter> {
    outcomes()
        .chain(sent())
        .chain(gro_steps())
        .chain([TX_LOST_IN_QUEUE])
}

/// Values of some counters, by name.
#[cfg(test)]
pub fn with_values(values: &[(&str, u64)]) -> Counts {
    let counter = |name| all().find(|counter| counter.name == name).unwrap();
    values
        .iter()
        .map(|(name, count)| {
            let value = CounterValue {
                count: *count,
                bytes: 0,
            };
            (counter(*name), value)
        })
        .collect()
}
