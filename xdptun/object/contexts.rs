//! Which global functions of an object take a context.
//!
//! The verifier walks a global function once, for any arguments. It knows that one of them is a
//! context by its type, which it looks for in the BTF of the kernel (`btf_get_prog_ctx_type` in
//! `kernel/bpf/btf.c`). A kernel without BTF takes such a function only if its linkage is static:
//! then it is walked at each call.

use std::ops::Range;

/// The types of contexts.
const CONTEXTS: [&str; 2] = ["__sk_buff", "xdp_md"];

// Kinds of types (`BTF_KIND_*` of `linux/btf.h`).
const INT: u32 = 1;
const POINTER: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const DECL_TAG: u32 = 17;
const ENUM64: u32 = 19;

/// `BTF_FUNC_GLOBAL`, where a function has the number of its members.
const GLOBAL: usize = 1;

/// Where in the object the linkage of each such function is, in one byte. `section` is where `.BTF`
/// is.
pub fn linkages(object: &[u8], section: Range<usize>) -> Option<Vec<usize>> {
    let btf = Btf::of(object, section)?;
    let functions = btf.types.iter().skip(1).copied();
    let taking = functions.filter(|&function| btf.is_global_with_context(function) == Some(true));
    // Behind the name, in the lowest byte of `info`.
    let lowest = if btf.object.is_big_endian { 7 } else { 4 };
    Some(taking.map(|function| function + lowest).collect())
}

/// The bytes of the object.
#[derive(Clone, Copy)]
struct Bytes<'a> {
    bytes: &'a [u8],
    is_big_endian: bool,
}

impl Bytes<'_> {
    fn word(self, at: usize) -> Option<u32> {
        let word = self.bytes.get(at..at + 4)?.try_into().ok()?;
        Some(match self.is_big_endian {
            true => u32::from_be_bytes(word),
            false => u32::from_le_bytes(word),
        })
    }
}

struct Btf<'a> {
    object: Bytes<'a>,
    /// Where each type is; the first is `void`, which is nowhere.
    types: Vec<usize>,
    /// Where the names are.
    names: usize,
}

impl<'a> Btf<'a> {
    fn of(object: &'a [u8], section: Range<usize>) -> Option<Self> {
        // The magic number of the format.
        let object = Bytes {
            bytes: object,
            is_big_endian: object.get(section.start) == Some(&0xeb),
        };
        // `struct btf_header`: four bytes, its length, and offsets and lengths from its end.
        let [header, types, types_len, names] =
            [4, 8, 12, 16].map(|field| object.word(section.start + field));
        let start = section.start + header? as usize;
        let mut btf = Self {
            object,
            types: vec![usize::MAX],
            names: start + names? as usize,
        };
        let mut at = start + types? as usize;
        let end = at + types_len? as usize;
        while at < end {
            btf.types.push(at);
            let (kind, members) = btf.kind(at)?;
            at += 12
                + match kind {
                    INT | VAR | DECL_TAG => 4,
                    ARRAY => 12,
                    STRUCT | UNION | DATASEC | ENUM64 => 12 * members,
                    ENUM | FUNC_PROTO => 8 * members,
                    _ => 0,
                };
        }
        Some(btf)
    }

    /// The kind of the type at a place, and how many members it has.
    fn kind(&self, at: usize) -> Option<(u32, usize)> {
        let info = self.object.word(at + 4)?;
        Some((info >> 24 & 0x1f, (info & 0xffff) as usize))
    }

    /// The place of the type that the word at a place names.
    fn type_at(&self, at: usize) -> Option<usize> {
        let number = self.object.word(at)? as usize;
        self.types.get(number).copied().filter(|_| number != 0)
    }

    fn is_global_with_context(&self, function: usize) -> Option<bool> {
        if self.kind(function)? != (FUNC, GLOBAL) {
            return Some(false);
        }
        let prototype = self.type_at(function + 8)?;
        let (_, arguments) = self.kind(prototype)?;
        // Their names come before their types.
        let types = (0..arguments).map(|number| self.type_at(prototype + 12 + number * 8 + 4));
        Some(types.flatten().any(|argument| self.is_context(argument)))
    }

    fn is_context(&self, argument: usize) -> bool {
        let is_pointer = self.kind(argument).is_some_and(|(kind, _)| kind == POINTER);
        let target = self.type_at(argument + 8).filter(|_| is_pointer);
        let name = target.and_then(|target| self.object.word(target));
        let bytes = name.and_then(|name| self.object.bytes.get(self.names + name as usize..));
        bytes.is_some_and(|bytes| {
            CONTEXTS.iter().any(|context| {
                bytes.starts_with(context.as_bytes()) && bytes.get(context.len()) == Some(&0)
            })
        })
    }
}
