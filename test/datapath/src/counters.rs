//! All counters in one system call.
//!
//! aya reads a per-CPU array index by index, and looks up the number of CPUs in
//! a file for each: half a millisecond, which a run of a program is worth a
//! hundred times over.

use std::os::fd::{AsFd as _, AsRawFd as _};

use aya::Ebpf;
use aya::maps::{Map, MapData};
use aya::util::nr_cpus;
use nix::errno::Errno;
use xdptun_common::tunnel::outcome::{COUNTERS, Outcome, Sent};
use xdptun_lab::bpf;

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

/// `BPF_MAP_LOOKUP_BATCH` of `enum bpf_cmd`, kernel 5.6; per-CPU arrays since 5.13.
const LOOKUP_BATCH: libc::c_int = 24;

/// The `batch` member of `union bpf_attr`.
#[repr(C)]
struct Batch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
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
        let mut next_batch = 0u32;
        let mut attributes = Batch {
            in_batch: 0,
            out_batch: (&raw mut next_batch).expose_provenance() as u64,
            keys: keys.as_mut_ptr().expose_provenance() as u64,
            values: self.values.as_mut_ptr().expose_provenance() as u64,
            count: COUNTERS,
            map_fd: self.map.fd().as_fd().as_raw_fd().cast_unsigned(),
            elem_flags: 0,
            flags: 0,
        };
        // SAFETY: the kernel writes a position, `count` keys and `count` times
        // the number of CPUs values of eight bytes; there is room for each.
        let result = unsafe { bpf::call(LOOKUP_BATCH, &mut attributes) };
        // "No entry" only says that nothing follows the last one.
        let whole = matches!(result, Ok(_) | Err(Errno::ENOENT));
        assert!(
            whole && attributes.count == COUNTERS,
            "cannot read the counters: {} of {COUNTERS}, {result:?}",
            attributes.count
        );
    }
}

fn nonzero<T: Copy>(counters: &[T], deltas: &mut impl Iterator<Item = u64>) -> Vec<(T, u64)> {
    let moved = counters.iter().copied().zip(deltas);
    moved.filter(|(_, delta)| *delta != 0).collect()
}
