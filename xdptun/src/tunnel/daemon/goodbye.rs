//! The clean end: the daemon sends a FIN on every open flow and waits a moment for the FINs
//! of the peers.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use aya::maps::{MapData, RingBuf};
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, interval};
use tracing::warn;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::config::Request;
use xdptun_common::tunnel::state::{Flow, State};

use super::Daemon;
use crate::error::Result;

/// How long a clean end may take in all, how often the daemon repeats a FIN, and how often it looks
/// whether all are answered: reading a large table takes time.
const GOODBYE: Duration = Duration::from_secs(1);
const FIN_INTERVAL: Duration = Duration::from_millis(200);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

impl Daemon<'_> {
    /// Sends a FIN on every open flow that `is_meant`, until the peers have answered, [`GOODBYE`] is
    /// over, or `other` completes.
    pub(super) async fn say_goodbye(
        &mut self,
        events: &mut AsyncFd<RingBuf<MapData>>,
        is_meant: impl Fn(&FlowKey) -> bool,
        other: impl Future,
    ) -> Result<()> {
        let mut other = pin!(other);
        let deadline = Instant::now() + GOODBYE;
        let mut look = interval(LOOK_INTERVAL);
        let mut fin_at = Instant::now();
        // One that its peer opens anew meanwhile is another.
        let meant: BTreeMap<FlowKey, u64> = self
            .open_flows()?
            .filter(|(key, _)| is_meant(key))
            .map(|(key, flow)| (key, flow.opened_at))
            .collect();
        loop {
            tokio::select! {
                ready = events.readable_mut() => {
                    let mut ready = ready?;
                    if self.drain(ready.get_inner_mut()) {
                        ready.clear_ready();
                    }
                }
                now = look.tick() => {
                    let mut left = self.left_of(&meant)?;
                    if now >= fin_at {
                        fin_at = now + FIN_INTERVAL;
                        for (key, flow) in left {
                            self.request(&key, &flow, Request::Finish);
                        }
                        // A peer on this host has answered already.
                        left = self.left_of(&meant)?;
                    }
                    if left.is_empty() {
                        return Ok(());
                    }
                    if now >= deadline {
                        warn!("{} flows did not answer the FIN", left.len());
                        return Ok(());
                    }
                }
                _ = &mut other => return Ok(()),
            }
        }
    }

    /// Those of these flows that are still open.
    fn left_of(&self, meant: &BTreeMap<FlowKey, u64>) -> Result<Vec<(FlowKey, Flow)>> {
        let is_meant = |(key, flow): &(FlowKey, Flow)| meant.get(key) == Some(&flow.opened_at);
        Ok(self.open_flows()?.filter(is_meant).collect())
    }

    fn open_flows(&self) -> Result<impl Iterator<Item = (FlowKey, Flow)> + use<>> {
        let flows = self.attached.maps.flows()?.into_iter();
        Ok(flows.filter(|(_, flow)| matches!(flow.state(), State::Established | State::FinSent)))
    }
}
