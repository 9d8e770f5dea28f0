//! The kernel side, compiled by the build script of this package.
//!
//! A package of its own, so that the objects can be built without the command that embeds it:
//! `test/datapath` loads the file at run time, and a change of the kernel side compiles
//! neither the command nor a test program again.

/// The programs and maps of the tunnel: an ELF object with BTF.
pub static TUNNEL: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tunnel"));

/// The same of the gateway.
pub static GATEWAY: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/gateway"));

/// The same of the policy.
pub static POLICY: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/policy"));

/// The same of NAT64.
pub static NAT64: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/nat64"));

/// The same of a function that only counts: for the tests; nothing that is shipped refers to it.
pub static COUNT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/count"));

/// The same of the least that a tunnel must do: for the measurements, as `COUNT` for the tests.
pub static FLOOR: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/floor"));
