//! Loading the program, set up for its device.

use std::path::Path;

use aya::Ebpf;
use xdptun_common::nat64::translator::PREFIX_LEN;
use xdptun_object::NAT64;

use super::maps::PINNED;
use super::plan::Settings;
use crate::error::{Context as _, Result};
use crate::group::Options;
use crate::group::load::{Globals, bytes_of};
use crate::host::interface::Interface;

/// Loads the object with maps that are pinned in `directory`.
pub fn load(
    options: &Options<Settings>,
    interface: &Interface,
    directory: &Path,
) -> Result<(Ebpf, ())> {
    let (_, prefix_len) = options.settings.translator.prefix.parts();
    let globals = Globals::of(options, interface)?;
    let mut loader = globals.loader(Some(directory));
    loader.override_global(PREFIX_LEN, &prefix_len, true);
    for map in PINNED {
        loader.map_pin_path(map, directory.join(map));
    }
    let loaded = loader.load(&bytes_of(NAT64));
    Ok((loaded.context("cannot load the kernel side")?, ()))
}
