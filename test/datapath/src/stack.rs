//! How much stack the programs need, as the verifier counts it before it runs anything.
//!
//! `check_max_stack_depth` of the kernel's `kernel/bpf/verifier.c` adds up the frames of each
//! chain of calls, every frame rounded up, and refuses more than 512 bytes. Linux 6.1 rounds up
//! to a multiple of 32 bytes, 6.18 with the JIT to one of 16. So an older kernel may refuse a
//! program that this machine loads.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use object::elf::FileHeader64;
use object::read::elf::ElfFile;
use object::{
    LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SymbolKind,
};

/// What a chain of calls may have, in bytes (`MAX_BPF_STACK`).
pub const MOST: u32 = 512;

/// To what multiple the frames are rounded up, in bytes.
const STEP: u32 = 32;

/// Bytes of an instruction.
const INSTRUCTION: usize = 8;

/// Where a function begins: the index of its section, and the offset there in bytes.
type Place = (usize, u64);

/// A function of the object.
struct Function {
    name: String,
    /// The bytes of its own frame.
    frame: u32,
    calls: Vec<Place>,
}

/// A chain of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The functions, from the program on, and their own frames in bytes.
    pub functions: Vec<String>,
    /// The stack that they need, in bytes.
    pub bytes: u32,
}

/// The deepest chain of each program in an object for BPF.
///
/// # Errors
///
/// If the object cannot be understood.
pub fn deepest(object: &[u8]) -> Result<Vec<Chain>> {
    let file = ElfFile::<FileHeader64<LittleEndian>>::parse(object)?;
    let mut functions = BTreeMap::new();
    let mut programs = Vec::new();
    for symbol in file.symbols().filter(|one| one.kind() == SymbolKind::Text) {
        let Some(index) = symbol.section_index().filter(|_| symbol.size() > 0) else {
            continue;
        };
        let place = (index.0, symbol.address());
        functions.insert(place, function(&file, &symbol)?);
        if file.section_by_index(index)?.name()? != ".text" {
            programs.push(place);
        }
    }
    ensure!(!programs.is_empty(), "the object has no program");
    programs
        .into_iter()
        .map(|place| chain(&functions, place))
        .collect()
}

/// The deepest chain from a function. The verifier refuses recursion, so it ends.
fn chain(functions: &BTreeMap<Place, Function>, place: Place) -> Result<Chain> {
    let function = functions
        .get(&place)
        .with_context(|| format!("no function at {place:?}"))?;
    let mut below = Chain {
        functions: Vec::new(),
        bytes: 0,
    };
    for call in &function.calls {
        let found = chain(functions, *call)?;
        if found.bytes > below.bytes {
            below = found;
        }
    }
    let frame = format!("{} ({})", function.name, function.frame);
    below.functions.insert(0, frame);
    below.bytes += function.frame.max(1).next_multiple_of(STEP);
    Ok(below)
}

fn function<'data>(
    file: &ElfFile<'data, FileHeader64<LittleEndian>>,
    symbol: &impl object::ObjectSymbol<'data>,
) -> Result<Function> {
    let name = symbol.name()?.to_owned();
    let index = symbol.section_index().context("no section")?;
    let section = file.section_by_index(index)?;
    let start = symbol.address();
    let code = section
        .data_range(start, symbol.size())?
        .with_context(|| format!("{name} lies beyond its section"))?;
    let relocations: BTreeMap<u64, RelocationTarget> = section
        .relocations()
        .map(|(offset, relocation)| (offset, relocation.target()))
        .collect();
    let mut function = Function {
        name,
        frame: 0,
        calls: Vec::new(),
    };
    // The registers that hold the frame pointer.
    let mut is_frame = [false; 16];
    for (at, instruction) in (start..).step_by(INSTRUCTION).zip(code.chunks(INSTRUCTION)) {
        let Instruction {
            code,
            destination,
            source,
            offset,
            immediate,
        } = Instruction::read(instruction)?;
        let below = match code & CLASS {
            LOAD => offset_from(source, offset),
            STORE | STORE_IMMEDIATE => offset_from(destination, offset),
            _ if code == ADD_IMMEDIATE && is_frame[destination] => immediate,
            _ => 0,
        };
        function.frame = function.frame.max(below.min(0).unsigned_abs());
        if matches!(code & CLASS, ARITHMETIC | ARITHMETIC_32 | LOAD) {
            is_frame[destination] = code == MOVE && source == FRAME_POINTER;
        }
        if code == CALL && source == PSEUDO_CALL {
            let place = match relocations.get(&at) {
                // The immediate counts instructions from the start of the section.
                Some(RelocationTarget::Symbol(target)) => {
                    let target = file.symbol_by_index(*target)?;
                    let section = target.section_index().context("a call to nowhere")?;
                    let within = match target.kind() {
                        SymbolKind::Section => i64::from(immediate) + 1,
                        _ => 0,
                    };
                    let base = target.address().cast_signed();
                    (section, base + within * INSTRUCTION as i64)
                }
                _ => {
                    let next = at.cast_signed() + INSTRUCTION as i64;
                    (index, next + i64::from(immediate) * INSTRUCTION as i64)
                }
            };
            function.calls.push((place.0.0, u64::try_from(place.1)?));
        }
    }
    Ok(function)
}

/// An offset, if it is one from the frame pointer.
fn offset_from(register: usize, offset: i16) -> i32 {
    if register == FRAME_POINTER {
        offset.into()
    } else {
        0
    }
}

// Instruction set, RFC 9669: classes, and the few instructions that matter here.
const CLASS: u8 = 7;
const LOAD: u8 = 1;
const STORE_IMMEDIATE: u8 = 2;
const STORE: u8 = 3;
const ARITHMETIC_32: u8 = 4;
const ARITHMETIC: u8 = 7;
/// `dst += imm`, 64 bits.
const ADD_IMMEDIATE: u8 = 0x07;
/// `dst = src`, 64 bits.
const MOVE: u8 = 0xbf;
const CALL: u8 = 0x85;
/// The source of a call to another function of the object.
const PSEUDO_CALL: usize = 1;
const FRAME_POINTER: usize = 10;

struct Instruction {
    code: u8,
    destination: usize,
    source: usize,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    fn read(bytes: &[u8]) -> Result<Self> {
        let bytes: [u8; INSTRUCTION] = bytes.try_into().context("half an instruction")?;
        let [code, registers, o0, o1, i0, i1, i2, i3] = bytes;
        Ok(Self {
            code,
            destination: usize::from(registers & 15),
            source: usize::from(registers >> 4),
            offset: i16::from_le_bytes([o0, o1]),
            immediate: i32::from_le_bytes([i0, i1, i2, i3]),
        })
    }
}
