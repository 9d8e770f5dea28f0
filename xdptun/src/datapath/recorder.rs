//! The copies of packets that the programs make during a capture.

use aya::Ebpf;
use aya::maps::perf::{PerfEvent, PerfEventArrayBuffer};
use aya::maps::{MapData, PerCpuArray, PerfEventArray};
use aya::util::online_cpus;
use nix::unistd::{SysconfVar, sysconf};

use crate::error::{Context as _, Error, Result};

/// Size of the buffers of all CPUs together, in bytes, if the process may lock that much.
const IN_ALL: usize = 64 << 20;
/// The largest and the smallest buffer of a CPU. The kernel grants the smallest to every
/// user (`kernel.perf_event_mlock_kb`).
const MOST: usize = 4 << 20;
const LEAST: usize = 512 << 10;

/// The copies of one set of programs that records. Dropping it discards further copies.
pub struct Recorder {
    buffers: Vec<(u32, PerfEventArrayBuffer<MapData>)>,
    unrecorded: PerCpuArray<MapData, u64>,
}

impl Recorder {
    /// Makes the buffers for a loaded object.
    ///
    /// # Errors
    ///
    /// If the kernel gives no buffers (CAP_PERFMON).
    pub fn open(ebpf: &mut Ebpf) -> Result<Self> {
        let mut take = |name| {
            ebpf.take_map(name)
                .with_context(|| format!("the object has no map {name}"))
        };
        let mut copies = PerfEventArray::try_from(take("RECORDS")?)?;
        let unrecorded = take("UNRECORDED")?.try_into()?;
        let cpus = online_cpus()
            .map_err(|(path, error)| Error::from(error).context(format!("cannot read {path}")))?;
        let many = (IN_ALL / cpus.len().max(1)).clamp(LEAST, MOST);
        let buffers = open_all(&mut copies, &cpus, many)
            .or_else(|_| open_all(&mut copies, &cpus, LEAST))
            .context("cannot make buffers for the copies of packets")?;
        Ok(Self {
            buffers,
            unrecorded,
        })
    }

    /// Empties the buffers. `copy` gets the CPU and the bytes of each copy, in up to two
    /// pieces. Copies of one CPU come in order.
    pub fn drain(&mut self, mut copy: impl FnMut(u32, &[u8], &[u8])) {
        for (cpu, buffer) in &mut self.buffers {
            buffer.for_each(|event| {
                // The programs count lost packets themselves.
                if let PerfEvent::Sample { head, tail } = event {
                    copy(*cpu, head, tail);
                }
            });
        }
    }

    /// How many packets did not fit into the buffers so far.
    ///
    /// # Errors
    ///
    /// If the count cannot be read.
    pub fn unrecorded(&self) -> Result<u64> {
        Ok(self.unrecorded.get(&0, 0)?.iter().sum())
    }
}

/// A buffer for each CPU, of this size or somewhat less: the kernel requires a power of two
/// of pages.
fn open_all(
    copies: &mut PerfEventArray<MapData>,
    cpus: &[u32],
    bytes: usize,
) -> Result<Vec<(u32, PerfEventArrayBuffer<MapData>)>> {
    let page = sysconf(SysconfVar::PAGE_SIZE)?.unwrap_or(4096);
    let pages = bytes / usize::try_from(page)?;
    let pages = 1 << pages.max(1).ilog2();
    let buffers = cpus
        .iter()
        .map(|cpu| Ok((*cpu, copies.open(*cpu, Some(pages))?)));
    buffers.collect()
}
