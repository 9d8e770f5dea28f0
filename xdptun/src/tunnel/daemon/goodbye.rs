//! The clean end: the daemon sends a FIN on every open flow and waits a moment for the FINs
//! of the peers.

use std::time::Duration;

use aya::maps::{MapData, RingBuf};
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, interval, sleep_until};
use tracing::warn;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::config::Request;
use xdptun_common::tunnel::state::{Flow, State};

use super::Daemon;
use crate::error::Result;
use crate::group::orders::{Orders, next};

/// How long a clean end may take in all, and how often the daemon repeats a FIN.
const GOODBYE: Duration = Duration::from_secs(1);
const FIN_INTERVAL: Duration = Duration::from_millis(200);

impl Daemon<'_> {
    /// Sends a FIN on every open flow, until the peers have answered or [`GOODBYE`] is over.
    pub(super) async fn say_goodbye<T>(
        &mut self,
        events: &mut AsyncFd<RingBuf<MapData>>,
        orders: &mut Orders<T>,
    ) -> Result<()> {
        let deadline = Instant::now() + GOODBYE;
        let mut repeat = interval(FIN_INTERVAL);
        loop {
            if self.open_flows()?.is_empty() {
                return Ok(());
            }
            tokio::select! {
                ready = events.readable_mut() => {
                    let mut ready = ready?;
                    if self.drain(ready.get_inner_mut()) {
                        ready.clear_ready();
                    }
                }
                _ = repeat.tick() => {
                    for (key, flow) in self.open_flows()? {
                        self.request(&key, &flow, Request::Finish);
                    }
                }
                () = sleep_until(deadline) => {
                    warn!("{} flows did not answer the FIN", self.open_flows()?.len());
                    return Ok(());
                }
                _ = next(orders) => return Ok(()),
            }
        }
    }

    fn open_flows(&self) -> Result<Vec<(FlowKey, Flow)>> {
        let mut flows = self.attached.maps.flows()?;
        flows.retain(|(_, flow)| matches!(flow.state(), State::Established | State::FinSent));
        Ok(flows)
    }
}
