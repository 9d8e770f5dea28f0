//! Programs that do one thing each, to learn what it costs.
//!
//! Each runs at tc egress on datagrams of ordinary sockets, as the disguise does,
//! and drops them afterwards. What a program that does nothing takes is that of
//! counting, and is taken off.

use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result, anyhow};
use aya::programs::links::FdLink;
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, ProgramInfo, SchedClassifier, TcAttachType, loaded_programs};
use rbpf::assembler::assemble;
use xdptun_lab::Host;

use super::load::{self, MapType, Shape};
use super::programs::{self, Spent};

/// One thing to price.
#[derive(Debug, Clone, Copy)]
pub struct Priced {
    /// Its name.
    pub name: &'static str,
    /// How often the program does it; once where a second time would be another
    /// thing.
    pub times: usize,
    /// Its instructions, in the notation of `rbpf`. The packet is in `r6`, and the
    /// stack's lowest 40 bytes are zeros.
    body: &'static str,
    map: Option<Shape>,
}

const fn priced(name: &'static str, times: usize, body: &'static str) -> Priced {
    Priced {
        name,
        times,
        body,
        map: None,
    }
}

/// As the table of flows, with one entry.
const FLOWS: Shape = Shape {
    kind: MapType::Hash,
    key: 36,
    value: 160,
    room: MANY,
    entries: 1,
};

/// As a table of lines of the cache.
const LINES: Shape = Shape {
    kind: MapType::Array,
    key: 4,
    value: 64,
    room: MANY,
    entries: 1,
};

/// So many entries that one is in no cache.
const MANY: u32 = 65_536;

/// A look-up of the zeros on the stack.
const LOOK_UP: &str = "mov r2, r10\nadd r2, -40\nlddw r1, 0\ncall 1\n";

/// A look-up of any of [`MANY`], whose value is read where it begins.
const LOOK_UP_ANY: &str = "call 7\nand r0, 65535\nstxw [r10-40], r0\n\
     mov r2, r10\nadd r2, -40\nlddw r1, 0\ncall 1\n\
     jeq r0, 0, +1\nldxdw r1, [r0+0]\n";

/// The same, whose value is read in each of its lines.
const LOOK_UP_ALL_OF_ANY: &str = "call 7\nand r0, 65535\nstxw [r10-40], r0\n\
     mov r2, r10\nadd r2, -40\nlddw r1, 0\ncall 1\n\
     jeq r0, 0, +3\nldxdw r1, [r0+0]\nldxdw r1, [r0+64]\nldxdw r1, [r0+128]\n";

/// Helpers and look-ups that the programs consist of. Numbers are those of
/// `enum bpf_func_id` and the offsets in `struct __sk_buff`.
pub const PRICED: [Priced; 18] = [
    priced("nothing (counting itself)", 1, ""),
    Priced {
        map: Some(FLOWS),
        ..priced("look-up in a hash map, 36-byte key", 8, LOOK_UP)
    },
    Priced {
        map: Some(LINES),
        ..priced("look-up in an array", 8, LOOK_UP)
    },
    priced("bpf_get_prandom_u32", 8, "call 7\n"),
    Priced {
        map: Some(Shape {
            entries: MANY,
            ..FLOWS
        }),
        ..priced(
            "the same, then look-up of any of 65,536 in that hash map",
            1,
            LOOK_UP_ANY,
        )
    },
    Priced {
        map: Some(Shape {
            entries: MANY,
            ..FLOWS
        }),
        ..priced(
            "... and three lines of its value read",
            1,
            LOOK_UP_ALL_OF_ANY,
        )
    },
    Priced {
        map: Some(Shape {
            entries: MANY,
            ..LINES
        }),
        ..priced(
            "bpf_get_prandom_u32, then look-up of any of 65,536 values of 64 bytes in an array",
            1,
            LOOK_UP_ANY,
        )
    },
    priced("bpf_ktime_get_coarse_ns", 8, "call 160\n"),
    priced("bpf_jiffies64", 8, "call 118\n"),
    priced(
        "bpf_check_mtu",
        8,
        "stw [r10-40], 1000\nmov r1, r6\nmov r2, 0\nmov r3, r10\nadd r3, -40\n\
         mov r4, 12\nmov r5, 0\ncall 163\n",
    ),
    priced(
        "bpf_l4_csum_replace",
        8,
        "mov r1, r6\nmov r2, 40\nmov r3, 0\nmov r4, 1\nmov r5, 2\ncall 11\n",
    ),
    priced(
        "bpf_skb_load_bytes, 40 bytes",
        8,
        "mov r1, r6\nmov r2, 14\nmov r3, r10\nadd r3, -40\nmov r4, 40\ncall 26\n",
    ),
    priced(
        "bpf_csum_diff, 1,400 bytes",
        1,
        "ldxw r3, [r6+76]\nldxw r7, [r6+80]\nadd r3, 42\nmov r8, r3\nadd r8, 1400\n\
         jgt r8, r7, +5\nmov r1, 0\nmov r2, 0\nmov r4, 1400\nmov r5, 0\ncall 28\n",
    ),
    priced(
        "bpf_skb_adjust_room, 12 bytes more",
        1,
        "mov r1, r6\nmov r2, 12\nmov r3, 0\nmov r4, 0\ncall 50\n",
    ),
    priced(
        "bpf_skb_adjust_room, 12 bytes less",
        1,
        "mov r1, r6\nmov r2, -12\nmov r3, 0\nmov r4, 0\ncall 50\n",
    ),
    priced(
        "bpf_skb_adjust_room, 12 bytes less, then 12 more",
        1,
        "mov r1, r6\nmov r2, -12\nmov r3, 0\nmov r4, 0\ncall 50\n\
         mov r1, r6\nmov r2, 12\nmov r3, 0\nmov r4, 0\ncall 50\n",
    ),
    priced(
        "bpf_skb_change_tail, 12 bytes more",
        1,
        "mov r1, r6\nldxw r2, [r6+0]\nadd r2, 12\nmov r3, 0\ncall 38\n",
    ),
    priced(
        "bpf_skb_adjust_room, 40 bytes less, then 52 more",
        1,
        "mov r1, r6\nmov r2, -40\nmov r3, 0\nmov r4, 0\ncall 50\n\
         mov r1, r6\nmov r2, 52\nmov r3, 0\nmov r4, 0\ncall 50\n",
    ),
];

/// A loaded program.
pub struct Micro {
    /// The thing that it does.
    pub priced: Priced,
    program: OwnedFd,
    _map: Option<OwnedFd>,
}

impl Micro {
    /// Loads it.
    pub fn load(priced: Priced) -> Result<Self> {
        let map = priced.map.map(load::map).transpose()?;
        let program = load::classifier(&instructions(&priced, map.as_ref())?)
            .with_context(|| format!("cannot load the program for: {}", priced.name))?;
        Ok(Self {
            priced,
            program,
            _map: map,
        })
    }

    /// Puts it where a host's packets leave, until the link is dropped.
    pub fn attach(&self, host: &Host) -> Result<FdLink> {
        let info = self.info()?;
        host.netns.enter(|| {
            let mut program = SchedClassifier::from_program_info(info, "micro".into())?;
            let order = TcAttachOptions::TcxOrder(LinkOrder::first());
            let link = program.attach_with_options(Host::DEV, TcAttachType::Egress, order)?;
            Ok(program.take_link(link)?.try_into()?)
        })?
    }

    /// The kernel's information about it.
    pub fn info(&self) -> Result<ProgramInfo> {
        let id = programs::id(&self.program)?;
        let mut all = loaded_programs().filter_map(Result::ok);
        all.find(|program| program.id() == id)
            .context("the program is gone")
    }

    /// The time of its runs so far.
    pub fn spent(&self) -> Result<Spent> {
        programs::of_descriptor(&self.program)
    }
}

/// The whole program: its instructions as often as it repeats them, and the end.
fn instructions(priced: &Priced, map: Option<&OwnedFd>) -> Result<Vec<u8>> {
    let zeros: String = (1..=5)
        .map(|word| format!("stdw [r10-{}], 0\n", word * 8))
        .collect();
    let body = priced.body.repeat(priced.times);
    // TC_ACT_SHOT
    let text = format!("mov r6, r1\n{zeros}{body}mov r0, 2\nexit\n");
    let mut code = assemble(&text).map_err(|error| anyhow!("{}: {error}", priced.name))?;
    if let Some(map) = map {
        let (instructions, _) = code.as_chunks_mut::<8>();
        for [opcode, registers, .., d, c, b, a] in instructions {
            // `BPF_LD | BPF_IMM | BPF_DW` with `BPF_PSEUDO_MAP_FD` as its source.
            if *opcode == 0x18 {
                *registers |= 1 << 4;
                [*d, *c, *b, *a] = map.as_raw_fd().to_le_bytes();
            }
        }
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_is_assembled() {
        let lengths = PRICED.map(|priced| instructions(&priced, None).unwrap().len() / 8);
        // Nothing: the packet, five words, the verdict.
        assert_eq!(lengths[0], 8);
        assert!(lengths[1..].iter().all(|length| *length > 8), "{lengths:?}");
    }
}
