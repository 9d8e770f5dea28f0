//! Sessions as `xdptun sessions` shows them.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use xdptun_common::flow::tick::Tick;
use xdptun_common::gateway::session::Entry;
use xdptun_common::gateway::timer::Timers;
use xdptun_common::gateway::tuple::{Side, Tuple};
use xdptun_common::wire::Protocol;

use super::maps::Maps;
use crate::error::Result;
use crate::host::clock::{as_seconds, monotonic_ns};

/// A session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Session {
    /// `tcp` or `udp`.
    pub protocol: &'static str,
    /// The client.
    pub client: SocketAddr,
    /// The address that the client calls.
    pub listen: SocketAddr,
    /// The back end.
    pub back_end: SocketAddr,
    /// What the back end sees as the source, if that is not the client.
    pub source: Option<SocketAddr>,
    /// What has been seen of it.
    pub state: State,
    /// Packets of the client.
    pub call_packets: u64,
    /// Their IP packets in bytes.
    pub call_bytes: u64,
    /// Packets of the back end.
    pub answer_packets: u64,
    /// Their IP packets in bytes.
    pub answer_bytes: u64,
    /// Time since it began; `age_s`, seconds, in JSON.
    #[serde(rename = "age_s", serialize_with = "as_seconds")]
    pub age: Duration,
    /// Time since its last packet; `idle_s`, seconds, in JSON.
    #[serde(rename = "idle_s", serialize_with = "as_seconds")]
    pub idle: Duration,
    /// Time until it is removed if there is no other packet; `expires_s`, seconds, in JSON.
    #[serde(rename = "expires_s", serialize_with = "as_seconds")]
    pub expires: Duration,
}

/// What has been seen of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The back end has not answered.
    New,
    /// It has, and the client has not gone on since. The kernel evicts such sessions if there
    /// are many.
    Answered,
    /// Both ends have used it.
    Open,
    /// Its connection has ended.
    Closing,
}

impl State {
    /// All of them, in the order in which a session reaches them.
    pub const ALL: [Self; 4] = [Self::New, Self::Answered, Self::Open, Self::Closing];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Answered => "answered",
            Self::Open => "open",
            Self::Closing => "closing",
        }
    }
}

/// Every session that is not over, by listen address and client.
///
/// # Errors
///
/// If the tables cannot be read.
pub fn all(maps: &Maps) -> Result<Vec<Session>> {
    let [lasting, waiting] = maps.entries()?;
    let (timers, now) = (maps.timers()?, Tick::at(monotonic_ns()));
    let entries: HashMap<Tuple, Entry> = waiting.into_iter().chain(lasting).collect();
    let calls = entries
        .iter()
        .filter(|(_, entry)| entry.marks().is_counted());
    let sessions = calls.filter_map(|(tuple, entry)| session(&entries, tuple, entry, &timers, now));
    let mut sessions: Vec<Session> = sessions.collect();
    sessions.sort_unstable_by_key(|one| (one.listen, one.client, one.protocol));
    Ok(sessions)
}

/// How many sessions are in each state that occurs, by [`State::name`].
///
/// # Errors
///
/// As [`all`].
pub fn states(maps: &Maps) -> Result<BTreeMap<&'static str, usize>> {
    let mut states = BTreeMap::new();
    for session in all(maps)? {
        *states.entry(session.state.name()).or_default() += 1;
    }
    Ok(states)
}

fn session(
    entries: &HashMap<Tuple, Entry>,
    call: &Tuple,
    entry: &Entry,
    timers: &Timers,
    now: Tick,
) -> Option<Session> {
    let answer = entries.get(&call.answer(entry.to));
    let (marks, seen) = entry.with(answer, now);
    let idle = now.since(seen);
    let lives = timers.of(call.protocol(), marks);
    let expires = lives.checked_sub(idle)?;
    // Its packets as they leave to the back end.
    let leaving = call.with_translated(entry.to).at(Side::Out);
    let is_answered = answer.is_some_and(|answer| answer.packets > 0);
    Some(Session {
        protocol: protocol_name(call.protocol()),
        client: call.source().socket_addr(),
        listen: call.destination().socket_addr(),
        back_end: entry.to.socket_addr(),
        source: entries.get(&leaving).map(|one| one.to.socket_addr()),
        state: match (marks.has_ended(), marks.is_proven(), is_answered) {
            (true, ..) => State::Closing,
            (_, true, _) => State::Open,
            (_, _, true) => State::Answered,
            _ => State::New,
        },
        call_packets: entry.packets,
        call_bytes: entry.bytes,
        answer_packets: answer.map_or(0, |answer| answer.packets),
        answer_bytes: answer.map_or(0, |answer| answer.bytes),
        age: duration(now.since(entry.began)),
        idle: duration(idle),
        expires: duration(expires),
    })
}

/// `tcp` or `udp`.
#[must_use]
pub const fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::TCP => "tcp",
        _ => "udp",
    }
}

/// A number of ticks of 2^20 ns as a time.
fn duration(ticks: u32) -> Duration {
    Duration::from_nanos(u64::from(ticks) << 20)
}
