//! The warnings that a peer, or a firewall before it, refuses connections or does not answer.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, warn};
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::state::Flow;

use super::{Daemon, refused};
use crate::host::words::some_of;

/// How long to be silent after a warning: SYNs and their refusals go on.
const SILENCE: Duration = Duration::from_secs(60);

/// After so many SYNs, one a second, a peer does not answer. Fewer may be lost.
const MANY_SYNS: u16 = 4;

/// The last count of refusals, and the times of the last warnings.
pub struct Unanswered {
    refused: u64,
    told_refusal: Option<Instant>,
    told_silence: Option<Instant>,
}

impl Unanswered {
    /// Refusals counted so far are old.
    pub const fn new(refused: u64) -> Self {
        Self {
            refused,
            told_refusal: None,
            told_silence: None,
        }
    }

    /// Whether this count of refusals is worth a warning. `cares`: datagrams wait for an answer. To be
    /// called with every count, also if none wait: SYNs go on for a while.
    pub fn is_news(&mut self, count: u64, cares: bool, now: Instant) -> bool {
        let grown = count > self.refused;
        self.refused = count;
        grown && cares && claim(&mut self.told_refusal, now)
    }
}

/// Whether it is time for a warning that was last given at `told`; then it is given now.
fn claim(told: &mut Option<Instant>, now: Instant) -> bool {
    let is_due = told.is_none_or(|told| now - told >= SILENCE);
    if is_due {
        *told = Some(now);
    }
    is_due
}

/// The peers of flows.
fn peers<'a>(flows: impl Iterator<Item = &'a (FlowKey, Flow)>) -> BTreeSet<SocketAddr> {
    flows.map(|(key, _)| key.remote()).collect()
}

impl Daemon<'_> {
    /// Warns if a peer does not answer: at once if it refuses, which usually means that xdptun is not
    /// attached there yet, or else after some SYNs. The daemon gives the datagrams themselves up only
    /// later.
    pub(super) fn tell_unanswered(&mut self, flows: &[(FlowKey, Flow)]) {
        let count = refused(self.attached);
        let Ok(count) = count.inspect_err(|error| debug!("cannot read the counters: {error}"))
        else {
            return;
        };
        let now = Instant::now();
        let waits = !self.queue.is_empty();
        if self.unanswered.is_news(count, waits, now) {
            // The counter does not tell which of the called peers refused.
            let called = peers(flows.iter().filter(|(_, flow)| flow.is_called()));
            let peer = match (called.len(), called.first()) {
                (1, Some(peer)) => peer.to_string(),
                (more, _) => format!("one of {more} peers that are called"),
            };
            warn!(
                "{peer}, or a firewall in front of it, refuses: is xdptun attached there, to the \
                 interface and port that this host calls? `xdptun doctor` tells more"
            );
        }
        let is_waited_for =
            |(key, flow): &&(FlowKey, Flow)| flow.is_silent(MANY_SYNS) && self.queue.holds(key);
        let silent = Vec::from_iter(peers(flows.iter().filter(is_waited_for)));
        if !silent.is_empty() && claim(&mut self.unanswered.told_silence, now) {
            warn!(
                "no answer from {} to {MANY_SYNS} SYNs: is it up, is xdptun attached there, with the \
                 same secret if there is one, and does every firewall on the way let TCP to that port \
                 through? `xdptun doctor` tells more",
                some_of(&silent)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_told_once_a_minute() {
        let begin = Instant::now();
        let mut unanswered = Unanswered::new(7);
        let mut is_news = |count, after| unanswered.is_news(count, true, begin + after);
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
        let mut unanswered = Unanswered::new(0);
        assert!(!unanswered.is_news(5, false, now));
        assert!(!unanswered.is_news(5, true, now));
        assert!(unanswered.is_news(6, true, now));
    }
}
