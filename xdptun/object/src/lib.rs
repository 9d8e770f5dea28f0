//! The kernel side, compiled by the build script of this package.
//!
//! A package of its own, so that the objects can be built without the command that embeds it:
//! `test/datapath` loads the file at run time, and a change of the kernel side compiles
//! neither the command nor a test program again.

use std::io::Read as _;

use flate2::read::ZlibDecoder;

/// Programs and maps: an ELF object with BTF, compressed.
#[derive(Clone, Copy, Debug)]
pub struct Object(&'static [u8]);

/// The programs and maps of the tunnel.
pub const TUNNEL: Object = Object(include_bytes!(concat!(env!("OUT_DIR"), "/tunnel.z")));

/// The same of the gateway.
pub const GATEWAY: Object = Object(include_bytes!(concat!(env!("OUT_DIR"), "/gateway.z")));

/// The same of the policy.
pub const POLICY: Object = Object(include_bytes!(concat!(env!("OUT_DIR"), "/policy.z")));

/// The same of NAT64.
pub const NAT64: Object = Object(include_bytes!(concat!(env!("OUT_DIR"), "/nat64.z")));

/// The same of a function that only counts: for the tests; nothing that is shipped refers to it.
pub const COUNT: Object = Object(include_bytes!(concat!(env!("OUT_DIR"), "/count.z")));

/// The same of the least that a tunnel must do: for the measurements, as `COUNT` for the tests.
pub const FLOOR: Object = Object(include_bytes!(concat!(env!("OUT_DIR"), "/floor.z")));

impl Object {
    /// The object, as a loader wants it.
    ///
    /// # Panics
    ///
    /// Never: the build script compressed it.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        let mut object = Vec::new();
        let read = ZlibDecoder::new(self.0).read_to_end(&mut object);
        read.expect("compressed by the build script");
        object
    }
}
