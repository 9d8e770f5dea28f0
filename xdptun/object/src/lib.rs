//! The kernel side, compiled by the build script of this package.
//!
//! A package of its own, so that the object can be built without the command that embeds it:
//! `test/datapath` loads the file at run time, and a change of the kernel side compiles
//! neither the command nor a test program again.

/// The programs and maps of the tunnel: an ELF object with BTF.
pub static TUNNEL: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tunnel"));
