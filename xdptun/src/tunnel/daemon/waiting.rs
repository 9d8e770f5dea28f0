//! Datagrams that wait for a handshake: the daemon keeps them, sends them when it has ended,
//! hands them on to the next daemon, or gives them up.

use aya::maps::{MapData, RingBuf};
use tracing::{debug, warn};
use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::config::Request;
use xdptun_common::tunnel::state::State;

use super::{Daemon, News};
use crate::error::Result;
use crate::group::queue::Frame;

impl Daemon<'_> {
    /// Keeps a datagram until its flow is up. That may be now: the event of the end of the
    /// handshake can arrive before this one. If the flow was removed or closed meanwhile, the
    /// datagram is sent again at once, and opens it anew.
    pub(super) fn enqueue(&mut self, key: &FlowKey, interface: u32, frame: &[u8]) {
        if !self.queue.push(*key, interface, frame) {
            self.attached.count_lost(interface, 1);
        }
        let state = match self.attached.maps.flow(key) {
            Ok(flow) => flow.map_or(State::Closed, |flow| flow.state()),
            Err(error) => {
                debug!("cannot look for the flow: {error}");
                return;
            }
        };
        match state {
            State::Established | State::Closed => self.flush(key),
            State::SynSent | State::SynReceived | State::FinSent => {}
        }
    }

    fn is_established(&self, key: &FlowKey) -> bool {
        matches!(self.attached.maps.flow(key), Ok(Some(flow)) if flow.state() == State::Established)
    }

    /// Sends what waited for a flow, in order.
    pub(super) fn flush(&mut self, key: &FlowKey) {
        for Frame { interface, bytes } in self.queue.take(key) {
            let Some(carried) = self.attached.at(interface) else {
                self.attached.count_lost(interface, 1);
                continue;
            };
            let sent = self.injector.resend(key, &carried.interface, bytes);
            if let Err(error) = sent {
                warn!(
                    "{} -> {}: cannot send a queued datagram: {error}",
                    key.local(),
                    key.remote()
                );
                self.attached.count_lost(interface, 1);
            }
        }
    }

    /// Sends what waits for flows that are up, in case that event was lost, and drops what has
    /// waited too long. The sweep repeats SYNs.
    pub(super) fn serve_waiting(&mut self) {
        for key in self.queue.waiting() {
            if self.is_established(&key) {
                self.flush(&key);
            }
        }
        for (key, frames) in self.queue.give_up() {
            let datagrams = frames.len();
            self.observer.flow(&key, News::Unanswered { datagrams });
            self.attached.count_all_lost(&frames);
        }
    }

    /// Begins handshakes of the process before anew: the programs may have got a secret
    /// since.
    pub(super) fn restart_handshakes(&mut self, events: &mut RingBuf<MapData>) -> Result<()> {
        // First the datagrams that wait for them, so that they open the flows again. The
        // number of rounds is limited, as more may come all the time.
        const ROUNDS: usize = 64;
        let _all = (0..ROUNDS).any(|_| self.drain(events));
        for (key, flow) in self.attached.maps.flows()? {
            if matches!(flow.state(), State::SynSent | State::SynReceived) {
                self.request(&key, &flow, Request::Finish);
                self.flush(&key);
            }
        }
        Ok(())
    }

    /// Sends all waiting datagrams again: the programs hand them to the next daemon.
    pub(super) fn hand_back(&mut self) {
        for key in self.queue.waiting() {
            self.flush(&key);
        }
    }
}
