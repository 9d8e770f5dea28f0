//! Sessions as `xdptun sessions` shows them.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
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
    /// `tcp`, `udp` or `icmp`.
    pub protocol: &'static str,
    /// Who takes part.
    #[serde(flatten)]
    pub ends: Ends,
    /// What has been seen of it.
    pub state: State,
    /// Packets of the end that began it.
    pub call_packets: u64,
    /// Their IP packets in bytes.
    pub call_bytes: u64,
    /// Packets of the other end.
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

/// The ends of a session; `function` in JSON tells what carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "function", rename_all = "lowercase")]
pub enum Ends {
    /// A rule forwards it.
    Forward {
        /// The address that the client calls.
        listen: SocketAddr,
        /// The client.
        client: SocketAddr,
        /// The back end.
        back_end: SocketAddr,
        /// What the back end sees as the source, if that is not the client.
        source: Option<SocketAddr>,
    },
    /// It translates an inside host. The port of an ICMP echo is its identifier.
    Nat {
        /// The inside host's end.
        inside: SocketAddr,
        /// What the other end sees of it.
        outside: SocketAddr,
        /// The other end.
        remote: SocketAddr,
        /// Which end began it.
        began: Began,
    },
}

/// The end that began a session of an inside host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Began {
    /// The inside host.
    Inside,
    /// The other end.
    Outside,
}

impl Ends {
    /// The addresses of the two that it connects.
    #[must_use]
    pub fn addresses(&self) -> [IpAddr; 2] {
        match self {
            Self::Forward {
                client, back_end, ..
            } => [client.ip(), back_end.ip()],
            Self::Nat { inside, remote, .. } => [inside.ip(), remote.ip()],
        }
    }
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

/// Every session that is not over: forwarded ones by listen address and client, then those of
/// inside hosts.
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
    sessions.sort_unstable_by_key(|one| (one.ends, one.protocol));
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
    let is_answered = answer.is_some_and(|answer| answer.packets > 0);
    Some(Session {
        protocol: protocol_name(call.protocol()),
        ends: ends(entries, call, entry),
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

fn ends(entries: &HashMap<Tuple, Entry>, call: &Tuple, entry: &Entry) -> Ends {
    let [from, to, translated] =
        [call.source(), call.destination(), entry.to].map(|end| end.socket_addr());
    match (entry.marks().is_bound(), call.side()) {
        (false, _) => {
            // Its packets as they leave to the back end.
            let leaving = call.with_translated(entry.to).at(Side::Out);
            Ends::Forward {
                listen: to,
                client: from,
                back_end: translated,
                source: entries.get(&leaving).map(|one| one.to.socket_addr()),
            }
        }
        (true, Side::Out) => Ends::Nat {
            inside: from,
            outside: translated,
            remote: to,
            began: Began::Inside,
        },
        (true, Side::In) => Ends::Nat {
            inside: translated,
            outside: to,
            remote: from,
            began: Began::Outside,
        },
    }
}

/// `tcp`, `udp` or `icmp`.
#[must_use]
pub const fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::TCP => "tcp",
        Protocol::ICMP => "icmp",
        _ => "udp",
    }
}

/// A number of ticks of 2^20 ns as a time.
fn duration(ticks: u32) -> Duration {
    Duration::from_nanos(u64::from(ticks) << 20)
}
