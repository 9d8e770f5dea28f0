//! All counters in one system call.
//!
//! aya reads a per-CPU array index by index, and looks up the number of CPUs in
//! a file for each: half a millisecond, which a run of a program is worth a
//! hundred times over.

use std::collections::BTreeMap;
use std::mem::replace;

use aya::Ebpf;
use aya::maps::{Map, MapData};
use aya::util::nr_cpus;
use xdptun_bpf::{Cursor, lookup_batch};
use xdptun_common::report::outcome::{Counter, CounterValue, Ending};
use xdptun_common::tunnel::outcome::{Outcome, Sent};

/// Which counters of the tunnel moved, and how far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// How packets ended.
    pub outcomes: Vec<(Outcome, u64)>,
    /// Control segments.
    pub sent: Vec<(Sent, u64)>,
    /// The bytes of the packets that ended so.
    pub bytes: Vec<(Outcome, u64)>,
}

/// The map of counters, and what it held when it was last read.
pub struct Counters {
    map: MapData,
    cpus: usize,
    /// One counter after the other, each with a value for every CPU.
    values: Vec<CounterValue>,
    before: Vec<CounterValue>,
}

impl Counters {
    /// Takes the map out of a loaded object of which the first `number` counters are read.
    ///
    /// # Panics
    ///
    /// If the object has none.
    #[must_use]
    pub fn take(ebpf: &mut Ebpf, number: usize) -> Self {
        let Some(Map::PerCpuArray(map)) = ebpf.take_map("COUNTERS") else {
            panic!("the object has no per-CPU array COUNTERS");
        };
        let cpus = nr_cpus().expect("the number of CPUs");
        Self {
            map,
            cpus,
            values: vec![CounterValue::default(); number * cpus],
            before: vec![CounterValue::default(); number],
        }
    }

    /// Which counters of the tunnel moved since the last call, and how far.
    ///
    /// # Panics
    ///
    /// If they cannot be read.
    pub fn moved(&mut self) -> Moved {
        let moved = self.differences();
        Moved {
            outcomes: nonzero(Outcome::ALL, &moved, |value| value.count),
            sent: nonzero(Sent::ALL, &moved, |value| value.count),
            bytes: nonzero(Outcome::ALL, &moved, |value| value.bytes),
        }
    }

    /// Which counters of a function with these two kinds moved since the last call, and how far.
    ///
    /// # Panics
    ///
    /// If they cannot be read.
    pub fn moved_by_name<E: Ending, C: Counter>(&mut self) -> BTreeMap<&'static str, u64> {
        by_name::<E, C>(&self.differences())
    }

    /// The same for one packet that became `after`.
    ///
    /// # Panics
    ///
    /// If they cannot be read, or if other bytes were counted than those of `after`, where the packet
    /// ended.
    #[track_caller]
    pub fn moved_by_packet<E: Ending, C: Counter>(
        &mut self,
        after: &[u8],
    ) -> BTreeMap<&'static str, u64> {
        let moved = self.differences();
        let ended = nonzero(E::ALL, &moved, |value| value.count);
        let bytes: Vec<_> = ended
            .iter()
            .map(|(ending, _)| (ending.name(), after.len() as u64))
            .collect();
        let counted: Vec<_> = nonzero(E::ALL, &moved, |value| value.bytes)
            .iter()
            .map(|(ending, bytes)| (ending.name(), *bytes))
            .collect();
        assert_eq!(counted, bytes, "bytes");
        by_name::<E, C>(&moved)
    }

    /// How far each moved, by index.
    fn differences(&mut self) -> Vec<CounterValue> {
        self.read();
        let now = self.values.chunks_exact(self.cpus);
        let differences = now.zip(&mut self.before).map(|(cpus, before)| {
            let now: CounterValue = cpus.iter().copied().sum();
            let before = replace(before, now);
            CounterValue {
                count: now.count - before.count,
                bytes: now.bytes - before.bytes,
            }
        });
        differences.collect()
    }

    fn read(&mut self) {
        let mut keys = vec![0u32; self.before.len()];
        let mut start = Cursor::default();
        // SAFETY: keys are numbers of four bytes, and values those of counters; there is room for a
        // value of each counter for every CPU.
        let read = unsafe { lookup_batch(self.map.fd(), &mut start, &mut keys, &mut self.values) };
        assert!(
            matches!(read, Ok((count, _)) if count == keys.len()),
            "cannot read the counters: {read:?} of {}",
            keys.len()
        );
    }
}

fn by_name<E: Ending, C: Counter>(moved: &[CounterValue]) -> BTreeMap<&'static str, u64> {
    let endings = nonzero(E::ALL, moved, |value| value.count).into_iter();
    let endings = endings.map(|(ending, by)| (ending.name(), by));
    let counts = nonzero(C::ALL, moved, |value| value.count).into_iter();
    endings
        .chain(counts.map(|(count, by)| (count.name(), by)))
        .collect()
}

fn nonzero<C: Counter>(
    counters: &[C],
    moved: &[CounterValue],
    number: impl Fn(&CounterValue) -> u64,
) -> Vec<(C, u64)> {
    let all = counters.iter();
    let all = all.map(|counter| (*counter, number(&moved[counter.index() as usize])));
    all.filter(|(_, number)| *number != 0).collect()
}
