//! Loading the programs, set up for a link layer and a group.

use std::path::Path;

use aya::Ebpf;
use xdptun_object::POLICY;

use super::maps::PINNED;
use super::plan::Settings;
use crate::error::{Context as _, Result};
use crate::group::Options;
use crate::group::load::{Globals, bytes_of};
use crate::host::interface::Interface;

/// Loads the object with maps that are pinned in `directory`.
pub fn load(options: &Options<Settings>, interface: &Interface, directory: &Path) -> Result<Ebpf> {
    let globals = Globals::of(options, interface)?;
    let mut loader = globals.loader(Some(directory));
    for map in PINNED {
        loader.map_pin_path(map, directory.join(map));
    }
    loader
        .load(&bytes_of(POLICY))
        .context("cannot load the kernel side")
}
