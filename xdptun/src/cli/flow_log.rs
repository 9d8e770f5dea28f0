//! The log of flows: a line for each change as long as there are few. Strangers can make
//! flows come and go, and must not be able to fill a disk with lines about them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use tokio::task::spawn_local;
use tokio::time::sleep_until;
use tracing::{info, warn};
use xdptun_common::flow::key::FlowKey;

use super::limit::{Limiter, Verdict};
use crate::tunnel::daemon::News;

/// The log of all flows. Dropping it logs what it has kept back.
#[derive(Default)]
pub struct FlowLog {
    /// Changes of flows.
    changes: RefCell<Limiter<Changes>>,
    /// Peers that do not answer: counted apart, so that changes cannot hide them.
    unanswered: RefCell<Limiter<Unanswered>>,
    /// Flows that send fragments.
    fragmented: RefCell<Limiter<Rest>>,
    /// Peers that end each flow at once.
    brief: RefCell<Limiter<Rest>>,
}

impl FlowLog {
    /// Logs a change of a flow, now or in the next summary. Needs a `LocalSet`.
    pub fn tell(self: &Rc<Self>, flow: &FlowKey, news: News) {
        let now = Instant::now();
        let verdict = match news {
            News::Unanswered { datagrams } => {
                let keep = |rest: &mut Unanswered| rest.add(flow.remote(), datagrams);
                self.unanswered.borrow_mut().admit(now, keep)
            }
            News::Fragmented => (self.fragmented.borrow_mut()).admit(now, Rest::add),
            News::Brief { .. } => self.brief.borrow_mut().admit(now, Rest::add),
            change => {
                let keep = |rest: &mut Changes| rest.add(change);
                self.changes.borrow_mut().admit(now, keep)
            }
        };
        match verdict {
            Verdict::Log => log(flow, news),
            Verdict::Kept(None) => {}
            Verdict::Kept(Some(due)) => {
                let own = Rc::clone(self);
                spawn_local(async move {
                    sleep_until(due.into()).await;
                    match news {
                        News::Unanswered { .. } => own.sum_up_unanswered(),
                        News::Fragmented => own.sum_up_fragmented(),
                        News::Brief { .. } => own.sum_up_brief(),
                        _ => own.sum_up_changes(),
                    }
                });
            }
        }
    }

    fn sum_up_changes(&self) {
        if let Some(changes) = self.changes.borrow_mut().take_rest() {
            info!("{}", changes.text());
        }
    }

    fn sum_up_unanswered(&self) {
        if let Some(unanswered) = self.unanswered.borrow_mut().take_rest() {
            warn!("{}", unanswered.text());
        }
    }

    fn sum_up_fragmented(&self) {
        if let Some(Rest(flows)) = self.fragmented.borrow_mut().take_rest() {
            warn!("{flows} more flows send fragments");
        }
    }

    fn sum_up_brief(&self) {
        if let Some(Rest(peers)) = self.brief.borrow_mut().take_rest() {
            warn!("{peers} more warnings of connections that were ended at once");
        }
    }
}

impl Drop for FlowLog {
    fn drop(&mut self) {
        self.sum_up_changes();
        self.sum_up_unanswered();
        self.sum_up_fragmented();
        self.sum_up_brief();
    }
}

fn log(flow: &FlowKey, news: News) {
    let (local, remote) = (flow.local(), flow.remote());
    match news {
        News::Up => info!("{local} -> {remote} up"),
        News::Closed => info!("{local} -> {remote} down: closed"),
        News::Reset => info!("{local} -> {remote} down: reset by the peer"),
        News::Reopened { silence } => info!(
            "{local} -> {remote} no answer for {:.1} s, opening again",
            silence.as_secs_f32()
        ),
        News::Unanswered { datagrams } => warn!(
            "{local} -> {remote}: no answer to the handshake, {datagrams} datagrams dropped; \
             is xdptun attached there (with the same secret, if any), and does the \
             network let TCP port {} through?",
            flow.remote_port()
        ),
        News::Brief { flows } => warn!(
            "{local} -> {remote}: {flows} connections in a row were ended within a second of \
             opening: a TCP server answers there without xdptun, or a firewall on the way resets \
             them; attach xdptun at the peer, to port {}. Not told again for ten minutes",
            flow.remote_port()
        ),
        News::Fragmented => warn!(
            "{local} -> {remote}: IP cuts its datagrams into fragments, each a segment of its own, \
             which costs throughput; lower the MTU inside the tunnel (WireGuard: to what `xdptun \
             status` shows; others: so that datagrams have at most {} bytes less than the MTU of \
             the interface)",
            if flow.is_ipv4() { 40 } else { 60 }
        ),
    }
}

/// The summary of changes without a line of their own.
#[derive(Default)]
struct Changes {
    up: u64,
    closed: u64,
    reset: u64,
    reopened: u64,
}

impl Changes {
    fn add(&mut self, change: News) {
        let count = match change {
            News::Up => &mut self.up,
            News::Closed => &mut self.closed,
            News::Reset => &mut self.reset,
            News::Reopened { .. } => &mut self.reopened,
            // They have summaries of their own.
            News::Unanswered { .. } | News::Fragmented | News::Brief { .. } => return,
        };
        *count += 1;
    }

    fn text(&self) -> String {
        let parts = [
            (self.up, "up"),
            (self.closed, "closed"),
            (self.reset, "reset by the peer"),
            (self.reopened, "opened again after silence"),
        ];
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<_> = parts
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        format!(
            "more changes of flows: {}; `xdptun flows` shows the flows of now",
            parts.join(", ")
        )
    }
}

/// The summary of unanswered handshakes without a line of their own.
#[derive(Default)]
struct Unanswered {
    handshakes: u64,
    peers: BTreeSet<SocketAddr>,
    datagrams: usize,
}

impl Unanswered {
    fn add(&mut self, peer: SocketAddr, datagrams: usize) {
        self.handshakes += 1;
        self.peers.insert(peer);
        self.datagrams += datagrams;
    }

    fn text(&self) -> String {
        let Self {
            handshakes,
            peers,
            datagrams,
        } = self;
        format!(
            "{handshakes} more handshakes had no answer, with {} peers, {datagrams} datagrams \
             dropped; `xdptun doctor` tells more",
            peers.len()
        )
    }
}

/// How many had no line of their own.
#[derive(Default)]
struct Rest(u64);

impl Rest {
    const fn add(&mut self) {
        self.0 += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn changes_are_summed_up_by_kind() {
        let mut changes = Changes::default();
        for _ in 0..1234 {
            changes.add(News::Up);
        }
        let silence = Duration::from_secs(1);
        for change in [News::Closed, News::Closed, News::Reopened { silence }] {
            changes.add(change);
        }
        assert_eq!(
            changes.text(),
            "more changes of flows: 1234 up, 2 closed, 1 opened again after silence; \
             `xdptun flows` shows the flows of now"
        );
    }

    #[test]
    fn peers_that_do_not_answer_are_counted_once() {
        let mut unanswered = Unanswered::default();
        for port in [1, 2, 1] {
            unanswered.add(([192, 0, 2, 1], port).into(), 5);
        }
        assert_eq!(
            unanswered.text(),
            "3 more handshakes had no answer, with 2 peers, 15 datagrams dropped; \
             `xdptun doctor` tells more"
        );
    }
}
