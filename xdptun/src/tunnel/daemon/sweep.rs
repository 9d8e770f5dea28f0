//! The sweep over all flows, ten times a second: it sends probes and SYNs that are due,
//! removes flows that are over, and corrects the counts of the programs.

use std::time::Duration;

use aya::maps::MapError;
use tracing::{debug, warn};
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::config::Request;
use xdptun_common::tunnel::share::Tally;
use xdptun_common::tunnel::state::Flow;

use super::doubts::Round;
use super::evict::{is_ripe, surplus};
use super::need::{Need, Peer, is_doubtful, need};
use super::{Daemon, News};
use crate::error::Result;
use crate::host::clock::{monotonic_ns, since};

/// How often the daemon removes addresses without flows from `REMOTES`.
const TIDY: Duration = Duration::from_secs(1);

/// How many flows a sweep leaves in the table.
#[derive(Default)]
struct Left {
    entries: u64,
    /// Flows that wait for their first answer, by opener.
    waiting: [u64; 2],
}

impl Left {
    fn count(&mut self, flow: &Flow) {
        self.entries += 1;
        if let Some(opener) = flow.waits() {
            self.waiting[opener as usize] += 1;
        }
    }
}

impl Daemon<'_> {
    /// Removes a flow if that is still due; returns whether it did. The decision was made on
    /// a copy, up to two seconds old, and the programs can open a closed flow at any moment.
    ///
    /// The daemon cannot prevent that between its look and the removal. So it takes the entry
    /// that the kernel removed, and puts it back if the flow was opened in between, unless
    /// the programs have made a new one already. A program that changes the entry at that
    /// very moment sends a SYN of a flow which is then closed or gone: its datagram waits
    /// in the queue, and [`Daemon::enqueue`] sends it again, which opens the flow.
    fn take(&mut self, key: &FlowKey, is_due: impl Fn(&Flow) -> bool) -> Result<bool> {
        let maps = &mut self.attached.maps;
        if !maps.flow(key)?.as_ref().is_some_and(&is_due) {
            return Ok(false);
        }
        match maps.take_flow(key)? {
            Some(taken) if !is_due(&taken) => {
                maps.put_back(key, &taken)?;
                Ok(false)
            }
            taken => Ok(taken.is_some()),
        }
    }

    /// Removes a flow as [`Self::take`] does, and logs why; returns whether the flow is gone.
    fn remove(&mut self, key: &FlowKey, why: &str, is_due: impl Fn(&Flow) -> bool) -> bool {
        let (local, remote) = (key.local(), key.remote());
        let removed = self.take(key, is_due);
        match &removed {
            Ok(true) => debug!("{local} -> {remote} removed: {why}"),
            Ok(false) => {}
            Err(error) => warn!("{local} -> {remote}: cannot remove the flow: {error:#}"),
        }
        removed.unwrap_or(false)
    }

    /// Gives every flow what it needs, and corrects the counts of the programs. Returns how long
    /// it took to read the table.
    pub(super) fn sweep(&mut self) -> Duration {
        let now = monotonic_ns();
        for flow in self.brief.lasting(now) {
            self.observer.flow(&flow, News::Up);
        }
        let before = self.attached.maps.opened();
        let tidies = since(now, self.tidied) > TIDY;
        // Before the flows: an address must not be newer than the list of flows.
        let remotes = tidies.then(|| self.attached.maps.remotes());
        let flows = match self.attached.maps.flows() {
            Ok(flows) => flows,
            Err(error) => {
                warn!("{error:#}");
                return since(monotonic_ns(), now);
            }
        };
        let after = self.attached.maps.opened();
        self.tell_unanswered(&flows);
        if let Some(remotes) = remotes {
            self.tidied = now;
            let maps = &mut self.attached.maps;
            let removed = remotes.and_then(|remotes| maps.remove_unused_remotes(&remotes, &flows));
            if let Err(error) = removed {
                warn!("cannot remove addresses without flows: {error}");
            }
        }
        let looked = since(monotonic_ns(), now);
        let left = self.serve_all(&flows, now);
        if let Err(error) = self.settle(before, after, &left) {
            warn!("cannot count the flows: {error}");
        }
        looked
    }

    /// Tells the programs how many flows are left, relative to their counts before and after
    /// the daemon read the table. The programs add later flows themselves. A flow that was
    /// answered meanwhile may count as waiting until the next sweep: too many is safer than
    /// too few.
    fn settle(
        &mut self,
        before: Result<Tally, MapError>,
        after: Result<Tally, MapError>,
        left: &Left,
    ) -> Result<(), MapError> {
        let counted = Tally {
            opened: before?.opened,
            answered: after?.answered,
        };
        let settled = counted.settle(left.waiting, left.entries);
        self.attached.maps.settle(settled)
    }

    /// Gives every flow what it needs; returns how many of them are left.
    fn serve_all(&mut self, flows: &[(FlowKey, Flow)], now: u64) -> Left {
        let mut round = self.doubts.begin(now);
        let mut left = Left::default();
        let surplus = surplus(flows, self.attached.maps.max_flows(), now);
        for ((key, flow), surplus) in flows.iter().zip(surplus) {
            let is_gone = match flow.waits() {
                Some(opener) if surplus => {
                    self.remove(key, "too many wait", |flow| is_ripe(flow, opener, now))
                }
                _ => self.serve_flow(key, flow, &mut round),
            };
            if !is_gone && flow.opened_at <= now {
                left.count(flow);
            }
        }
        self.doubts.end(round);
        left
    }

    /// Gives a flow what it needs; returns whether it is gone then.
    fn serve_flow(&mut self, key: &FlowKey, flow: &Flow, round: &mut Round) -> bool {
        let now = round.now;
        let is_doubtful = is_doubtful(flow, now);
        let peer = Peer {
            is_dead: self.doubts.is_dead(key, flow, now),
            // Only then does it matter.
            is_phantun: is_doubtful && self.attached.maps.leads_to_phantun(key),
        };
        match need(flow, peer, &self.timers, now) {
            Need::Nothing => {}
            Need::Send(request) => {
                if request == Request::Reopen {
                    let silence = since(now, flow.unanswered_at);
                    self.observer.flow(key, News::Reopened { silence });
                    self.doubts.reopen(key, now);
                } else if request == Request::Probe
                    && !peer.is_phantun
                    && is_doubtful
                    && !self.doubts.ask(round, key, flow)
                {
                    return false;
                }
                if request == Request::Probe && flow.is_unconfirmed() {
                    self.request(key, flow, Request::Confirm);
                }
                self.request(key, flow, request);
            }
            Need::Remove(why) => {
                let timers = self.timers;
                return self.remove(key, why, |flow| {
                    matches!(need(flow, peer, &timers, now), Need::Remove(_))
                });
            }
        }
        false
    }
}
