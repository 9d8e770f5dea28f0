//! A packet in memory of the host, for tests.

use core::cell::Cell;
use std::vec::Vec;

use crate::packet::access::Packet;

/// A packet, with memory behind it that nothing may touch.
pub struct Buffer {
    memory: Vec<Cell<u8>>,
    /// Where the packet starts.
    start: Cell<usize>,
    /// Where it ends.
    end: usize,
}

/// What is behind the packet.
const FENCE: [u8; 64] = [0xa5; 64];

impl Buffer {
    /// A packet of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        let memory = bytes.iter().chain(&FENCE);
        Self {
            memory: memory.copied().map(Cell::new).collect(),
            start: Cell::new(0),
            end: bytes.len(),
        }
    }

    /// Its bytes.
    ///
    /// # Panics
    ///
    /// If something was written behind them.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.memory.iter().map(Cell::get).collect();
        assert_eq!(bytes.split_off(self.end), FENCE);
        bytes.split_off(self.start.get())
    }

    /// Moves the start of the packet `by` bytes forward.
    pub fn cut_head(&self, by: usize) {
        self.start.set(self.start.get() + by);
    }
}

// SAFETY: the memory is cells of its own, which let it change.
unsafe impl Packet for Buffer {
    fn start(&self) -> usize {
        self.memory.as_ptr() as usize + self.start.get()
    }

    fn end(&self) -> usize {
        self.memory.as_ptr() as usize + self.end
    }
}
