//! The programs for one link layer, loaded.

use std::path::Path;

use aya::Ebpf;

use super::function::Function;
use super::options::Options;
use crate::datapath::recorder::Recorder;
use crate::error::Result;
use crate::host::interface::Interface;

/// The programs for one link layer, loaded.
pub struct Loaded<F: Function> {
    /// The length of the link header in bytes.
    pub link_len: u32,
    /// The maps that are theirs alone.
    pub own: F::Own,
    /// Their copies of packets, if they make any.
    pub(super) recorder: Option<Recorder>,
    /// The object, for its log.
    pub ebpf: Ebpf,
}

impl<F: Function> Loaded<F> {
    /// Loads the programs for the link layer of an interface.
    pub(super) fn new(
        interface: &Interface,
        options: &Options<F::Settings>,
        directory: &Path,
    ) -> Result<Self> {
        let (mut ebpf, own) = F::load(options, interface, directory)?;
        // Before the first copy.
        let recorder = match options.record_at(interface.link_len) {
            Some(_) => Some(Recorder::open(&mut ebpf)?),
            None => None,
        };
        Ok(Self {
            link_len: interface.link_len,
            own,
            recorder,
            ebpf,
        })
    }
}
