//! What crosses a wire, and which way.

use xdptun_lab::{Frame, WireStats};

use crate::TUNNEL_PORT;

/// Running totals of a wire, taken at one end.
///
/// A datagram of the tunnel counts in whichever form it crosses: a UDP datagram, or a segment with
/// data.
#[derive(Debug, Clone)]
pub struct Crossing {
    /// Both ways together.
    pub stats: WireStats,
    /// Datagrams that this end received.
    pub received: u64,
    /// Datagrams that this end sent.
    pub sent: u64,
}

impl Crossing {
    /// Nothing has crossed yet.
    pub(crate) fn new() -> Self {
        Self {
            stats: WireStats::new(TUNNEL_PORT),
            received: 0,
            sent: 0,
        }
    }

    /// Takes one frame into account.
    pub(crate) fn add(&mut self, frame: &Frame) {
        let before = self.datagrams();
        self.stats.add(frame);
        let more = self.datagrams() - before;
        match frame.outgoing {
            true => self.sent += more,
            false => self.received += more,
        }
    }

    /// Datagrams that crossed either way.
    pub fn datagrams(&self) -> u64 {
        self.stats.udp_datagrams + self.stats.data_segments
    }
}
