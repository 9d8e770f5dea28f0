//! Frames that wait with the daemon of a function for something to happen.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// What may wait.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes for one key.
    pub for_one: usize,
    /// Bytes in all.
    pub in_all: usize,
    /// How long the first frame for a key may wait: later it is of no use.
    pub patience: Duration,
}

/// What a frame takes of these limits beside its bytes, as it takes memory.
const OVERHEAD: usize = 128;

/// Frames that wait, by what they wait for.
pub struct Queue<K> {
    limits: Limits,
    keys: HashMap<K, Waiting>,
    bytes: usize,
}

struct Waiting {
    since: Instant,
    frames: Vec<Frame>,
    bytes: usize,
}

/// A frame that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Index of the interface that it was met at.
    pub interface: u32,
    /// Its bytes, from the link header.
    pub bytes: Vec<u8>,
}

impl<K: Copy + Eq + Hash> Queue<K> {
    /// An empty one.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            keys: HashMap::new(),
            bytes: 0,
        }
    }

    /// Keeps a copy of a frame that was met at this interface; `false` if there is no room for
    /// it.
    pub fn push(&mut self, key: K, interface: u32, frame: &[u8]) -> bool {
        let bytes = frame.len() + OVERHEAD;
        let waits = self.keys.get(&key).map_or(0, |waiting| waiting.bytes);
        if self.bytes + bytes > self.limits.in_all || waits + bytes > self.limits.for_one {
            return false;
        }
        let waiting = self.keys.entry(key).or_insert_with(|| Waiting {
            since: Instant::now(),
            frames: Vec::new(),
            bytes: 0,
        });
        waiting.bytes += bytes;
        self.bytes += bytes;
        let bytes = frame.to_owned();
        waiting.frames.push(Frame { interface, bytes });
        true
    }

    /// Takes everything that waits for a key, oldest first.
    pub fn take(&mut self, key: &K) -> Vec<Frame> {
        let Some(waiting) = self.keys.remove(key) else {
            return Vec::new();
        };
        self.bytes -= waiting.bytes;
        waiting.frames
    }

    /// What is waited for.
    pub fn waiting(&self) -> Vec<K> {
        self.keys.keys().copied().collect()
    }

    /// Whether something waits for this.
    pub fn holds(&self, key: &K) -> bool {
        self.keys.contains_key(key)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Takes what has waited too long, by key.
    pub fn give_up(&mut self) -> Vec<(K, Vec<Frame>)> {
        let late: Vec<K> = self
            .keys
            .iter()
            .filter(|(_, waiting)| waiting.since.elapsed() > self.limits.patience)
            .map(|(key, _)| *key)
            .collect();
        late.into_iter().map(|key| (key, self.take(&key))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        for_one: 8 << 20,
        in_all: 64 << 20,
        patience: Duration::from_secs(10),
    };

    /// A frame that takes 64 KiB of the limits.
    fn frame() -> Vec<u8> {
        vec![0; (64 << 10) - OVERHEAD]
    }

    #[test]
    fn keeps_order_and_gives_back_everything_once() {
        let mut queue = Queue::new(LIMITS);
        for frame in [b"one".as_slice(), b"two", b""] {
            assert!(queue.push(1, 7, frame));
        }
        assert_eq!(queue.take(&2), []);
        let frame = |bytes: &[u8]| Frame {
            interface: 7,
            bytes: bytes.to_vec(),
        };
        assert_eq!(queue.take(&1), [frame(b"one"), frame(b"two"), frame(b"")]);
        assert_eq!(queue.take(&1), []);
        assert_eq!(queue.bytes, 0);
    }

    #[test]
    fn one_key_cannot_take_the_room_of_others() {
        let mut queue = Queue::new(LIMITS);
        let taken = (0..1000).filter(|_| queue.push(1, 7, &frame())).count();
        assert_eq!(taken, LIMITS.for_one / (64 << 10));
        assert!(queue.push(2, 7, &frame()));
    }

    #[test]
    fn all_together_are_bounded() {
        let mut queue = Queue::new(LIMITS);
        let taken = (0..2000)
            .filter(|key| queue.push(*key, 7, &frame()))
            .count();
        assert_eq!(taken, LIMITS.in_all / (64 << 10));
        // What finds no room leaves nothing behind.
        assert_eq!(queue.waiting().len(), taken);
        queue.take(&0);
        assert!(queue.push(0, 7, &frame()));
    }

    #[test]
    fn what_has_waited_too_long_is_given_up() {
        let patience = Duration::ZERO;
        let mut queue = Queue::new(Limits { patience, ..LIMITS });
        assert!(queue.push(1, 7, b"one"));
        let given_up = queue.give_up();
        assert_eq!((given_up.len(), given_up[0].1.len()), (1, 1));
        assert!(queue.is_empty());
    }
}
