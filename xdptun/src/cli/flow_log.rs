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
use crate::host::interface::Interface;
use crate::host::mtu::cost_of_fragments;
use crate::tunnel::daemon::News;

/// The log of all flows. Dropping it logs what it has kept back.
#[derive(Default)]
pub struct FlowLog([RefCell<Limiter<Rest>>; Topic::ALL.len()]);

/// What a line is about. Each topic has a limit of its own, so that lines of one cannot hide those
/// of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topic {
    /// Changes of flows.
    Changes,
    /// Peers that do not answer.
    Unanswered,
    /// Flows that send fragments.
    Fragmented,
    /// Peers that end each flow at once.
    Brief,
}

impl Topic {
    const ALL: [Self; 4] = [
        Self::Changes,
        Self::Unanswered,
        Self::Fragmented,
        Self::Brief,
    ];

    const fn of(news: News) -> Self {
        match news {
            News::Up | News::Closed | News::Reset | News::Reopened { .. } => Self::Changes,
            News::Unanswered { .. } => Self::Unanswered,
            News::Fragmented { .. } => Self::Fragmented,
            News::Brief { .. } => Self::Brief,
        }
    }
}

impl FlowLog {
    /// Logs a change of a flow, now or in the next summary. Needs a `LocalSet`.
    pub fn tell(self: &Rc<Self>, flow: &FlowKey, news: News) {
        let topic = Topic::of(news);
        let keep = |rest: &mut Rest| rest.add(flow.remote(), news);
        let verdict = self.limiter(topic).borrow_mut().admit(Instant::now(), keep);
        match verdict {
            Verdict::Log => log(flow, news),
            Verdict::Kept(None) => {}
            Verdict::Kept(Some(due)) => {
                let own = Rc::clone(self);
                spawn_local(async move {
                    sleep_until(due.into()).await;
                    own.sum_up(topic);
                });
            }
        }
    }

    fn limiter(&self, topic: Topic) -> &RefCell<Limiter<Rest>> {
        &self.0[topic as usize]
    }

    fn sum_up(&self, topic: Topic) {
        let Some(rest) = self.limiter(topic).borrow_mut().take_rest() else {
            return;
        };
        let text = rest.text(topic);
        match topic {
            Topic::Changes => info!("{text}"),
            Topic::Unanswered | Topic::Fragmented | Topic::Brief => warn!("{text}"),
        }
    }
}

impl Drop for FlowLog {
    fn drop(&mut self) {
        for topic in Topic::ALL {
            self.sum_up(topic);
        }
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
        News::Fragmented { interface } => {
            // As it is now, not as it was at attach.
            let interface = interface.and_then(|index| Interface::at(index).ok());
            warn!("{local} -> {remote}: {}", fragmented(remote, interface));
        }
    }
}

/// What to tell of a flow to this peer that sends fragments by the interface.
fn fragmented(peer: SocketAddr, interface: Option<Interface>) -> String {
    match interface {
        Some(Interface { name, mtu, .. }) => format!(
            "sends fragments by {name}: {}",
            cost_of_fragments(mtu, [peer])
        ),
        None => "sends fragments; `xdptun doctor` tells what they cost".to_owned(),
    }
}

/// What the lines of a topic said that were kept back.
#[derive(Default)]
struct Rest {
    lines: u64,
    /// How many flows came up, were closed, reset, opened again.
    changes: [u64; 4],
    /// Peers that did not answer.
    silent: BTreeSet<SocketAddr>,
    /// Datagrams that were dropped for that.
    datagrams: usize,
}

impl Rest {
    fn add(&mut self, peer: SocketAddr, news: News) {
        self.lines += 1;
        match news {
            News::Up => self.changes[0] += 1,
            News::Closed => self.changes[1] += 1,
            News::Reset => self.changes[2] += 1,
            News::Reopened { .. } => self.changes[3] += 1,
            News::Unanswered { datagrams } => {
                self.silent.insert(peer);
                self.datagrams += datagrams;
            }
            News::Fragmented { .. } | News::Brief { .. } => {}
        }
    }

    fn text(&self, topic: Topic) -> String {
        let lines = self.lines;
        match topic {
            Topic::Changes => format!(
                "more changes of flows: {}; `xdptun flows` shows the flows of now",
                self.changes_text()
            ),
            Topic::Unanswered => format!(
                "{lines} more handshakes had no answer, with {} peers, {} datagrams dropped; \
                 `xdptun doctor` tells more",
                self.silent.len(),
                self.datagrams
            ),
            Topic::Fragmented => format!("{lines} more flows send fragments"),
            Topic::Brief => {
                format!("{lines} more warnings of connections that were ended at once")
            }
        }
    }

    fn changes_text(&self) -> String {
        let names = [
            "up",
            "closed",
            "reset by the peer",
            "opened again after silence",
        ];
        let parts = self.changes.iter().zip(names);
        let parts = parts.filter(|(count, _)| **count > 0);
        let parts: Vec<_> = parts
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn peer(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    /// The summary of such lines, one for each of some peers.
    fn text(lines: &[(u16, News)]) -> String {
        let mut rest = Rest::default();
        let (_, news) = lines[0];
        for (port, news) in lines {
            rest.add(peer(*port), *news);
        }
        rest.text(Topic::of(news))
    }

    #[test]
    fn topics_are_in_their_order() {
        for (place, topic) in Topic::ALL.into_iter().enumerate() {
            assert_eq!(topic as usize, place, "{topic:?}");
        }
    }

    #[test]
    fn changes_are_summed_up_by_kind() {
        let silence = Duration::from_secs(1);
        let mut changes = vec![(1, News::Up); 1234];
        changes.extend([(1, News::Closed), (1, News::Closed)]);
        changes.push((1, News::Reopened { silence }));
        assert_eq!(
            text(&changes),
            "more changes of flows: 1234 up, 2 closed, 1 opened again after silence; \
             `xdptun flows` shows the flows of now"
        );
    }

    #[test]
    fn peers_that_do_not_answer_are_counted_once() {
        let unanswered = News::Unanswered { datagrams: 5 };
        assert_eq!(
            text(&[1, 2, 1].map(|port| (port, unanswered))),
            "3 more handshakes had no answer, with 2 peers, 15 datagrams dropped; \
             `xdptun doctor` tells more"
        );
    }

    #[test]
    fn warnings_are_counted() {
        let fragmented = News::Fragmented { interface: None };
        assert_eq!(
            text(&[(1, fragmented), (1, fragmented)]),
            "2 more flows send fragments"
        );
        let brief = News::Brief { flows: 3 };
        assert_eq!(
            text(&[(1, brief)]),
            "1 more warnings of connections that were ended at once"
        );
    }

    #[test]
    fn a_flow_with_fragments_is_told_with_its_interface() {
        let mut interface = Interface::at(1).unwrap();
        interface.mtu = 1500;
        assert_eq!(
            fragmented(peer(51820), Some(interface)),
            format!(
                "sends fragments by lo: {}",
                cost_of_fragments(1500, [peer(51820)])
            )
        );
        assert!(fragmented(peer(51820), None).contains("`xdptun doctor`"));
    }
}
