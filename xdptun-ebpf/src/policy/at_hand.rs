//! What is known of the packet at hand, and the chunk of its payload that is searched. Not on the
//! stack: it is too large, and global functions get numbers only.

use aya_ebpf::macros::map;
use aya_ebpf::maps::PerCpuArray;
use xdptun_common::policy::rule::{Packet, Set};
use xdptun_common::policy::search::{Chunk, GROUP, LEAD, WINDOW, Window};
use xdptun_common::policy::table::MAX_STRIDE;
use xdptun_common::wire::Protocol;

use crate::machine::load;

/// The packet at hand.
#[map]
pub static SEARCHED: PerCpuArray<AtHand> = PerCpuArray::with_max_entries(1, 0);

/// Bytes of the window, and so many behind them that a word from any place of a pattern is within,
/// also of one that begins in a group which ends behind the chunk. [`LEAD`] more, as the verifier
/// allows for a whole window that begins there.
const MEMORY: usize = LEAD + WINDOW + GROUP * MAX_STRIDE;

const _: () = assert!(LEAD.is_power_of_two(), "`load_window` masks with it");

/// The packet at hand.
#[repr(C, align(8))]
pub struct AtHand {
    /// The window of the chunk that is searched. First, and so at a multiple of eight.
    pub window: [u8; MEMORY],
    /// Its rules.
    pub set: Set,
    /// Where in the packet its payload begins, in bytes.
    pub payload: u32,
    /// How long the payload is, in bytes.
    pub len: u32,
    /// The chunk of what a rule searches.
    pub chunk: Chunk,
    /// How many steps are left for the rule.
    pub steps: u32,
    /// Where in what the rule searches the match begins, if there is one.
    pub found: u32,
    /// Its source, 16 bytes.
    pub source: [u8; 16],
    /// Its destination.
    pub destination: [u8; 16],
    /// Its ports, native: source, destination.
    pub ports: (u16, u16),
    /// Whether it has ports.
    pub has_ports: u8,
    /// Whether its payload hides behind too many headers.
    pub is_hidden: u8,
    /// Its transport protocol; 0 if it does not tell.
    pub protocol: u8,
}

/// The packet at hand. There always is one; the verifier does not know. One such reference at a
/// time is used: nothing else runs on this CPU before the program ends.
#[inline(always)]
pub fn at_hand() -> Option<&'static mut AtHand> {
    // SAFETY: a per-CPU value, which only this program run touches; any bytes are a value.
    SEARCHED
        .get_ptr_mut(0)
        .map(|at_hand| unsafe { &mut *at_hand })
}

impl AtHand {
    /// What rules ask about.
    #[inline(always)]
    pub fn packet(&self) -> Packet {
        Packet {
            source: self.source,
            destination: self.destination,
            ports: match self.has_ports {
                0 => None,
                _ => Some(self.ports),
            },
            protocol: match self.protocol {
                0 => None,
                protocol => Some(Protocol(protocol)),
            },
            is_hidden: self.is_hidden != 0,
        }
    }
}

/// A window, by its address.
#[derive(Clone, Copy)]
pub struct Memory(usize);

impl Memory {
    /// That of the packet at hand.
    #[inline(always)]
    pub fn of(at_hand: &AtHand) -> Self {
        Self(at_hand.window.as_ptr() as usize)
    }
}

impl Window for Memory {
    #[inline(always)]
    fn word(&self, at: usize) -> u32 {
        // SAFETY: `at` lies within, which the verifier checks as well.
        u32::from_le(unsafe { load(self.0 + at) })
    }

    #[inline(always)]
    fn long(&self, at: usize) -> u64 {
        // SAFETY: as above.
        u64::from_le(unsafe { load(self.0 + at) })
    }
}
