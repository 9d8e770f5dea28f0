//! What loading the object of any function needs.

use std::num::NonZeroU32;
use std::path::Path;

use aya::EbpfLoader;
use aya::util::KernelVersion;
use xdptun_common::global;
use xdptun_object::Object;

use super::options::{Options, Trace};
use crate::datapath::engine_maps;
use crate::error::Result;
use crate::host::interface::Interface;
use crate::host::preflight::{has_btf, kernel_version};

/// The read-only variables that the programs of any function have.
pub struct Globals {
    link_len: u32,
    shrink_twice: u32,
    record: u32,
    log_level: u8,
}

/// The first kernel that moves the start of a packet before it looks at a pending
/// checksum (`bpf: pull before calling skb_postpull_rcsum`). Some older ones have
/// the change too; they take one step more than they need.
const PULLS_FIRST: KernelVersion = KernelVersion::new(6, 2, 0);

/// An object as the running kernel takes it.
pub fn bytes_of(object: Object) -> Vec<u8> {
    if has_btf() {
        object.bytes()
    } else {
        object.bytes_without_btf()
    }
}

impl Globals {
    /// For the link layer of an interface.
    ///
    /// # Errors
    ///
    /// If the kernel's version cannot be told.
    pub fn of<S: Clone>(options: &Options<S>, interface: &Interface) -> Result<Self> {
        let record = options.record_at(interface.link_len);
        Ok(Self {
            link_len: interface.link_len,
            shrink_twice: (kernel_version()? < PULLS_FIRST).into(),
            record: record.map_or(0, NonZeroU32::get),
            log_level: match options.trace {
                Trace::On => u8::MAX,
                Trace::Off => 0,
            },
        })
    }

    /// A loader that sets them, and pins the maps of any function in `directory`.
    pub fn loader(&self, directory: Option<&Path>) -> EbpfLoader<'_> {
        let mut loader = EbpfLoader::new();
        loader
            .override_global(global::LINK_LEN, &self.link_len, true)
            .override_global(global::SHRINK_TWICE, &self.shrink_twice, true)
            .override_global(global::RECORD, &self.record, true)
            // Programs that log nothing have none.
            .override_global(aya_log::LEVEL, &self.log_level, false);
        for map in engine_maps::NAMES {
            if let Some(directory) = directory {
                loader.map_pin_path(map, directory.join(map));
            }
        }
        loader
    }
}
