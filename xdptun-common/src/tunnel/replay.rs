//! A Bloom filter per epoch that keeps each proof until it expires.
//!
//! A proof sets [`HASHES`] one-byte cells of its epoch's partition to the epoch's stamp,
//! and was seen if all of them carry it. Four epochs take turns with the four
//! partitions. A proof is good for its own epoch and its two neighbours, so nothing
//! overwrites its cells before it has expired, and nothing ever has to be cleared. The
//! filter can take a new proof for a seen one: at 292 proofs a second, one of twenty.
//! The caller then refuses one SYN, and the next SYN of the flow is another proof.

use crate::siphash::siphash24;
use crate::tunnel::isn::Secret;
use crate::tunnel::proof::PROOF_EPOCH_NS;

/// Cells of a partition, as a power of two.
const CELL_BITS: u32 = 19;
/// Epochs that have a partition of their own.
const PARTITIONS: u64 = 4;
/// Cells that a proof sets.
pub const HASHES: usize = 3;

/// Cells of the filter, one byte each: 2 MiB.
pub const CELLS: u32 = (PARTITIONS as u32) << CELL_BITS;
/// Cells of a map entry.
pub const PAGE: u32 = 4096;
/// Entries of the map that holds the filter.
pub const PAGES: u32 = CELLS / PAGE;

// One hash has the bits for all positions; three epochs must not share a partition.
const _: () = assert!(CELL_BITS as usize * HASHES <= 64 && PARTITIONS > 3);
const _: () = assert!(PROOF_EPOCH_NS.is_power_of_two());

/// Where a proof is in the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its cells.
    pub cells: [u32; HASHES],
    /// What they carry if it was seen; never 0, which a new map holds.
    pub stamp: u8,
}

impl Place {
    /// The place of a proof of `epoch`, by its number and value in one word. Only this host
    /// knows `secret`, so no sender can choose proofs that fall on certain cells.
    #[inline(always)]
    #[must_use]
    pub fn new(secret: &Secret, name: u64, epoch: u64) -> Self {
        let hash = siphash24(secret.key(), [name]);
        let partition = ((epoch % PARTITIONS) as u32) << CELL_BITS;
        let cell = |at: u32| partition | (hash >> (at * CELL_BITS)) as u32 & ((1 << CELL_BITS) - 1);
        Self {
            cells: [cell(0), cell(1), cell(2)],
            stamp: (epoch / PARTITIONS % 255) as u8 + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tunnel::proof::proof_epoch;

    const SECRET: Secret = Secret([3, 4, 0]);

    /// The filter as the programs keep it.
    struct Filter(Vec<u8>);

    impl Filter {
        fn new() -> Self {
            Self(vec![0; CELLS as usize])
        }

        fn has(&self, place: Place) -> bool {
            let mut cells = place.cells.iter();
            cells.all(|cell| self.0[*cell as usize] == place.stamp)
        }

        fn add(&mut self, place: Place) {
            for cell in place.cells {
                self.0[cell as usize] = place.stamp;
            }
        }
    }

    proptest! {
        #[test]
        fn cells_are_within_the_partition_of_the_epoch(secret: [u64; 2], name: u64, epoch: u64) {
            let place = Place::new(&Secret::new(secret), name, epoch);
            prop_assert!(place.stamp != 0);
            for cell in place.cells {
                prop_assert_eq!(u64::from(cell >> CELL_BITS), epoch % PARTITIONS);
                prop_assert!(cell < CELLS);
            }
        }

        #[test]
        fn no_epoch_in_three_days_has_the_same_stamp_there(epoch in 0..u64::MAX / 2, later in 1..1020_u64) {
            let place = |epoch| Place::new(&SECRET, 1, epoch);
            prop_assert_ne!(place(epoch), place(epoch + later));
        }
    }

    /// From the first moment at which a proof is good to the last, a million others of
    /// all epochs that are good meanwhile do not make the filter forget it.
    #[test]
    fn a_proof_is_never_forgotten_while_it_is_good() {
        const OTHERS: u64 = 1_000_000;
        let epoch = 1000;
        let recorded = || (0..100).map(|name| Place::new(&SECRET, name << 40, epoch));
        let mut filter = Filter::new();
        recorded().for_each(|place| filter.add(place));
        let (from, to) = ((epoch - 1) * PROOF_EPOCH_NS, (epoch + 2) * PROOF_EPOCH_NS);
        for other in 0..OTHERS {
            let now = from + (to - from) / OTHERS * other;
            let of = proof_epoch(now) + other % 3 - 1;
            filter.add(Place::new(&SECRET, other, of));
        }
        assert!(recorded().all(|place| filter.has(place)));
    }

    /// The bound of docs/security.md: 292 a second for the 275 s of an epoch.
    #[test]
    fn one_new_proof_in_twenty_is_refused_at_the_stated_rate() {
        const RATE: u64 = 292;
        let count = RATE * PROOF_EPOCH_NS / 1_000_000_000;
        let mut filter = Filter::new();
        for name in 0..count {
            filter.add(Place::new(&SECRET, name, 1000));
        }
        let refused = |epoch: u64| {
            let new = (0..100_000).map(|name| Place::new(&SECRET, name << 40 | 1, epoch));
            new.filter(|place| filter.has(*place)).count()
        };
        let (share, other) = (refused(1000), refused(1004));
        assert!(
            (4500..5500).contains(&share),
            "{share} of 100,000 after {count}"
        );
        assert_eq!(other, 0, "the next epoch of the partition");
    }
}
