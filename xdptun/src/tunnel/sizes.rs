//! The sizes of maps that are not configured.

use aya::util::nr_cpus;

/// LRU maps, and how many entries each must remember.
const FORGETFUL: [(&str, u32); 5] = [
    ("FRAGMENTS", 8192),
    ("CALLS", 4096),
    ("NETWORKS", 4096),
    ("RESETS", 4096),
    // The last proofs of ten callers a second for as long as one is good.
    ("PROOFS", 8192),
];

/// Entries that each CPU may keep for itself: twice `LOCAL_FREE_TARGET` of the kernel's
/// `bpf_lru_list.c`. A map must be larger, or other CPUs find no free entry.
const KEPT_BY_CPU: u32 = 256;

/// LRU maps, and how many entries they get on this machine.
pub fn forgetful() -> impl Iterator<Item = (&'static str, u32)> {
    // The kernel tells always; if it did not, a map could be small for many CPUs.
    let cpus = nr_cpus().map_or(1, |cpus| u32::try_from(cpus).unwrap_or(u32::MAX));
    FORGETFUL
        .into_iter()
        .map(move |(map, entries)| (map, entries_for(entries, cpus)))
}

/// The entries to remember, and those that the CPUs keep.
fn entries_for(least: u32, cpus: u32) -> u32 {
    least.max(cpus.saturating_mul(KEPT_BY_CPU))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_cpus_leave_something_to_each_other() {
        for (least, cpus, expected) in [
            (4096, 1, 4096),
            (4096, 16, 4096),
            (4096, 17, 4352),
            (8192, 256, 65536),
            (1, u32::MAX, u32::MAX),
        ] {
            assert_eq!(entries_for(least, cpus), expected, "{least}, {cpus} CPUs");
        }
    }
}
