//! A whole run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use xdptun_lab::wait;

use crate::deck::{Deck, Pace};
use crate::disturbance::Kind;
use crate::journal::{Flaw, Journal, Say};
use crate::ledger::Ledger;
use crate::quiet::{LAST, rest};
use crate::report::{Datagrams, Recoveries, Report};
use crate::traffic::Stream;
use crate::world::{CLIENTS, World};

/// How long a client may wait for its next answer on an idle machine. The longest wait that xdptun
/// means: a second of silence, two of probes if a repeated SYN opened the flow and it was opened again
/// in the minute before (`ASKED_AGAIN`), and the handshake.
pub const RECOVERY: Duration = Duration::from_secs(4);

/// How long a run waits for a late answer, to report how late it was: longer than any
/// timer of xdptun.
const PATIENCE: Duration = Duration::from_secs(150);

/// How long a run is.
#[derive(Debug, Clone, Copy)]
pub enum Length {
    /// No disturbance begins after this time.
    Time(Duration),
    /// There is one disturbance of each kind.
    Round,
}

/// The order for a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How long it is.
    pub length: Length,
    /// How much time things take.
    pub pace: Pace,
    /// Where the random numbers start.
    pub seed: u64,
    /// Kinds of disturbances; all if empty.
    pub only: Vec<Kind>,
}

/// Runs; an error means that it could not go on. The report has the findings.
pub fn run(plan: Plan, say: Say) -> Result<Report> {
    let journal = Arc::new(Journal::start(say));
    let ledger = Arc::new(Ledger::new(Arc::clone(&journal)));
    journal.say(&format!("seed {}", plan.seed));
    let mut world = World::new(plan.seed, &ledger)?;
    journal.say("attached everywhere, clients ask");
    let first = recover(&world, "the start", &journal)?;
    journal.say(&format!("answered after {}", in_words(&first)));

    let mut recoveries: BTreeMap<Kind, Recoveries> = BTreeMap::new();
    let mut deck = Deck::new(plan.seed, CLIENTS.into(), &plan.only, plan.pace);
    let mut left = deck.round_len();
    let started = Instant::now();
    loop {
        let (quiet, disturbance) = deck.draw();
        let is_over = match plan.length {
            Length::Time(length) => started.elapsed() + quiet >= length,
            Length::Round => left == 0,
        };
        if is_over {
            break;
        }
        left = left.saturating_sub(1);
        rest(&world, quiet, &journal);
        let what = disturbance.to_string();
        journal.say(&what);
        let applied = disturbance.apply(&mut world);
        applied.with_context(|| what.clone())?;
        let times = recover(&world, &what, &journal)?;
        world.wires.tell(&journal);
        for peer in &mut world.peers {
            peer.weigh()?;
        }
        journal.say(&format!("    answered after {}", in_words(&times)));
        let recoveries = recoveries.entry(disturbance.kind()).or_default();
        recoveries.add(&times);
    }

    for client in &mut world.clients {
        client.quiet();
    }
    // Lost datagrams never come; the totals count them.
    let counts = &ledger.counts;
    let complete =
        || counts.returned.load(Ordering::Relaxed) >= counts.asked.load(Ordering::Relaxed);
    let _lost = wait::until(LAST, "the last answers", complete);
    journal.say("clients are quiet, flows expire");
    world.expire(&journal);
    journal.say("xdptun detaches everywhere");
    let ended = world.end(&journal)?;
    Ok(Report::new(
        plan.seed,
        journal.seconds(),
        recoveries,
        Datagrams::of(&ledger),
        ended,
        journal.findings(),
    ))
}

/// Waits until every socket of every client has an answer to something that it
/// sent after this call. Returns how long each client took, `None` for one that
/// has not got there.
fn recover(world: &World, after: &str, journal: &Journal) -> Result<Vec<Option<Duration>>> {
    let limit = wait::stretched(RECOVERY)?;
    let started = Instant::now();
    let mut waiting: Vec<Waiting> = world
        .clients
        .iter()
        .map(|client| Waiting::from_now(client.streams()))
        .collect();
    let mut late = false;
    let mut look = |waiting: &mut Vec<Waiting>| {
        let elapsed = started.elapsed();
        for (number, client) in waiting.iter_mut().enumerate() {
            client.look(elapsed);
            if elapsed > limit && !late && client.time.is_none() {
                let streams = client.unanswered();
                let text =
                    format!("client {number} without an answer {limit:?} after {after}: {streams}");
                journal.find(Flaw::SlowRecovery, &text);
                for peer in [&world.peers[number], &world.peers[usize::from(CLIENTS)]] {
                    journal.say(&peer.latest(40));
                }
            }
        }
        late |= elapsed > limit;
        waiting.iter().all(|client| client.time.is_some())
    };
    // The journal has the clients that got no answer in time.
    let _all = wait::until(PATIENCE, "answers", || look(&mut waiting));
    Ok(waiting.into_iter().map(|client| client.time).collect())
}

/// A client's sockets that have had no answer yet, each with the number that the
/// next datagram had at first.
struct Waiting {
    streams: Vec<(Arc<Stream>, u32)>,
    time: Option<Duration>,
}

impl Waiting {
    fn from_now(streams: Vec<Arc<Stream>>) -> Self {
        let streams = streams.into_iter().map(|stream| {
            let next = stream.account.next();
            (stream, next)
        });
        Self {
            streams: streams.collect(),
            time: None,
        }
    }

    fn look(&mut self, elapsed: Duration) {
        self.streams
            .retain(|(stream, next)| !stream.account.is_answered_from(*next));
        if self.streams.is_empty() && self.time.is_none() {
            self.time = Some(elapsed);
        }
    }

    fn unanswered(&self) -> String {
        let streams = self.streams.iter().map(|(stream, _)| {
            let account = &stream.account;
            format!("stream {} over {}", account.stream(), account.family())
        });
        streams.collect::<Vec<_>>().join(", ")
    }
}

fn in_words(times: &[Option<Duration>]) -> String {
    let words = times.iter().map(|time| match time {
        Some(time) => format!("{} ms", time.as_millis()),
        None => "(not at all)".to_owned(),
    });
    words.collect::<Vec<_>>().join(" and ")
}
