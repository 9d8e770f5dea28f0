//! Datagrams that wait for the handshake of their flow.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use xdptun_common::flow::key::FlowKey;

/// Bytes that may wait for one flow, and for all together.
const FLOW_BYTES: usize = 8 << 20;
const TOTAL_BYTES: usize = 64 << 20;
/// How long a datagram may wait: later it is of no use to the application.
const PATIENCE: Duration = Duration::from_secs(10);

/// The waiting datagrams of every flow, bounded for each flow and in all.
#[derive(Default)]
pub struct Queue {
    flows: HashMap<FlowKey, Waiting>,
    bytes: usize,
}

struct Waiting {
    since: Instant,
    frames: Vec<Frame>,
    bytes: usize,
}

/// A datagram that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Index of the interface that it leaves by.
    pub interface: u32,
    /// Its bytes, from the link header.
    pub bytes: Vec<u8>,
}

impl Queue {
    /// Keeps a copy of a frame that leaves by this interface; `false` if there is no room for
    /// it.
    pub fn push(&mut self, key: FlowKey, interface: u32, frame: &[u8]) -> bool {
        if self.bytes + frame.len() > TOTAL_BYTES {
            return false;
        }
        let waiting = self.flows.entry(key).or_insert_with(|| Waiting {
            since: Instant::now(),
            frames: Vec::new(),
            bytes: 0,
        });
        if waiting.bytes + frame.len() > FLOW_BYTES {
            return false;
        }
        waiting.bytes += frame.len();
        self.bytes += frame.len();
        let bytes = frame.to_owned();
        waiting.frames.push(Frame { interface, bytes });
        true
    }

    /// Takes everything that waits for a flow, oldest first.
    pub fn take(&mut self, key: &FlowKey) -> Vec<Frame> {
        let Some(waiting) = self.flows.remove(key) else {
            return Vec::new();
        };
        self.bytes -= waiting.bytes;
        waiting.frames
    }

    /// The flows that datagrams wait for.
    pub fn waiting(&self) -> Vec<FlowKey> {
        self.flows.keys().copied().collect()
    }

    /// Whether no datagram waits.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Takes what has waited too long, by flow.
    pub fn give_up(&mut self) -> Vec<(FlowKey, Vec<Frame>)> {
        let late: Vec<FlowKey> = self
            .flows
            .iter()
            .filter(|(_, waiting)| waiting.since.elapsed() > PATIENCE)
            .map(|(key, _)| *key)
            .collect();
        late.into_iter().map(|key| (key, self.take(&key))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;

    fn key(port: u16) -> FlowKey {
        FlowKey::new(
            SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            SocketAddr::from((Ipv4Addr::LOCALHOST, 8000)),
        )
    }

    #[test]
    fn keeps_order_and_gives_back_everything_once() {
        let mut queue = Queue::default();
        for frame in [b"one".as_slice(), b"two", b""] {
            assert!(queue.push(key(1), 7, frame));
        }
        assert_eq!(queue.take(&key(2)), []);
        let frame = |bytes: &[u8]| Frame {
            interface: 7,
            bytes: bytes.to_vec(),
        };
        assert_eq!(
            queue.take(&key(1)),
            [frame(b"one"), frame(b"two"), frame(b"")]
        );
        assert_eq!(queue.take(&key(1)), []);
        assert_eq!(queue.bytes, 0);
    }

    #[test]
    fn one_flow_cannot_take_the_room_of_others() {
        let mut queue = Queue::default();
        let frame = vec![0; 64 << 10];
        let taken = (0..1000).filter(|_| queue.push(key(1), 7, &frame)).count();
        assert_eq!(taken, FLOW_BYTES / frame.len());
        assert!(queue.push(key(2), 7, &frame));
    }

    #[test]
    fn all_flows_together_are_bounded() {
        let mut queue = Queue::default();
        let frame = vec![0; 64 << 10];
        let taken = (0..2000)
            .filter(|port| queue.push(key(*port), 7, &frame))
            .count();
        assert_eq!(taken, TOTAL_BYTES / frame.len());
        queue.take(&key(0));
        assert!(queue.push(key(1), 7, &frame));
    }
}
