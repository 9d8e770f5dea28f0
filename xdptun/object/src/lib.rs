//! The kernel side, compiled by the build script of this package.
//!
//! A package of its own, so that the objects can be built without the command that embeds it:
//! `test/datapath` loads the file at run time, and a change of the kernel side compiles
//! neither the command nor a test program again.

use std::io::Read as _;

use flate2::read::ZlibDecoder;

/// Programs and maps: an ELF object with BTF, compressed.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    deflated: &'static [u8],
    /// Where a byte says of a function with a context that it is global.
    linkages: &'static [usize],
}

/// The files that the build script left for an object.
macro_rules! built {
    ($name:literal) => {
        Object {
            deflated: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".z")),
            linkages: &include!(concat!(env!("OUT_DIR"), "/", $name, ".linkages")),
        }
    };
}

/// The programs and maps of the tunnel.
pub const TUNNEL: Object = built!("tunnel");

/// The same of the gateway.
pub const GATEWAY: Object = built!("gateway");

/// The same of the policy.
pub const POLICY: Object = built!("policy");

/// The same of NAT64.
pub const NAT64: Object = built!("nat64");

/// The same of a function that only counts: for the tests; nothing that is shipped refers to it.
pub const COUNT: Object = built!("count");

/// The same of the least that a tunnel must do: for the measurements, as `COUNT` for the tests.
pub const FLOOR: Object = built!("floor");

impl Object {
    /// The object, as a loader wants it.
    ///
    /// # Panics
    ///
    /// Never: the build script compressed it.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        let mut object = Vec::new();
        let read = ZlibDecoder::new(self.deflated).read_to_end(&mut object);
        read.expect("compressed by the build script");
        object
    }

    /// The same for a kernel without BTF, which takes no global function with a context: they are
    /// static, and the verifier walks them at each call.
    ///
    /// # Panics
    ///
    /// As [`Object::bytes`].
    #[must_use]
    pub fn bytes_without_btf(self) -> Vec<u8> {
        let mut object = self.bytes();
        for &linkage in self.linkages {
            object[linkage] = 0;
        }
        object
    }
}
