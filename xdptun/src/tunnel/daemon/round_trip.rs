//! The round trip time of a path, as the handshake measured it.

use std::time::Duration;

use xdptun_common::tunnel::state::{Flow, RESTARTED};

use crate::host::clock::since;

/// What may be added to a round trip time of which only a part is known.
const UNMEASURED: Duration = Duration::from_millis(500);

/// The round trip time of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundTrip {
    Known(Duration),
    /// This host sent more than one SYN; the answer may be to the first.
    AtLeast(Duration),
    /// The peer opened the flow.
    Unknown,
}

impl RoundTrip {
    /// That of the path of a flow.
    pub fn of(flow: &Flow) -> Self {
        let time = since(flow.established_at, flow.syn_at);
        match flow.syns & !RESTARTED {
            _ if flow.syn_at == 0 => Self::Unknown,
            1 => Self::Known(time),
            _ => Self::AtLeast(time),
        }
    }

    /// How long an answer may be under way.
    pub fn allowed(self) -> Duration {
        match self {
            Self::Known(time) => time,
            Self::AtLeast(time) => time + UNMEASURED,
            Self::Unknown => UNMEASURED,
        }
    }
}
