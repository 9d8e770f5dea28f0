//! The interfaces that share programs and maps, and how a program finds the one at hand.
//!
//! A packet names its interface by index, which may be any number. The programs look for that
//! number in a table of [`SLOTS`], from the slot that it would have if nothing else did. Indices
//! of one host are neighbours, so the slots of neighbours lie apart.

/// What the programs must know of an interface that they are attached to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Member {
    /// Index of the device where a program meets packets: the interface, or an end of its
    /// splitter. Zero in a free slot.
    pub met_at: u32,
    /// Index of the interface.
    pub index: u32,
    /// Its MTU in bytes, for the MSS option.
    pub mtu: u32,
    /// Index of the splitter's near end, to which super-packets go; 0 if there is none.
    pub near_end: u32,
    /// Index of its far end, to which datagrams for the joiner go; 0 if none may.
    pub far_end: u32,
    /// A [`crate::attachment::IngressMode`]. If it is XDP, that has refused plain UDP, and
    /// what tc sees was restored.
    pub ingress: u32,
    /// Which row of the counters is its own, below [`ROWS`].
    pub row: u32,
}

crate::plain!(Member: 28);

/// How many interfaces may share programs: each has a row of counters.
pub const ROWS: u32 = 32;

/// Slots of the table, a power of two: ten for each device, of which an interface has three.
pub const SLOTS: u32 = 1024;

/// In how many slots a program looks for an index.
pub const PROBES: u32 = 8;

/// The slot in which an index is looked for, at the attempt with this number.
#[inline(always)]
#[must_use]
pub const fn slot(ifindex: u32, probe: u32) -> u32 {
    // Fibonacci hashing: the golden ratio, and the upper bits.
    let home = ifindex.wrapping_mul(0x9e37_79b1) >> (32 - SLOTS.trailing_zeros());
    home.wrapping_add(probe) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many devices as there may be, with indices as hosts have them: neighbours, and
    /// splitters that are made anew.
    #[test]
    fn every_device_finds_a_slot() {
        for first in 1..2048 {
            for step in [1, 2, 3, 64] {
                let mut taken = [false; SLOTS as usize];
                for device in 0..3 * ROWS {
                    let index = first + device * step;
                    let mut slots = (0..PROBES).map(|probe| slot(index, probe) as usize);
                    let free = slots.find(|slot| !taken[*slot]);
                    taken[free.unwrap_or_else(|| panic!("{first}, {step}: none for {index}"))] =
                        true;
                }
            }
        }
    }
}
