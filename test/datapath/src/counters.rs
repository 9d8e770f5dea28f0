//! All counters in one system call.
//!
//! aya reads a per-CPU array index by index, and looks up the number of CPUs in
//! a file for each: half a millisecond, which a run of a program is worth a
//! hundred times over.

use aya::Ebpf;
use aya::maps::{Map, MapData};
use aya::util::nr_cpus;
use xdptun_bpf::{Cursor, lookup_batch};
use xdptun_common::tunnel::outcome::{COUNTERS, Outcome, Sent};

/// Which counters moved, and how far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// How packets ended.
    pub outcomes: Vec<(Outcome, u64)>,
    /// Control segments.
    pub sent: Vec<(Sent, u64)>,
}

/// The map of counters, and what it held when it was last read.
pub struct Counters {
    map: MapData,
    cpus: usize,
    /// One counter after the other, each with a value for every CPU.
    values: Vec<u64>,
    before: Vec<u64>,
}

impl Counters {
    /// Takes the map out of a loaded object.
    ///
    /// # Panics
    ///
    /// If the object has none.
    #[must_use]
    pub fn take(ebpf: &mut Ebpf) -> Self {
        let Some(Map::PerCpuArray(map)) = ebpf.take_map("COUNTERS") else {
            panic!("the object has no per-CPU array COUNTERS");
        };
        let cpus = nr_cpus().expect("the number of CPUs");
        Self {
            map,
            cpus,
            values: vec![0; COUNTERS as usize * cpus],
            before: vec![0; COUNTERS as usize],
        }
    }

    /// Which counters moved since the last call, and how far.
    ///
    /// # Panics
    ///
    /// If they cannot be read.
    pub fn moved(&mut self) -> Moved {
        self.read();
        let now = self.values.chunks_exact(self.cpus);
        let mut deltas = now.zip(&mut self.before).map(|(cpus, before)| {
            let now = cpus.iter().sum();
            now - std::mem::replace(before, now)
        });
        // The order of the map: outcomes first.
        Moved {
            outcomes: nonzero(Outcome::ALL, &mut deltas),
            sent: nonzero(Sent::ALL, &mut deltas),
        }
    }

    fn read(&mut self) {
        let mut keys = [0u32; COUNTERS as usize];
        let mut start = Cursor::default();
        // SAFETY: keys are numbers of four bytes, and values of eight; there is room for a
        // value of each counter for every CPU.
        let read = unsafe { lookup_batch(self.map.fd(), &mut start, &mut keys, &mut self.values) };
        assert!(
            matches!(read, Ok((count, _)) if count == keys.len()),
            "cannot read the counters: {read:?} of {COUNTERS}"
        );
    }
}

fn nonzero<T: Copy>(counters: &[T], deltas: &mut impl Iterator<Item = u64>) -> Vec<(T, u64)> {
    let moved = counters.iter().copied().zip(deltas);
    moved.filter(|(_, delta)| *delta != 0).collect()
}
