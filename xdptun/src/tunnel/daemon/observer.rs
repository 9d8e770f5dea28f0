//! The daemon's news of flows.

use std::time::Duration;

use xdptun_common::flow::key::FlowKey;

/// A change of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Its handshake ended: datagrams pass.
    Up,
    /// Both ends closed it.
    Closed,
    /// The peer, or a device on the way, reset it.
    Reset,
    /// The path seems dead, so the daemon opens the flow again.
    Reopened {
        /// How long a datagram has been unanswered.
        silence: Duration,
    },
    /// The peer does not answer its handshake.
    Unanswered {
        /// How many waiting datagrams the daemon dropped.
        datagrams: usize,
    },
    /// Its peer ended it as soon as it was open, like others before: a TCP server answers there.
    /// Further ones are not told for a while.
    Brief {
        /// How many in a row.
        flows: u32,
    },
    /// It sent its first fragment: its datagrams are longer than the path takes.
    Fragmented {
        /// Index of the interface by which it leaves; none if the flow is gone already.
        interface: Option<u32>,
    },
}

/// The receiver of a daemon's news.
pub trait Observer {
    /// Something happened to a flow.
    fn flow(&self, flow: &FlowKey, news: News);
}

/// Receives news, and does nothing with it.
impl Observer for () {
    fn flow(&self, _flow: &FlowKey, _news: News) {}
}
