//! Leases as `xdptun sessions` and `xdptun status` show them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use serde::Serialize;
use xdptun_common::flow::tick::Tick;
use xdptun_common::nat64::lease::{Lease, Standing};
use xdptun_common::nat64::translator::Translator;

use super::maps::Maps;
use crate::error::Result;
use crate::host::clock::{as_seconds, monotonic_ns};

/// A client that has an address.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Client {
    /// The client.
    pub client: Ipv6Addr,
    /// Its address in IPv4.
    pub address: Ipv4Addr,
    /// What is known of it.
    pub state: State,
    /// Time since its last packet, exact to a second; none of a static address; `idle_s`, seconds, in
    /// JSON.
    #[serde(rename = "idle_s", serialize_with = "as_seconds_if_any")]
    pub idle: Option<Duration>,
    /// Time until it loses the address if it sends nothing; none of a static address; `expires_s`,
    /// seconds, in JSON.
    #[serde(rename = "expires_s", serialize_with = "as_seconds_if_any")]
    pub expires: Option<Duration>,
}

/// What is known of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Nothing was sent to it.
    Unanswered,
    /// Something was.
    Answered,
    /// Its address is configured.
    Static,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Unanswered, Self::Answered, Self::Static];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unanswered => "unanswered",
            Self::Answered => "answered",
            Self::Static => "static",
        }
    }

    const fn of(lease: &Lease) -> Self {
        match lease.standing() {
            Some(Standing::Static) => Self::Static,
            Some(Standing::Answered) => Self::Answered,
            Some(Standing::Unanswered) | None => Self::Unanswered,
        }
    }
}

impl Client {
    fn of(address: [u8; 4], lease: &Lease, translator: &Translator, now: Tick) -> Self {
        let state = State::of(lease);
        let idle = now.since(lease.seen);
        let lasts = match state {
            State::Unanswered => Some(translator.unanswered),
            State::Answered => Some(translator.answered),
            State::Static => None,
        };
        Self {
            client: lease.client.into(),
            address: address.into(),
            state,
            idle: lasts.map(|_| duration(idle)),
            expires: lasts.map(|lasts| duration(lasts.saturating_sub(idle))),
        }
    }
}

/// A number of ticks.
fn duration(ticks: u32) -> Duration {
    Duration::from_nanos(u64::from(ticks) << 20)
}

fn as_seconds_if_any<S: serde::Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => as_seconds(duration, serializer),
        None => serializer.serialize_none(),
    }
}

/// All clients that have an address, in order of their own.
///
/// # Errors
///
/// If a map cannot be read.
pub fn all(maps: &Maps) -> Result<Vec<Client>> {
    let translator = maps.translator()?;
    let now = Tick::at(monotonic_ns());
    let mut clients = Vec::new();
    for part in maps.leases()? {
        let part = part?.into_iter();
        let lasting = part.filter(|(_, lease)| !lease.is_over(&translator, now));
        clients
            .extend(lasting.map(|(address, lease)| Client::of(address, &lease, &translator, now)));
    }
    clients.sort_unstable_by_key(|one| one.client);
    Ok(clients)
}

/// How many clients are in each state.
///
/// # Errors
///
/// If a map cannot be read.
pub fn states(maps: &Maps) -> Result<BTreeMap<&'static str, usize>> {
    let translator = maps.translator()?;
    let now = Tick::at(monotonic_ns());
    let mut states = BTreeMap::from(State::ALL.map(|state| (state.name(), 0)));
    for part in maps.leases()? {
        for (_, lease) in part? {
            if !lease.is_over(&translator, now) {
                *states.entry(State::of(&lease).name()).or_default() += 1;
            }
        }
    }
    Ok(states)
}
