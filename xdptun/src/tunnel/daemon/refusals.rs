//! The warning that a peer, or a firewall before it, refuses connections.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, warn};
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::state::Flow;

use super::{Daemon, refused};

/// How long to be silent after a warning: SYNs and their refusals go on.
const SILENCE: Duration = Duration::from_secs(60);

/// The last count of refusals, and the time of the last warning.
pub struct Refusals {
    counted: u64,
    told: Option<Instant>,
}

impl Refusals {
    /// Refusals counted so far are old.
    pub const fn new(counted: u64) -> Self {
        Self {
            counted,
            told: None,
        }
    }

    /// Whether this count is worth a warning. `cares`: datagrams wait for an answer. To be
    /// called with every count, also if none wait: SYNs go on for a while.
    pub fn is_news(&mut self, count: u64, cares: bool, now: Instant) -> bool {
        let grown = count > self.counted;
        self.counted = count;
        let is_due = self.told.is_none_or(|told| now - told >= SILENCE);
        let is_news = grown && cares && is_due;
        if is_news {
            self.told = Some(now);
        }
        is_news
    }
}

impl Daemon<'_> {
    /// Warns at once if a peer refuses, which usually means that xdptun is not attached there
    /// yet. The daemon gives the datagrams themselves up only later.
    pub(super) fn tell_refusals(&mut self, flows: &[(FlowKey, Flow)]) {
        let count = refused(self.attached);
        let Ok(count) = count.inspect_err(|error| debug!("cannot read the counters: {error}"))
        else {
            return;
        };
        let waits = !self.queue.is_empty();
        if !self.refusals.is_news(count, waits, Instant::now()) {
            return;
        }
        // The counter does not tell which of the called peers refused.
        let called = flows.iter().filter(|(_, flow)| flow.is_called());
        let called: BTreeSet<SocketAddr> = called.map(|(key, _)| key.remote()).collect();
        let peer = match (called.len(), called.first()) {
            (1, Some(peer)) => peer.to_string(),
            (more, _) => format!("one of {more} peers that are called"),
        };
        warn!(
            "{peer}, or a firewall in front of it, refuses: is xdptun attached there, to the \
             interface and port that this host calls? `xdptun doctor` tells more"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_told_once_a_minute() {
        let begin = Instant::now();
        let mut refusals = Refusals::new(7);
        let mut is_news = |count, after| refusals.is_news(count, true, begin + after);
        assert!(!is_news(7, Duration::ZERO));
        assert!(is_news(8, Duration::ZERO));
        assert!(!is_news(9, SILENCE / 2));
        assert!(!is_news(9, SILENCE), "none came since");
        assert!(is_news(10, SILENCE));
        assert!(!is_news(11, SILENCE + SILENCE / 2));
    }

    #[test]
    fn what_came_while_nothing_waited_is_old() {
        let now = Instant::now();
        let mut refusals = Refusals::new(0);
        assert!(!refusals.is_news(5, false, now));
        assert!(!refusals.is_news(5, true, now));
        assert!(refusals.is_news(6, true, now));
    }
}
